"""Locations of files, on this machine or in an object store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_GLOB = re.compile(r"[\\{}\[\]*?]")


@dataclass(frozen=True)
class Location:
    """The location of a folder or a file. `uri`: an absolute path, or a URI that pyarrow supports."""

    uri: str

    @classmethod
    def of(cls, path_or_uri: str) -> Location:
        """Return the location of a path or URI; a relative path is relative to the working directory."""
        return cls(path_or_uri if "://" in path_or_uri else str(Path(path_or_uri).absolute()))

    def __str__(self) -> str:
        return self.uri

    def child(self, *names: str) -> Location:
        """Return a location below this one; `names` has one name per level."""
        return Location("/".join([self.uri, *names]))

    @property
    def path(self) -> Path | None:
        """The path on this machine; None if the location is not on this machine."""
        if "://" not in self.uri:
            return Path(self.uri)
        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def for_spark(self) -> str:
        """The URI for Spark's writers, whatever the default file system is; a path is not percent-encoded."""
        return self.uri if "://" in self.uri else f"file://{self.uri}"

    @property
    def for_spark_reader(self) -> str:
        """The glob pattern for Spark's readers that matches only this location."""
        return _GLOB.sub(r"\\\g<0>", self.for_spark)

    def file_system(self) -> tuple[Any, str]:
        """Return pyarrow's file system, and the path within it."""
        from pyarrow.fs import FileSystem  # noqa: PLC0415 - the other methods do not need it

        system, path = FileSystem.from_uri(self.uri)
        return system, path
