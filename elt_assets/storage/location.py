"""Locations of files, on this machine or in an object store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from elt_assets.storage import object_stores

_GLOB = re.compile(r"[\\{}\[\]*?]")


@dataclass(frozen=True)
class Location:
    """The location of a folder or a file."""

    uri: str  # an absolute path, or a URI of a supported store
    # the store's options by their bare names (see `object_stores`); they may be secrets, so the
    # text of a location does not contain them
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def parse(cls, place: str | Location, options: Mapping[str, str] | None = None) -> Location:
        """Return the location of a path or URI; a location is returned as it is.

        A relative path is relative to the working directory.

        Args:
            options: options of the store; they override those of the environment.

        Raises:
            ConfigError: the store of the URI, or an option of it, is not supported.
        """
        if isinstance(place, Location):
            return place
        if "://" not in place:
            return cls(str(Path(place).absolute()))
        if urlsplit(place).scheme == "file":
            return cls(place)
        return cls(place, object_stores.options_for(place, options or {}))

    def __str__(self) -> str:
        return self.uri

    def child(self, *names: str) -> Location:
        """Return a location below this one; `names` has one name per level."""
        return replace(self, uri="/".join([self.uri, *names]))

    def add_suffix(self, suffix: str) -> Location:
        """Return the location whose name is this one's with a suffix."""
        return replace(self, uri=f"{self.uri}{suffix}")

    @property
    def path(self) -> Path | None:
        """The path on this machine; None if the location is not on this machine."""
        if "://" not in self.uri:
            return Path(self.uri)
        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def scheme(self) -> str:
        """The scheme of the URI; empty for a path."""
        return urlsplit(self.uri).scheme if "://" in self.uri else ""

    @property
    def is_object_store(self) -> bool:
        """Return whether the location is in a store that has objects, and no folders of its own."""
        return self.scheme in object_stores.WITHOUT_FOLDERS

    @property
    def for_spark(self) -> str:
        """The URI for Spark's writers, whatever the default file system is; a path is not percent-encoded."""
        return self.uri if "://" in self.uri else f"file://{self.uri}"

    @property
    def for_spark_reader(self) -> str:
        """The glob pattern for Spark's readers that matches only this location."""
        return _GLOB.sub(r"\\\g<0>", self.for_spark)

    @property
    def for_delta(self) -> dict[str, str] | None:
        """The storage options for delta-rs; None if there are none."""
        if "://" not in self.uri or self.scheme == "file":
            return None
        return object_stores.store_of(self.uri).for_delta(self.options) or None

    def remover(self) -> Any:
        """Return delta-rs's file system with this location as its root, to remove objects by their names.

        pyarrow would leave an empty object with the name of the folder.
        """
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - only object stores need it

        return DeltaStorageHandler(self.uri, self.for_delta)

    def file_system(self) -> tuple[Any, str]:
        """Return pyarrow's file system, and the path within it.

        The file system can be pickled. Options are pickled with it; credentials of the environment are not.
        """
        if self.path is not None:
            from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 - the other methods do not need it

            return LocalFileSystem(), str(self.path)
        store, parts = object_stores.store_of(self.uri), urlsplit(self.uri)
        return store.file_system(parts, self.options), unquote(store.root(parts))
