"""The files of a stream that a read has to read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from connectors.sdk.files.globs import Glob, parse_glob
from connectors.sdk.files.options import FileStreamConfig
from connectors.sdk.files.read_files import LIMIT, FileVersion, ReadProgress, read_state
from connectors.sdk.files.storage import Storage
from connectors.sdk.items import Warn
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream


@dataclass
class FileListing:
    """The files that match the globs of a stream. `look_back`: how late a file may appear, in seconds."""

    stream: FileStreamConfig
    storage: Storage
    look_back: int
    _globs: list[Glob] = field(init=False)

    def __post_init__(self) -> None:
        self._globs = [parse_glob(pattern) for pattern in self.stream.globs]

    def begin(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> ReadProgress:
        """Return the read of the files that are new since a state.

        Raises:
            EltError: the location cannot be listed, or the state is none of this stream.
        """
        origin = f"{self.storage.location}: {' '.join(self.stream.globs)}"
        earlier = read_state(state, origin)
        # Before the list: a file that is not in it became visible later.
        settled = time.time_ns() - self.look_back * 1_000_000_000
        limit = LIMIT if configured.sync_mode == INCREMENTAL else None
        return ReadProgress(earlier, self.storage.list_files(self._globs), settled, limit=limit)

    def list_newest(self) -> list[FileVersion]:
        """Return all files, the newest first."""
        return sorted(self.storage.list_files(self._globs), reverse=True)

    def no_file(self, guidance: str) -> ConfigError:
        """Return the error of a stream without files."""
        return ConfigError(
            f"stream {self.stream.name!r}: no file of {self.storage.location} matches "
            f"{' or '.join(map(repr, self.stream.globs))}",
            guidance=guidance,
        )

    def warn_of_deferred(self, progress: ReadProgress) -> Warn:
        """Return the warning that files are left to a later sync."""
        return Warn(
            f"{len(progress.deferred):,} of the newest files are left to a later sync: the state has place "
            f"for {LIMIT:,} files within `look_back_seconds` ({self.look_back})"
        )
