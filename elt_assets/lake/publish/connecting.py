"""The Iceberg catalog of the settings: its properties, its connection, and what its errors mean.

`iceberg` opens it when the first table is published.

The properties are pyiceberg's. References in them are read here, when the catalog is used, and never before.
Where they do not say how files are read and written, the options of the lake's store are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pyiceberg import exceptions as errors
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NotInstalledError
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
    if kind == "rest" and "py-catalog-impl" not in properties:
        properties["py-catalog-impl"] = _REST
        properties.pop("type", None)
    try:
        catalog = load_catalog(name, **{**store_properties(lake), **properties})
    except NotInstalledError as error:
        raise ConfigError(
            f"a library of the catalog is missing: {first_line(error)}",
            guidance=f"install it: pip install 'pyiceberg[{kind}]' (of a database: 'pyiceberg[sql-sqlite]' "
            "or 'pyiceberg[sql-postgres]')",
        ) from None
    except Exception as error:  # noqa: BLE001 - of any catalog
        raise explain(error, "the catalog was opened", mask) from None
    return OpenCatalog(catalog, kind, mask)


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
