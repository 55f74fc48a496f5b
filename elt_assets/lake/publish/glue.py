"""Entries of Delta tables in AWS Glue's catalog, for Athena, EMR, Redshift Spectrum, Spark and Trino.

`entries` opens it for `type = "glue"`. Credentials, if the settings have none, are those of boto3: variables,
its files, and the role of the machine or the pod. They are read anew for each read of a connection, and boto3
renews those of a role, so credentials that expire are no more than a warning of one sync.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.publish import hive_form
from elt_assets.lake.publish.hive_form import HiveColumn, Limits
from elt_assets.lake.publish.registration import (
    CONNECT_SECONDS,
    MARK,
    REQUEST_SECONDS,
    Entry,
    EntryExists,
    EntryName,
    Registration,
    unreachable,
)

_LIMITS = Limits(type=131_072, comment=255)
_LONGEST_DESCRIPTION = 2048
_ATTEMPTS = 1
"""What may succeed at a second attempt is looked up first (`registration`)."""
_BUSY = frozenset(
    (
        *("ConcurrentModificationException", "InternalServiceException", "InternalFailure"),
        *("OperationTimeoutException", "ResourceNotReadyException", "ServiceUnavailable"),
        *("ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"),
        *("InternalError", "500", "502", "503", "504"),
    )
)
"""Error codes of requests that may succeed later."""
_CREDENTIALS = frozenset(
    (
        *(
            "ExpiredToken",
            "ExpiredTokenException",
            "InvalidClientTokenId",
            "InvalidSignatureException",
        ),
        *("UnrecognizedClientException", "IncompleteSignature", "RequestExpired"),
    )
)
"""Error codes of credentials that AWS does not accept, or no longer."""
_DATABASES = "_elt_databases"
"""Folder of the places of databases, below the root of the lake. It is never made."""
_OF_OTHERS = ("Owner", "Retention", "LastAnalyzedTime")
"""What an update leaves as it is, beside the properties of others."""


class GlueCatalog:
    """The catalog of one account and region.

    Args:
        options: `region`, `endpoint`, `catalog_id`, `profile`, `access_key_id`, `secret_access_key` and
            `session_token`, as far as they are set.

    Raises:
        ConfigError: boto3 is missing, or the profile or the region is.
    """

    kind = "Glue"

    def __init__(self, options: Mapping[str, str]):
        try:
            import boto3  # noqa: PLC0415 - of the extra
            from botocore import exceptions  # noqa: PLC0415
            from botocore.config import Config  # noqa: PLC0415
        except ImportError:
            raise ConfigError(
                "boto3, which registers tables in Glue, is not installed",
                guidance="pip install 'elt-assets[aws]' where syncs run",
            ) from None
        self._failures = exceptions
        # boto3 itself reads only AWS_DEFAULT_REGION.
        region = options.get("region") or os.environ.get("AWS_REGION") or None
        self._place = options.get("endpoint") or region or "AWS"
        self._catalog = {"CatalogId": options["catalog_id"]} if "catalog_id" in options else {}
        limits = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=REQUEST_SECONDS,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        try:
            session = boto3.session.Session(
                aws_access_key_id=options.get("access_key_id"),
                aws_secret_access_key=options.get("secret_access_key"),
                aws_session_token=options.get("session_token"),
                profile_name=options.get("profile"),
                region_name=region,
            )
            self._client = session.client(
                "glue", endpoint_url=options.get("endpoint"), config=limits
            )
        except (exceptions.BotoCoreError, ValueError) as error:
            raise self._explain_setup(error) from None

    def find(self, name: EntryName) -> Entry | None:
        answer = self._call(
            f"the entry {name}", "get_table", DatabaseName=name.database, Name=name.table
        )
        if answer is None:
            return None
        table = answer["Table"]
        storage = table.get("StorageDescriptor", {})
        parameters = table.get("Parameters", {})
        columns = tuple(
            HiveColumn(column["Name"].lower(), column.get("Type", ""), column.get("Comment", ""))
            for column in (*storage.get("Columns", ()), *table.get("PartitionKeys", ()))
        )
        path = storage.get("SerdeInfo", {}).get("Parameters", {}).get("path", "")
        return Entry(
            name,
            hive_form.place_of(storage.get("Location", ""), path),
            table.get("TableType") == hive_form.EXTERNAL,
            MARK in parameters,
            hive_form.facts(columns, parameters, path, table.get("Description", "")),
            table,
        )

    def facts_of(self, registration: Registration) -> Mapping[str, Any]:
        columns = hive_form.columns_of(registration.schema, _LIMITS)
        parameters = hive_form.parameters_of(registration)
        comment = hive_form.cut(registration.comment, _LONGEST_DESCRIPTION)
        return hive_form.facts(columns, parameters, registration.location, comment)

    def create(self, registration: Registration) -> None:
        table = self._table(registration, {})
        if self._change("create_table", registration.name, TableInput=table) is None:
            self._create_database(registration)
            if self._change("create_table", registration.name, TableInput=table) is None:
                raise TransientError(f"Glue lost the database {registration.name.database}")

    def update(self, registration: Registration, entry: Entry) -> None:
        table = self._table(registration, entry.native)
        if self._change("update_table", registration.name, TableInput=table) is None:
            raise TransientError(f"the entry {entry.name} in Glue was removed in the meantime")

    def remove(self, entry: Entry) -> None:
        self._change("delete_table", entry.name, Name=entry.name.table)

    def _table(self, registration: Registration, former: Mapping[str, Any]) -> dict[str, Any]:
        facts = self.facts_of(registration)
        return {
            **{name: former[name] for name in _OF_OTHERS if name in former},
            "Name": registration.name.table,
            "Description": facts["comment"],
            "TableType": hive_form.EXTERNAL,
            "PartitionKeys": [],
            "Parameters": {
                **hive_form.keep_others(former.get("Parameters", {})),
                **hive_form.parameters_of(registration),
            },
            "StorageDescriptor": {
                "Columns": [
                    {"Name": column.name, "Type": column.type, "Comment": column.comment}
                    for column in facts["columns"]
                ],
                "Location": registration.location,
                "InputFormat": hive_form.INPUT_FORMAT,
                "OutputFormat": hive_form.OUTPUT_FORMAT,
                "SerdeInfo": {
                    "SerializationLibrary": hive_form.SERDE,
                    "Parameters": {"path": registration.location, "serialization.format": "1"},
                },
            },
        }

    def _create_database(self, registration: Registration) -> None:
        """Create the database. Spark needs a place for it, and what drops a database with its tables may
        remove all below that place, so it is one where no table is."""
        name = registration.name.database
        database = {
            "Name": name,
            "Description": "Delta tables, registered by elt-assets",
            "LocationUri": f"{registration.root}/{_DATABASES}/{name}",
        }
        try:
            self._call(f"the database {name}", "create_database", DatabaseInput=database)
        except EntryExists:
            return

    def _change(self, operation: str, name: EntryName, **arguments: Any) -> Any:
        return self._call(f"the entry {name}", operation, DatabaseName=name.database, **arguments)

    def _call(self, what: str, operation: str, **arguments: Any) -> Any:
        """Return the answer to a request; None if there is no such entry, or no such database."""
        failures = self._failures
        try:
            return getattr(self._client, operation)(**self._catalog, **arguments)
        except failures.ClientError as error:
            details = error.response.get("Error", {})
            code, message = str(details.get("Code")), str(details.get("Message", ""))
        except (failures.ConnectionError, failures.HTTPClientError) as error:
            raise unreachable("Glue", self._place, type(error).__name__) from None
        except failures.ParamValidationError as error:
            raise ConfigError(
                f"Glue cannot store {what}: {error}",
                guidance="correct the name or the setting that the message names",
            ) from None
        except failures.BotoCoreError as error:
            raise self._explain_setup(error) from None
        if code == "EntityNotFoundException":
            return None
        raise self._explain(code, message, what, operation)

    def _explain(self, code: str, message: str, what: str, operation: str) -> EltError:
        if code == "AlreadyExistsException":
            return EntryExists(f"{what} exists in Glue")
        if code in _BUSY:
            return TransientError(
                f"Glue is busy: {code} for {what}", guidance="the next sync tries again"
            )
        if code in _CREDENTIALS:
            return ConfigError(
                f"AWS does not accept the credentials for Glue: {code}",
                guidance="renew them where syncs run; the next sync tries again, and so does `elt publish`",
            )
        action = "".join(word.capitalize() for word in operation.split("_"))
        if code.startswith("AccessDenied"):
            return ConfigError(
                f"Glue refuses {what}: {code}",
                guidance=f"allow glue:{action} on the catalog, the database and the table, and in Lake "
                "Formation, if it is used, the same on the database and its location",
            )
        return ConfigError(
            f"Glue refuses {what}: {code}: {message}",
            guidance="correct what the message names; the next sync tries again, and so does `elt publish`",
        )

    def _explain_setup(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"boto3 cannot ask Glue: {type(error).__name__}",
            guidance="set `region` in [tool.elt.catalog] or AWS_REGION, and give the process credentials of "
            "AWS as boto3 finds them, or `profile`",
        )
