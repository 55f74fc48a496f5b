"""Where files are, on this machine or in an object store: for the lake and for staging alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_GLOB = re.compile(r"[\\{}\[\]*?]")


@dataclass(frozen=True)
class Location:
    """A folder or a file. `uri`: an absolute path, or a URI that pyarrow knows."""

    uri: str

    @classmethod
    def of(cls, written: str) -> Location:
        """A location as it is written; a relative path is one of the working directory."""
        return cls(written if "://" in written else str(Path(written).absolute()))

    def __str__(self) -> str:
        return self.uri

    def child(self, *names: str) -> Location:
        """What lies under it, level by level."""
        return Location("/".join([self.uri, *names]))

    @property
    def path(self) -> Path | None:
        """Where it is on this machine; None if it is elsewhere."""
        if "://" not in self.uri:
            return Path(self.uri)
        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def for_spark(self) -> str:
        """As Spark's writers take it, whatever its default file system is: without percent-encoding."""
        return self.uri if "://" in self.uri else f"file://{self.uri}"

    @property
    def for_spark_reader(self) -> str:
        """As Spark's readers take it: a pattern that matches this path alone."""
        return _GLOB.sub(r"\\\g<0>", self.for_spark)

    def file_system(self) -> tuple[Any, str]:
        """pyarrow's file system, and the path in it."""
        from pyarrow.fs import FileSystem  # noqa: PLC0415 - whoever only names places is spared it

        system, path = FileSystem.from_uri(self.uri)
        return system, path
