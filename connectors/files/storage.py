"""The files of a location: a local folder, or a prefix in an object store, by `pyarrow.fs`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from connectors.files.config import AzureOptions, FilesConfig, GcsOptions, S3Options
from connectors.files.globs import Glob
from connectors.files.read_files import FileVersion
from elt_assets.errors import ConfigError, EltError, TransientError

_DENIED = (
    "ACCESS_DENIED",
    "AccessDenied",
    "Permission denied",
    "INVALID_ACCESS_KEY",
    "SignatureDoes",
)
_ABSENT = ("NO_SUCH_BUCKET", "NoSuchBucket", "Bucket does not exist", "ContainerNotFound")
_BROKEN = (
    "Truncated compressed stream",
    "zlib inflate failed",
    "bz2 decompress failed",
    "ZSTD decompression failed",
    "ZSTD",
    "LZ4 decompress failed",
    "Couldn't deserialize thrift",
    "Unexpected end of stream",
    "Corrupt",
)
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".xz", ".tar.gz", ".tar.bz2", ".tar.zst")


@dataclass
class Storage:
    """The files of a location. `root`: its path in the file system."""

    config: FilesConfig
    root: str = field(init=False)
    _system: Any = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.root = _split(self.config.location)[1]

    @property
    def system(self) -> fs.FileSystem:
        """The file system, which is opened once.

        Raises:
            ConfigError: its options are not those of a file system.
        """
        if self._system is None:
            try:
                self._system = _open_system(self.config)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise ConfigError(
                    f"the store of {self.config.location} cannot be opened: {error}",
                    guidance="correct the options of the store",
                ) from None
        return self._system

    def list_files(self, globs: Iterable[Glob]) -> list[FileVersion]:
        """Return the files whose paths match a glob.

        Raises:
            EltError: the location cannot be listed.
        """
        files: dict[str, FileVersion] = {}
        for glob in globs:
            for info in self._list_folder(glob):
                path = info.path[len(self.root) :].lstrip("/")
                if info.type == fs.FileType.File and glob.matches(path):
                    files[path] = _version(path, info)
        return list(files.values())

    def _list_folder(self, glob: Glob) -> list[fs.FileInfo]:
        folder = posixpath.join(self.root, glob.folder).rstrip("/") or "/"
        try:
            if not glob.folder:
                self._require_root(folder)
            selector = fs.FileSelector(folder, allow_not_found=True, recursive=glob.is_deep)
            infos: list[fs.FileInfo] = self.system.get_file_info(selector)
        except (pa.ArrowException, OSError) as error:
            raise describe_failure(error, f"the folder {folder}") from error
        return infos

    def _require_root(self, folder: str) -> None:
        """Raise an error if a local location is no folder: an empty prefix of a store is not known to be."""
        if self.is_local and self.system.get_file_info(folder).type != fs.FileType.Directory:
            raise ConfigError(
                f"the location {self.config.location} is no folder on this machine",
                guidance="correct `location`; in a cluster, each machine needs the folder",
            )

    @property
    def is_local(self) -> bool:
        return _split(self.config.location)[0] == "file"

    def path(self, file: FileVersion) -> str:
        """Return the path of a file in the file system."""
        return posixpath.join(self.root, file.path)

    def require(self, file: FileVersion) -> None:
        """Raise an error unless a file is as it was listed.

        Raises:
            TransientError: it is gone, or was replaced.
        """
        try:
            info = self.system.get_file_info(self.path(file))
        except (pa.ArrowException, OSError) as error:
            raise describe_failure(error, f"the file {file.path}") from error
        if info.type != fs.FileType.File:
            raise TransientError(
                f"the file {file.path} is gone since it was listed",
                guidance="run the sync again: it lists the files again",
            )
        if not self._is_same(file, _version(file.path, info)):
            raise TransientError(
                f"the file {file.path} was replaced or extended since it was listed; nothing of it is kept",
                guidance="run the sync again: it reads the new version; let programs write to another name, "
                "and rename the file when it is complete",
            )

    def _is_same(self, listed: FileVersion, current: FileVersion) -> bool:
        """Return whether a file is as it was listed.

        Some stores list times with fractions of a second, and tell the time of one object without them.
        """
        unit = 1 if self.is_local else 1_000_000_000
        is_same_time = listed.modified // unit == current.modified // unit
        return is_same_time and listed.size == current.size

    @contextmanager
    def guard_read(self, file: FileVersion) -> Iterator[None]:
        """Raise an error if a file is not the same before and after its read; tell which file has errors."""
        self.require(file)
        try:
            yield
        except EltError:
            self.require(file)
            raise
        except UnicodeDecodeError as error:
            self.require(file)
            raise ConfigError(
                f"the file {file.path} cannot be read: its encoding is not {error.encoding}: {error.reason}",
                guidance="set `encoding` in the options of its format",
            ) from error
        except (pa.ArrowException, OSError) as error:
            self.require(file)
            raise describe_failure(error, f"the file {file.path}") from error
        self.require(file)

    def open_stream(self, file: FileVersion, compression: str) -> Any:
        """Return the bytes of a file, decompressed.

        Args:
            compression: that of the config.
        """
        chosen = find_compression(file.path, compression)
        return self.system.open_input_stream(self.path(file), compression=chosen)

    def open_file(self, file: FileVersion) -> Any:
        """Return a file that can be read at any place."""
        return self.system.open_input_file(self.path(file))


def find_compression(path: str, compression: str) -> str | None:
    """Return the compression of a file as pyarrow names it.

    Raises:
        ConfigError: the file is an archive.
    """
    if compression != "auto":
        return None if compression == "none" else compression
    if path.lower().endswith(_ARCHIVES):
        raise ConfigError(
            f"the file {path} is an archive, which this source does not unpack",
            guidance="unpack it; or exclude it from the glob",
        )
    return _COMPRESSIONS.get(posixpath.splitext(path.lower())[1])


def describe_failure(error: Exception, what: str) -> EltError:
    """Return an error of pyarrow for a user."""
    text = " ".join(str(error).split())
    if isinstance(error, PermissionError) or any(mark in text for mark in _DENIED):
        return ConfigError(
            f"{what} cannot be read: access is denied",
            guidance="grant the right to read and list it",
        )
    if any(mark in text for mark in _ABSENT):
        return ConfigError(f"{what} cannot be read: {text}", guidance="correct `location`")
    if isinstance(error, pa.ArrowInvalid) or any(mark in text for mark in _BROKEN):
        return ConfigError(
            f"{what} cannot be read: {text}",
            guidance="replace it by one that is whole, exclude it from the glob, or correct its options",
        )
    return TransientError(f"{what} cannot be read: {text}", guidance="try again")


def _version(path: str, info: fs.FileInfo) -> FileVersion:
    return FileVersion(info.mtime_ns or 0, path, info.size)


def _split(location: str) -> tuple[str, str]:
    """Return the kind of store, and the path in its file system.

    Raises:
        ConfigError: the location is none.
    """
    parts = urlsplit(location)
    path = parts.path.strip("/")
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


def _open_system(config: FilesConfig) -> fs.FileSystem:
    kind, _ = _split(config.location)
    if kind == "s3":
        return _open_s3(config.s3 or S3Options.model_validate({}))
    if kind == "gs":
        return _open_gcs(config.gcs or GcsOptions.model_validate({}))
    if kind == "az":
        return _open_azure(config.azure or AzureOptions.model_validate({}), config.location)
    return fs.LocalFileSystem()


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
