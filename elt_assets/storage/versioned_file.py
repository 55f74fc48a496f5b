"""A small file in a folder or an object store that several machines change, without losing a change.

Used by the vault (`runner.vault`).

Each version is a file of its own, whose name is its number. A version is created only if no other process has
created the same one, which file systems and stores promise. So a writer that lost a race reads the newer
version and makes its change to that one; a version that was written is never overwritten. A writer that is
killed leaves a complete version or none: a local file gets its name when its content is on the disk, and an
object appears whole.

Only the newest versions keep their content; a reader whose version lost it meanwhile looks for the newest
again. An older version stays as an empty file for a long time: a writer that read the version before it, and
was then slow, must not create it again, since its change would be below newer versions, and lost.
Test: `tests/storage/test_versioned_file.py::test_a_writer_that_is_slower_than_many_others_loses_no_change`
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from elt_assets.errors import ConfigError
from elt_assets.storage import conditional_writes
from elt_assets.storage.folders import make_private, sync_folder, write_draft
from elt_assets.storage.location import Location

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

_DIGITS = 12
_KEPT_VERSIONS = 5
"""Number of versions that keep their content, which gives a slow reader the time to read one."""
_KEPT_NAMES = 1_000
"""Number of versions that exist, most of them empty: a writer may be slower than so many others."""
_MAX_ATTEMPTS = 100
_MAX_PAUSE = 0.2
"""Maximum pause before the next attempt, in seconds."""
_CLIENT_OPTIONS = ("timeout", "connect_timeout")
_RETRIES: RetryConfig = {"max_retries": 5, "retry_timeout": dt.timedelta(seconds=60)}


@dataclass(frozen=True)
class VersionedFile:
    """A file whose versions are in a folder."""

    folder: Location  # the location of the folder, which is created with the first version

    def read(self) -> bytes | None:
        """Return the content of the newest version; None if there is none.

        Raises:
            ConfigError: the kind of the store is not supported, or it has no conditional writes.
            OSError: the store cannot be read.
        """
        return self._read_newest(self._open())[1]

    def change(self, compute: Callable[[bytes | None], bytes]) -> bytes:
        """Write a new version, computed from the newest one, and return it. It is durable on return.

        Args:
            compute: returns the new content, which is not empty. It is called again if another process was
                faster. If it returns the content that it gets, nothing is written.

        Raises:
            ConfigError: as `read`.
            OSError: the store cannot be read or written.
        """
        store = self._open()
        for _ in range(_MAX_ATTEMPTS):
            sizes, content = self._read_newest(store)
            new = compute(content)
            if new == content:
                return new
            version = max(sizes, default=0) + 1
            if store.create(_name(version), new):
                with contextlib.suppress(OSError):  # the next change does it
                    _forget_old(store, sizes, version)
                return new
            time.sleep(random.uniform(0, _MAX_PAUSE))
        raise OSError(0, f"other processes changed it {_MAX_ATTEMPTS} times at the same time")

    def remove(self) -> bool:
        """Remove all versions, the newest last; return whether there was one.

        Raises:
            ConfigError: as `read`.
            OSError: the store cannot be read or written.
        """
        store = self._open()
        names = sorted(name for name, _ in store.list_sizes() if name.isdecimal())
        for name in names:
            store.remove(name)
        return bool(names)

    def _open(self) -> _Folder | _Objects:
        path = self.folder.path
        return _Folder(path) if path is not None else _Objects.open(self.folder)

    @staticmethod
    def _read_newest(store: _Folder | _Objects) -> tuple[dict[int, int], bytes | None]:
        """Return the bytes of each version, and the content of the newest one."""
        for _ in range(_MAX_ATTEMPTS):
            sizes = {int(name): size for name, size in store.list_sizes() if name.isdecimal()}
            if not sizes:
                return sizes, None
            with contextlib.suppress(FileNotFoundError):
                if content := store.read(_name(max(sizes))):
                    return sizes, content
        raise OSError(0, "its versions are removed while they are read")


def _forget_old(store: _Folder | _Objects, sizes: dict[int, int], newest: int) -> None:
    for version, size in sizes.items():
        if version <= newest - _KEPT_NAMES:
            store.remove(_name(version))
        elif version <= newest - _KEPT_VERSIONS and size:
            store.empty(_name(version))


def _name(version: int) -> str:
    return f"{version:0{_DIGITS}}"


@dataclass(frozen=True)
class _Folder:
    """The versions in a folder of this machine."""

    path: Path

    def list_sizes(self) -> list[tuple[str, int]]:
        """Return the name of each file, with its bytes."""
        if not self.path.is_dir():
            return []
        with os.scandir(self.path) as entries:
            sizes = []
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    sizes.append((entry.name, entry.stat().st_size))
            return sizes

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def create(self, name: str, content: bytes) -> bool:
        """Create a version, and return whether it did not exist yet."""
        make_private(self.path)
        try:
            with write_draft(self.path, content) as draft:
                os.link(draft, self.path / name)
        except FileExistsError:
            return False
        sync_folder(self.path)
        return True

    def empty(self, name: str) -> None:
        with write_draft(self.path, b"") as draft:
            draft.replace(self.path / name)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Objects:
    """The versions in a folder of an object store."""

    store: ObjectStore

    @classmethod
    def open(cls, folder: Location) -> _Objects:
        """Return the versions in a location.

        Raises:
            ConfigError: the kind of the store is not supported, or it has no conditional writes.
        """
        if not folder.is_object_store:
            raise ConfigError(
                f"{folder} is in a store that has no conditional writes",
                guidance="use a path, or a URI of s3://, gs:// or abfss://",
            )
        conditional_writes.require(folder)
        return cls(_open_store(folder))

    def list_sizes(self) -> list[tuple[str, int]]:
        """Return the name of each object, with its bytes."""
        with _as_os_error():
            pages = list(self.store.list())
        return [(item["path"].rsplit("/", 1)[-1], item["size"]) for page in pages for item in page]

    def read(self, name: str) -> bytes:
        with _as_os_error():
            return bytes(self.store.get(name).bytes())

    def create(self, name: str, content: bytes) -> bool:
        """Create a version, and return whether it did not exist yet.

        A request that was answered too late may have created the version before it was repeated. Then the
        version has this content.
        """
        try:
            with _as_os_error():
                self.store.put(name, content, mode="create")
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                return self.read(name) == content
            return False
        return True

    def empty(self, name: str) -> None:
        with _as_os_error():
            self.store.put(name, b"", mode="overwrite")

    def remove(self, name: str) -> None:
        with _as_os_error():
            self.store.delete(name)


def _open_store(folder: Location) -> ObjectStore:
    from obstore import store  # noqa: PLC0415 - only what is in a store needs it

    options, parts = folder.for_delta or {}, urlsplit(folder.uri)
    prefixes = ("aws_", "azure_", "google_")
    config: Any = {name: value for name, value in options.items() if name.startswith(prefixes)}
    client: Any = {name: options[name] for name in _CLIENT_OPTIONS if name in options}
    how: Any = {"client_options": client, "retry_config": _RETRIES}
    prefix = unquote(parts.path).strip("/")
    if parts.scheme == "abfss":
        account = (parts.hostname or "").partition(".")[0]
        config = {**config, "azure_storage_account_name": account}
        return store.AzureStore(parts.username, prefix=prefix, config=config, **how)
    kind: Any = store.S3Store if parts.scheme == "s3" else store.GCSStore
    opened: ObjectStore = kind(parts.netloc, prefix=prefix, config=config, **how)
    return opened


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise the errors of the library as errors of the system."""
    from obstore import exceptions  # noqa: PLC0415

    try:
        yield
    except (exceptions.PreconditionError, exceptions.AlreadyExistsError) as error:
        raise FileExistsError from error
    except exceptions.NotFoundError as error:
        raise FileNotFoundError from error
    except exceptions.BaseError as error:
        raise OSError(0, type(error).__name__) from error
