"""The state of a stream of files: which versions of which files have been read.

A version of a file is its path, its time of modification and its size. No file is missed or doubled:

- Files are read in the order of their times (and paths). `before` is a position in this order: every file
  before it has been read. `recent` has an entry for each file at or after it that has been read. So a file is
  new exactly if it is not before `before`, and has no entry.
- `before` only moves over files that have been read, and never beyond the *settled* time: the time at which
  the files were listed, less the look-back window. A file before that time was in the list, if it became
  visible within the window after its time of modification. So a file that appears late, with an older time,
  is still after `before`, and is read.
- Up to `KEEP` files have an entry whatever their age. So in a folder of fewer files than that there is no
  limit on how late a file may appear: `before` does not move at all.
- The state has at most `LIMIT` entries, also for a million files: files after the settled time for which
  there is no place are not read yet. They are before the settled time of a later sync.
- A file that was changed has another time or size, and is read again as a whole. One that is gone keeps its
  entry while that is recent, so it is not read again if it comes back unchanged.
- A time in the future is after the settled time, so it moves nothing.

A file that is replaced within the resolution of its store's times (S3: a second) by one of the same size
cannot be told from it; so a file is looked at before and after its read (`storage.Storage.require`). No ETag
is part of a version: pyarrow's file systems give none.

`tests/connectors/files/test_read_files.py` holds these sentences against a model.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from elt_assets.errors import ConfigError

KEEP = 5_000
"""Number of files that have an entry whatever their age."""
LIMIT = 50_000
"""Maximum number of entries; more than `KEEP`."""
_ENTRY = struct.Struct("<qQ")
Entry = tuple[int, int]
"""The time of modification of a file, and a hash of its path and size."""
Position = tuple[int, str]


@dataclass(frozen=True, order=True)
class FileVersion:
    """A version of a file. `modified`: in nanoseconds since 1970. `path`: relative to the location."""

    modified: int
    path: str
    size: int

    @property
    def position(self) -> Position:
        return self.modified, self.path

    @property
    def entry(self) -> Entry:
        digest = blake2b(f"{self.size}:{self.path}".encode(), digest_size=8).digest()
        return self.modified, int.from_bytes(digest, "big")


@dataclass(frozen=True)
class ReadFiles:
    """Which files have been read. `before`: all before this position; None: it has not moved yet.

    `origin`: the location and the globs.
    """

    origin: str
    before: Position | None = None
    recent: frozenset[Entry] = frozenset()

    def __contains__(self, file: FileVersion) -> bool:
        is_before = self.before is not None and file.position < self.before
        return is_before or file.entry in self.recent

    def to_json(self) -> dict[str, Any]:
        packed = b"".join(_ENTRY.pack(*entry) for entry in sorted(self.recent))
        return {
            "version": 1,
            "origin": self.origin,
            "before": None if self.before is None else list(self.before),
            "recent": base64.b64encode(packed).decode(),
        }


def read_state(state: dict[str, Any] | None, origin: str) -> ReadFiles:
    """Return the files that have been read according to a state.

    Raises:
        ConfigError: the state is none of this source; or older files may match only the present globs, which
            could not be told from those that have been read.
    """
    if not state:
        return ReadFiles(origin)
    try:
        earlier, before, recent = _parse_state(state)
    except (KeyError, TypeError, ValueError, IndexError, struct.error):
        raise ConfigError(
            "the state is none of a stream of files",
            guidance="reset the state: all files are read again",
        ) from None
    if before is not None and earlier != origin:
        raise ConfigError(
            f"the state is about {earlier}, and not {origin}: older files could not be told from those that "
            "have been read",
            guidance="refresh the stream, or give the new files a stream of their own",
        )
    return ReadFiles(origin, before, recent)


def _parse_state(state: dict[str, Any]) -> tuple[str, Position | None, frozenset[Entry]]:
    if state["version"] != 1:
        raise ValueError("another version")
    before = None
    if state["before"] is not None:
        modified, path = state["before"]
        before = (int(modified), str(path))
    packed = base64.b64decode(state["recent"], validate=True)
    return str(state["origin"]), before, frozenset(_ENTRY.iter_unpack(packed))


@dataclass
class ReadProgress:
    """The read of the files that are new since a state.

    Args:
        state: what has been read before.
        listed: the files that match now.
        settled: the time, in nanoseconds, before which no other files will appear.
        limit: the maximum number of entries; None for no limit.

    Attributes:
        pending: the files to read, in their order.
        deferred: files that are left to a later read.
    """

    state: ReadFiles
    listed: Iterable[FileVersion]
    settled: int
    keep: int = KEEP
    limit: int | None = LIMIT
    pending: Sequence[FileVersion] = field(init=False)
    deferred: Sequence[FileVersion] = field(init=False, default=())
    _floor: Position | None = field(init=False)

    def __post_init__(self) -> None:
        files = list(self.listed)
        new = sorted(file for file in files if file not in self.state)
        self._floor = self._find_floor(new)
        if self.limit is not None:
            entries = self.state.recent
            used = sum(1 for entry in entries if self._is_recent(entry[0], ""))
            first = next((n for n, f in enumerate(new) if self._is_recent(*f.position)), len(new))
            room = first + max(self.limit - used, 0)
            new, self.deferred = new[:room], new[room:]
        self.pending = new

    def after(self, count: int) -> ReadFiles:
        """Return the state when the first `count` pending files have been read."""
        before = self._floor
        if count < len(self.pending) and before is not None:
            before = min(before, self.pending[count].position)
        if self.state.before is not None:
            before = self.state.before if before is None else max(before, self.state.before)
        limit = (-(1 << 63), "") if before is None else before
        recent = {entry for entry in self.state.recent if entry[0] >= limit[0]}
        recent.update(file.entry for file in self.pending[:count] if file.position >= limit)
        return ReadFiles(self.state.origin, before, frozenset(recent))

    def _find_floor(self, new: Sequence[FileVersion]) -> Position | None:
        """Return the position up to which all files will have been read, and need no entry."""
        times = sorted([entry[0] for entry in self.state.recent] + [file.modified for file in new])
        if len(times) <= self.keep:
            return self.state.before
        # The files of one time all have an entry, or none: there may be a million of them.
        floor = (min(times[len(times) - self.keep - 1] + 1, self.settled), "")
        return floor if self.state.before is None else max(floor, self.state.before)

    def _is_recent(self, modified: int, path: str) -> bool:
        if self._floor is None:
            return True
        return (modified, path) >= self._floor
