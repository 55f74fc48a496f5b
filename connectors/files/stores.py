"""The file systems of locations: a local folder, S3, GCS and Azure."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from connectors.files.config import AzureOptions, FilesConfig, GcsOptions, S3Options
from elt_assets.errors import ConfigError

_BUFFER_BYTES = 4 << 20
_ABSENT = frozenset({"404", "NoSuchKey"})
_DENIED = frozenset({"401", "403", "AccessDenied"})


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


class S3Objects:
    """Objects of S3 whose keys pyarrow cannot name, described and opened with boto3. What fails is an
    `OSError`.

    A key of S3 is any text, and pyarrow's paths are names between slashes: it refuses `in//a.csv`, and takes
    `in/./a.csv` for `in/a.csv`.

    Raises:
        ConfigError: boto3 is not installed.
    """

    def __init__(self, options: S3Options):
        self._client = _open_client(options)

    def describe(self, path: str) -> fs.FileInfo:
        """Return what an object is; of the type `NotFound` if there is none."""
        try:
            answer = self._ask("head_object", path)
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)
        size, time = answer["ContentLength"], answer["LastModified"]
        return fs.FileInfo(path, fs.FileType.File, size=size, mtime=time)

    def open(self, path: str) -> BinaryIO:
        """Return the bytes of an object, which can be read at any place."""
        content = _Content(self, path, self.describe(path).size or 0)
        return io.BufferedReader(content, _BUFFER_BYTES)

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from `start` up to `end`, without the latter."""
        body = self._ask("get_object", path, Range=f"bytes={start}-{end - 1}")["Body"]
        return bytes(body.read())

    def _ask(self, operation: str, path: str, **options: Any) -> Any:
        import botocore.exceptions as failures  # noqa: PLC0415 - of the extra

        bucket, _, key = path.partition("/")
        try:
            return getattr(self._client, operation)(Bucket=bucket, Key=key, **options)
        except failures.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in _ABSENT:
                raise FileNotFoundError(code) from None
            raise (PermissionError if code in _DENIED else OSError)(str(error)) from error
        except failures.BotoCoreError as error:
            raise OSError(str(error)) from error


class _Content(io.RawIOBase):
    """The bytes of an object, read range by range."""

    def __init__(self, objects: S3Objects, path: str, size: int):
        super().__init__()
        self._objects, self._path, self._size, self._position = objects, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._position + len(buffer))
        if end <= self._position:
            return 0
        data = self._objects.read(self._path, self._position, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _open_client(options: S3Options) -> Any:
    try:
        import boto3  # noqa: PLC0415 - of the extra
        from botocore import UNSIGNED  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "keys with an empty name, `.` or `..` between slashes need boto3, which is not installed",
            guidance='run `pip install "elt-assets[aws]"`, also on the machines of a cluster; or give these '
            "objects other keys, or write a glob that does not match them",
        ) from None
    secret, token = options.secret_access_key, options.session_token
    credentials = {
        "aws_access_key_id": options.access_key_id,
        "aws_secret_access_key": secret and secret.get_secret_value(),
        "aws_session_token": token and token.get_secret_value(),
    }
    if options.role_arn:
        service = boto3.client("sts", region_name=options.region, **credentials)
        answer = service.assume_role(RoleArn=options.role_arn, RoleSessionName="elt-assets")
        assumed = answer["Credentials"]
        credentials = {
            "aws_access_key_id": assumed["AccessKeyId"],
            "aws_secret_access_key": assumed["SecretAccessKey"],
            "aws_session_token": assumed["SessionToken"],
        }
    endpoint = options.endpoint
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    # pyarrow too names the bucket of another store in the path.
    more = {"s3": {"addressing_style": "path"}} if endpoint else {}
    config = Config(signature_version=UNSIGNED if options.anonymous else None, **more)
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=options.region, config=config, **credentials
    )
