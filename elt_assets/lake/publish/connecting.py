"""The Iceberg catalog of the settings: its properties, its connection, and what its errors mean.

`iceberg` opens it when the first table is published.

The properties are pyiceberg's. References in them are read here, when the catalog is used, and never before.
Where they do not say how files are read and written, the options of the lake's store are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from pyiceberg import exceptions as errors
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.table import Table
from requests import RequestException

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.lake.publish.names import find_kind
from elt_assets.machine_faults import first_line, translate
from elt_assets.protocol.masking import Masker
from elt_assets.runner.references import resolve_references
from elt_assets.settings import IcebergSettings
from elt_assets.storage.location import LIMITS, Location, limit

NAME = "elt"
"""The name of the catalog if the settings have none. Catalogs in databases store it beside each table."""
_WHERE = "the setting `iceberg.catalog`"
_REST = "elt_assets.lake.publish.rest_catalog.TimedRestCatalog"
_CLASS = "py-catalog-impl"
"""Property that names the class of a catalog, as pyiceberg has it."""
_AT_A_URI = ("rest", "hive", "sql")
"""Types of catalogs that are at a `uri`."""
CONNECT_SECONDS = 10
"""Time limit for a connection to a catalog or a store."""
_S3: Mapping[str, str] = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "endpoint_url": "s3.endpoint",
    "skip_signature": "s3.anonymous",
    "virtual_hosted_style_request": "s3.force-virtual-addressing",
}
_AZURE: Mapping[str, str] = {
    "account_key": "adls.account-key",
    "sas_token": "adls.sas-token",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
    "tenant_id": "adls.tenant-id",
}
_S3_TABLES = "s3tables"


@dataclass(frozen=True)
class OpenCatalog:
    """A catalog that is connected."""

    catalog: Catalog
    kind: str
    """Its type: `rest`, `sql`, `glue`, `hive` …"""
    mask: Callable[[str], str]
    """Masks the secrets of its properties in a text."""


def open_catalog(settings: IcebergSettings, lake: Location) -> OpenCatalog:
    """Connect to the catalog of the settings.

    Args:
        lake: a location in the lake, for the options of its store.

    Raises:
        ConfigError: a reference or a property is not valid, or a library is missing.
        EltError: the catalog does not answer, or refuses the credentials.
    """
    resolved, secrets = resolve_references(settings.catalog, where=_WHERE)
    mask = Masker(secrets)
    properties = {name: _as_text(value) for name, value in resolved.items()}
    name = str(properties.pop("name", NAME))
    kind = find_kind(properties)
    _refuse_own_files_only(properties)
    try:
        catalog = _connect(name, kind, {**store_properties(lake), **properties})
    except NotInstalledError as error:
        raise ConfigError(
            f"a library of the catalog is missing: {first_line(error)}",
            guidance=f"install it: pip install 'pyiceberg[{kind}]' (of a database: 'pyiceberg[sql-sqlite]' "
            "or 'pyiceberg[sql-postgres]')",
        ) from None
    except Exception as error:  # noqa: BLE001 - of any catalog
        raise explain(error, "the catalog was opened", mask) from None
    return OpenCatalog(catalog, kind, mask)


def _connect(name: str, kind: str, properties: Mapping[str, Any]) -> Catalog:
    """Return the catalog of these properties, and of no others.

    pyiceberg's `load_catalog` adds what `.pyiceberg.yaml` and the variables `PYICEBERG_CATALOG__…` say of a
    catalog of this name. That may be another catalog: the file is that of all programs of a user.

    Raises:
        ConfigError: a property is missing, or there is no such type of catalog.
    """
    path = str(properties.get(_CLASS, _REST if kind == "rest" else ""))
    if _CLASS not in properties and kind in _AT_A_URI and "uri" not in properties:
        raise ConfigError(
            f"{_WHERE} has no `uri`",
            guidance="write it there: what `.pyiceberg.yaml` and variables (PYICEBERG_CATALOG__…) say of "
            "catalogs is not used",
        )
    if path:
        module, _, attribute = path.rpartition(".")
        made: Catalog = getattr(import_module(module), attribute)(name, **properties)
        return made
    types = [catalog_type.value for catalog_type in CatalogType]
    if kind not in types:
        raise ConfigError(
            f"{_WHERE} has the `type` {kind!r}, which pyiceberg does not know",
            guidance=f"write one of {', '.join(types)}",
        )
    return AVAILABLE_CATALOGS[CatalogType(kind)](name, dict(properties))


class LostMetadata(ConfigError):
    """The catalog has a table whose metadata file does not exist."""


class TakenName(ConfigError):
    """The catalog has something by the name of a table that is no Iceberg table."""


def find_table(opened: OpenCatalog, identifier: tuple[str, ...], connection: str) -> Table | None:
    """Return the Iceberg table of a name; None if there is none.

    Args:
        connection: the connection of the table, for the error.

    Raises:
        LostMetadata: its metadata is not there.
        TakenName: the name is that of something else.
    """
    name = ".".join(identifier)
    try:
        return opened.catalog.load_table(identifier)
    except (errors.NoSuchIcebergTableError, errors.NoSuchPropertyException) as error:
        raise refuse_taken(name, first_line(error)) from None
    except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
        return None
    except FileNotFoundError as error:
        raise LostMetadata(
            f"the catalog has the Iceberg table {name}, and its metadata is gone: {first_line(error)}",
            guidance=f"if its folder was moved away, `elt publish {connection} --replace` (with "
            "the name of the stream) starts a new one; or restore the folder",
        ) from error
    except ValueError as error:
        if not str(error).startswith("Glue table is missing"):  # a view without any parameter
            raise
        raise refuse_taken(name, first_line(error)) from None


def refuse_taken(name: str, reason: str) -> TakenName:
    """Return the error for a name that is not that of an Iceberg table."""
    return TakenName(
        f"the catalog has {name}, which is no Iceberg table ({reason}): it is a view, or a table of another "
        "format, and was not changed",
        guidance="publish under another name (`namespace` of [tool.elt.iceberg], `table` of the stream), or "
        "remove it with the engine that made it. An entry of [tool.elt.catalog] in the same Glue or Hive has "
        "that name too: give it another `database`",
    )


def store_properties(lake: Location) -> dict[str, Any]:
    """Return the options of the lake's store by pyiceberg's names."""
    if lake.scheme == "abfss":
        account = (urlsplit(lake.uri).hostname or "").partition(".")[0]
        named = {_AZURE[name]: value for name, value in lake.options.items() if name in _AZURE}
        return {"adls.account-name": account, **named}
    if lake.scheme != "s3":
        return {}
    named = {_S3[name]: value for name, value in lake.options.items() if name in _S3}
    timeout = min(limit(lake.options, "request_timeout"), LIMITS["request_timeout"])
    return {
        "s3.connect-timeout": str(CONNECT_SECONDS),
        "s3.request-timeout": str(timeout),
        **({"s3.region": "us-east-1"} if "endpoint_url" in lake.options else {}),
        **named,
    }


def _as_text(value: Any) -> Any:
    """Return a property as pyiceberg expects it: everything but a table is a text."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, Mapping | list) else str(value)


