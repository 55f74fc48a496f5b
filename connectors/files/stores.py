"""The file systems of locations: a local folder, S3, GCS and Azure."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from connectors.files.config import AzureOptions, FilesConfig, GcsOptions, S3Options
from connectors.files.s3_objects import S3Objects
from elt_assets.errors import ConfigError


def split_location(location: str) -> tuple[str, str]:
    """Return the kind of store, and the path in its file system.

    Raises:
        ConfigError: the location is none.
    """
    parts = urlsplit(location)
    path = parts.path.strip("/")
    if parts.scheme not in ("", "file") and {"", ".", ".."}.intersection(path.split("/")) and path:
        raise ConfigError(
            f"the location {location!r} has a name that is empty, `.` or `..` between slashes",
            guidance="write the folder before it as `location`, and the rest in the globs: `**/*.csv`",
        )
    if parts.scheme in ("s3", "s3a", "gs", "gcs"):
        return {"s": "s3", "g": "gs"}[parts.scheme[0]], posixpath.join(parts.netloc, path).rstrip(
            "/"
        )
    if parts.scheme in ("abfs", "abfss", "az"):
        return "az", posixpath.join(parts.netloc.partition("@")[0], path).rstrip("/")
    local = parts.path if parts.scheme == "file" else location
    if "://" in local or not local.startswith("/"):
        raise ConfigError(
            f"the location {location!r} is neither an absolute path nor the address of a supported store",
            guidance="write /FOLDER, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
        )
    return "file", local.rstrip("/") or "/"


def open_file_system(config: FilesConfig) -> fs.FileSystem:
    """Return the file system of a location.

    Raises:
        ConfigError: its options are not those of a file system.
    """
    kind, _ = split_location(config.location)
    try:
        if kind == "s3":
            return _open_s3(config.s3 or S3Options.model_validate({}))
        if kind == "gs":
            return _open_gcs(config.gcs or GcsOptions.model_validate({}))
        if kind == "az":
            return _open_azure(config.azure or AzureOptions.model_validate({}), config.location)
        return fs.LocalFileSystem()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigError(
            f"the store of {config.location} cannot be opened: {error}",
            guidance="correct the options of the store",
        ) from None


def find_object_reader(config: FilesConfig) -> Callable[[], S3Objects] | None:
    """Return how the reader of keys that pyarrow cannot name is opened; None if the location is not in S3."""
    if split_location(config.location)[0] != "s3":
        return None
    return partial(S3Objects, config.s3 or S3Options.model_validate({}))


def _open_s3(options: S3Options) -> fs.FileSystem:
    scheme, _, host = (options.endpoint or "").rpartition("://")
    chosen = {
        "access_key": options.access_key_id,
        "secret_key": _plain(options.secret_access_key),
        "session_token": _plain(options.session_token),
        "region": options.region,
        "role_arn": options.role_arn,
        "endpoint_override": host or None,
        "scheme": scheme or None,
        "anonymous": options.anonymous or None,
    }
    return fs.S3FileSystem(**_drop_nulls(chosen))


def _open_gcs(options: GcsOptions) -> fs.FileSystem:
    scheme, _, host = (options.endpoint or "").rpartition("://")
    chosen = {
        "anonymous": options.anonymous or None,
        "endpoint_override": host or None,
        "scheme": scheme or None,
        "project_id": options.project_id,
        "target_service_account": options.target_service_account,
    }
    return fs.GcsFileSystem(**_drop_nulls(chosen))


def _open_azure(options: AzureOptions, location: str) -> fs.FileSystem:
    account = urlsplit(location).netloc.partition("@")[2].partition(".")[0]
    if not (options.account_name or account):
        raise ConfigError(
            f"the account of {location} is not known", guidance="set `azure.account_name`"
        )
    chosen = {
        "account_name": options.account_name or account,
        "account_key": _plain(options.account_key),
        "sas_token": _plain(options.sas_token),
        "tenant_id": options.tenant_id,
        "client_id": options.client_id,
        "client_secret": _plain(options.client_secret),
        "blob_storage_authority": options.blob_storage_authority,
        "blob_storage_scheme": options.blob_storage_scheme,
    }
    return fs.AzureFileSystem(**_drop_nulls(chosen))


def _plain(secret: Any) -> str | None:
    return None if secret is None else str(secret.get_secret_value())


def _drop_nulls(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
