"""The Parquet files under a table's root: what they hold, and what of them a commit says.

Visible files lie under `data/`; those that belong to the table and are in no reader's list
(`HIDDEN`) under `_elt/`, where other engines' vacuum does not look.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from elt_assets.lake.schema.metadata_columns import PARTITION
from elt_assets.storage.location import Location

VISIBLE = "data"
HIDDEN = "_elt"
INDEXED = 32
"""How many columns, from the first, a commit tells the bounds of: Delta's own convention. Besides, of the
partition, wherever it stands: it says which files hold what."""
_READERS = 8
"""Footers read at a time: each may be a request to an object store."""
LONGEST_BOUND = 256
"""Characters. A longer text is no bound: one that was cut would have to be rounded up."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file under the table's root: `path` relative to it, `size` in bytes.

    `stats`: Delta's per-file statistics, as JSON; empty where the file comes from a snapshot.
    """

    path: str
    size: int
    records: int
    stats: str = field(default="", compare=False)

    def add(self, *, moved: bool = False) -> AddAction:
        """`moved`: its rows were in the table before."""
        stats = self.stats or json.dumps({"numRecords": self.records})
        return AddAction(self.path, self.size, {}, _now(), not moved, stats)

    def remove(self, *, moved: bool = False) -> RemoveAction:
        """`moved`: its rows stay in the table."""
        return RemoveAction(self.path, not moved, _now(), self.size, {})


@dataclass(frozen=True)
class Change:
    """The files that a commit adds to a table and removes from it."""

    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()


def to_json(files: Iterable[DataFile]) -> str:
    """A list of files for a commit's metadata."""
    return json.dumps([[file.path, file.size, file.records] for file in files])


def from_json(text: str | None) -> tuple[DataFile, ...]:
    return tuple(DataFile(*each) for each in json.loads(text or "[]"))


class Files:
    """The storage of one table.

    Args:
        uri: the table's root, a local path or a URI that pyarrow knows.
    """

    def __init__(self, uri: str):
        self.place = Location.of(uri)
        self.uri = self.place.uri
        self.system, self.root = self.place.file_system()

    def locate(self, file: DataFile) -> str:
        """The file's whole URI."""
        return f"{self.uri}/{file.path}"

    @staticmethod
    def new_folder(kind: str = VISIBLE) -> str:
        """A folder of one write's own, relative to the root."""
        return f"{kind}/{uuid.uuid4().hex}"

    def in_folder(self, folder: str) -> list[DataFile]:
        """The Parquet files that a Spark job wrote there; those without rows are removed."""
        selector = pafs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
        names = [info.base_name for info in self.system.get_file_info(selector)]
        paths = [f"{folder}/{name}" for name in names if name.endswith(".parquet")]
        found = self.describe(paths)
        empty = set(paths) - {file.path for file in found}
        self.discard(DataFile(path, 0, 0) for path in empty)
        return found

    def open(self, file: DataFile) -> Any:
        """A file to be read: of pyarrow's, a context manager."""
        return self._open(file.path)

    def read_text(self, path: str) -> str | None:
        """Return the text of a file by its path under the root; None if there is no such file."""
        try:
            with self._open(path) as source:
                return str(source.read().decode())
        except FileNotFoundError:
            return None

    def write_text(self, path: str, text: str) -> None:
        """Write a text file by its path under the root; its folder is created."""
        target = f"{self.root}/{path}"
        self.system.create_dir(target.rpartition("/")[0])
        with self.system.open_output_stream(target) as sink:
            sink.write(text.encode())

    def _open(self, path: str) -> Any:
        return self.system.open_input_file(f"{self.root}/{path}")

    def describe(self, paths: Iterable[str]) -> list[DataFile]:
        """What the footers of files say; files without rows are left out."""
        with ThreadPoolExecutor(_READERS) as pool:
            found = list(pool.map(self._described, paths))
        return [file for file in found if file.records]

    def with_statistics(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return files with their statistics, which are read from the footers where they are missing."""
        known = {file.path: file for file in files if file.stats}
        read = self.describe(file.path for file in files if not file.stats)
        known |= {file.path: file for file in read}
        return [known[file.path] for file in files]

    def _described(self, path: str) -> DataFile:
        with self._open(path) as source:
            size, footer = source.size(), pq.read_metadata(source)
        return DataFile(path, size, footer.num_rows, _stats(footer) if footer.num_rows else "")

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove files that no commit names, with their folders once empty."""
        folders = set()
        for file in files:
            folders.add(file.path.rpartition("/")[0])
            with contextlib.suppress(FileNotFoundError):
                self.system.delete_file(f"{self.root}/{file.path}")
        for folder in folders:
            self._discard_if_empty(folder)

    def discard_folder(self, folder: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.system.delete_dir(f"{self.root}/{folder}")

    def _discard_if_empty(self, folder: str) -> None:
        selector = pafs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
        if not self.system.get_file_info(selector):
            self.discard_folder(folder)


def _now() -> int:
    return int(time.time() * 1000)


# --- statistics -------------------------------------------------------------------------------------


def _stats(footer: pq.FileMetaData) -> str:
    """Delta's statistics from a file's footer: exact bounds, or none."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for index in range(footer.num_columns):
        path = footer.row_group(0).column(index).path_in_schema.split(".")
        if "list" in path or (index >= INDEXED and path != [PARTITION]):
            continue
        found = [
            footer.row_group(at).column(index).statistics for at in range(footer.num_row_groups)
        ]
        if all(one is not None and one.has_null_count for one in found):
            _put(nulls, path, sum(one.null_count for one in found))
        bounds = _bounds_or_none([one for one in found if one is None or one.num_values])
        if bounds is not None:
            _put(least, path, bounds[0])
            _put(most, path, bounds[1])
    told = {"minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps({"numRecords": footer.num_rows, **told})


def _bounds_or_none(found: Sequence[Any]) -> tuple[Any, Any] | None:
    """None, too, where Python knows no such time (a year 0, or 10000 once rounded up)."""
    try:
        return _bounds(found)
    except (OverflowError, ValueError):
        return None


def _bounds(found: Sequence[Any]) -> tuple[Any, Any] | None:
    if not found or not all(one is not None and one.has_min_max for one in found):
        return None
    least = _bound(min(one.min for one in found), up=False)
    most = _bound(max(one.max for one in found), up=True)
    return None if least is None or most is None else (least, most)


def _bound(value: Any, *, up: bool) -> Any:
    """A value as Delta's statistics write it. Times have milliseconds there: rounded outwards."""
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, str):
        return value if len(value) <= LONGEST_BOUND else None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) and value else None  # the sign of a zero is not told
    if isinstance(value, dt.datetime):
        rest = value.microsecond % 1000
        value += dt.timedelta(microseconds=(1000 - rest) % 1000 if up else -rest)
        zone = "" if value.tzinfo is None else "Z"
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
    return value.isoformat() if isinstance(value, dt.date) else None


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