def _refuse_own_files_only(properties: Mapping[str, Any]) -> None:
    """Refuse AWS S3 Tables, whose tables have only files in their own buckets.

    Raises:
        ConfigError: says which catalogs can be used.
    """
    texts = [str(properties.get(name, "")) for name in ("uri", "warehouse", "rest.signing-name")]
    if any(f"{_S3_TABLES}." in text or f":{_S3_TABLES}:" in text for text in texts) or (
        texts[2] == _S3_TABLES
    ):
        raise ConfigError(
            f"{_WHERE} is AWS S3 Tables, whose tables can have only files that S3 Tables itself stores; the "
            "lake's files are published where they are",
            guidance='publish in the Glue Data Catalog (`type = "glue"`) or in a REST catalog',
        )


_BUSY: Sequence[type[Exception]] = (
    errors.CommitStateUnknownException,
    errors.ServerError,
    errors.ServiceUnavailableError,
    errors.TooManyRequestsError,
    errors.WaitingForLockException,
    RequestException,
    ConnectionError,
    TimeoutError,
)
_REFUSED: Sequence[type[Exception]] = (
    errors.AuthorizationExpiredError,
    errors.ForbiddenError,
    errors.OAuthError,
    errors.SignError,
    errors.UnauthorizedError,
)
_LOCATION_WORDS = ("location", "bucket", "warehouse")


def explain(error: Exception, doing: str, mask: Callable[[str], str]) -> EltError:
    """Return what an error of a catalog means, with what to do; an error of this project as it is.

    Args:
        doing: what was being done, as a sentence: `the catalog was opened`.
        mask: masks the secrets of the catalog.
    """
    if isinstance(error, EltError):
        return error
    text = mask(f"{type(error).__name__}: {first_line(error)}")
    if isinstance(error, tuple(_REFUSED)):
        return ConfigError(
            f"the Iceberg catalog refused the credentials while {doing}: {text}",
            guidance=f"renew or correct them in {_WHERE}; the next sync, or `elt publish`, catches up",
        )
    if isinstance(error, tuple(_BUSY)):
        return TransientError(
            f"the Iceberg catalog did not answer while {doing}: {text}",
            guidance="the next sync, or `elt publish` once the catalog answers, catches up",
        )
    fault = translate(error, f"while {doing}")
    if fault is not None:
        fault.message, fault.detail = mask(fault.message), None
        return fault
    words = text.lower()
    if any(word in words for word in _LOCATION_WORDS):
        return ConfigError(
            f"the Iceberg catalog refused the place of the table while {doing}: {text}",
            guidance="let the catalog have tables at the root of the lake (its warehouse, its allowed "
            "locations, or the location of the namespace), or publish with another `namespace`",
        )
    return SystemFailure(
        f"the Iceberg catalog failed while {doing}: {text}",
        guidance=f"compare {_WHERE} with docs/open-lake.md; the next sync, or `elt publish`, tries it again",
    )
