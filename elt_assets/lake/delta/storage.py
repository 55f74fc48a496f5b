"""The Parquet files under a table's root, and the statistics that a commit contains about them.

Each `Table` has a `TableStorage`. The modules of `lake` give files to each other as `DataFile` and
`TableChange`; `orchestration.checks` gets those of a sync.

Visible files are under `data/`. Files that belong to the table and are invisible to readers are under
`_elt/` (`HIDDEN`), which the vacuum of other engines ignores.

A kill at FILE_UNNEEDED or FOLDER_UNNEEDED leaves files that no reader needs: files are removed only when that
is certain. The next vacuum removes what is left.
`tests/lake/test_crash_points.py::test_a_vacuum_survives_a_kill_at_any_point`,
`tests/lake/test_crash_points.py::test_a_replay_survives_a_kill_at_any_point`

`TableStorage` reads, writes and removes the files; `FooterStatistics` finds the statistics of those that have
none in the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from elt_assets.errors import SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.worker.parquet import read_values
from elt_assets.lake.worker.statistics import select_logged, statistics
from elt_assets.storage.location import Location
from elt_assets.storage.staging import clean_up

VISIBLE = "data"
HIDDEN = "_elt"
DOCUMENTS = "_files"
"""The folder of the documents that rows name: see `lake.write.documents`."""
TARGET_ROWS = 1_000_000
"""Maximum number of rows of a file. A merge rewrites that many for one key."""
TARGET_BYTES = 64 << 20
MAX_BYTES = 2 * TARGET_BYTES
"""Maximum size of a file, in bytes. It exceeds the target, so that rows that compress worse when they are
rewritten still fit into one file."""
UNFINISHED = ".tmp"
"""Suffix of a file that is written before it gets its name."""
ALLOW_REMOVAL = (
    "let this user remove files there (in a store `s3:DeleteObject`, or what it calls that)"
)
"""What to do if a file cannot be removed."""
_READERS = 8
"""Footers that are read at the same time: each may be a request to an object store."""
_MAX_REFUSED = 3
"""Files that could not be removed, after which no further one is tried."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table: `path` is relative to the table's root, `size` is in bytes."""

    path: str
    size: int
    records: int  # the number of rows; 0 in a snapshot whose log has no count
    # Delta's statistics of the file, as JSON; empty if the file comes from a snapshot.
    stats: str = field(default="", compare=False)
    # The values of the table's partition columns in all rows, as Delta's log has them.
    partition: Mapping[str, str | None] = field(default_factory=dict, compare=False)

    @property
    def is_own(self) -> bool:
        """Return whether this project wrote the file; another engine does not know its folders."""
        return self.path.startswith((f"{VISIBLE}/", f"{HIDDEN}/"))

    @property
    def part(self) -> tuple[str | None, ...]:
        """The values of the partition columns; files with different ones are never combined."""
        return tuple(self.partition[name] for name in sorted(self.partition))

    def add(self, *, moved: bool = False) -> AddAction:
        """Return the log action that adds the file. `moved`: its rows were in the table before."""
        stats = select_logged(self.stats, self.records)
        return AddAction(self.path, self.size, dict(self.partition), _now(), not moved, stats)

    def remove(self, *, moved: bool = False, erased: bool = False) -> RemoveAction:
        """Return the log action that removes the file.

        Args:
            moved: its rows stay in the table.
            erased: rows of it are erased, so the action has none of its partition values.
        """
        values = {} if erased else dict(self.partition)
        return RemoveAction(self.path, not moved, _now(), self.size, values)


@dataclass(frozen=True)
class TableChange:
    """The files that a commit adds to a table and removes from it."""

    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()


def to_json(files: Iterable[DataFile]) -> str:
    """Return a list of files as JSON for a commit's metadata, without statistics."""
    return json.dumps(
        [
            [file.path, file.size, file.records, *(["", file.partition] if file.partition else [])]
            for file in files
        ]
    )


def from_json(text: str | None) -> tuple[DataFile, ...]:
    """Return the files of a list that `to_json` wrote; none for None."""
    return tuple(DataFile(*values) for values in json.loads(text or "[]"))


class TableStorage:
    """The storage of one table.

    Args:
        location: the table's root: a location, or a path or URI of one.
    """

    def __init__(self, location: str | Location):
        self.location = Location.parse(location)
        self.uri = self.location.uri
        self.system, self.root = self.location.file_system()

    def locate(self, file: DataFile) -> str:
        """Return the path of a file in the file system."""
        return f"{self.root}/{file.path}"

    @staticmethod
    def new_folder(kind: str = VISIBLE) -> str:
        """Return the path of a new folder for one write, relative to the root. It is not created."""
        return f"{kind}/{uuid.uuid4().hex}"

    def keep_only(self, folder: str, paths: Collection[str]) -> None:
        """Remove the files below a folder that are not among `paths`."""
        with clean_up(f"{self.uri}/{folder}"):
            self.discard(DataFile(path, 0, 0) for path in self._below(folder) if path not in paths)

    def files_in_folder(self, folder: str) -> list[DataFile]:
        """Return the Parquet files that a Spark job wrote to a folder. Files without rows are removed."""
        paths = [path for path in self._below(folder) if path.endswith(".parquet")]
        files = self.describe(paths)
        empty = set(paths) - {file.path for file in files}
        self.discard(DataFile(path, 0, 0) for path in empty)
        return files

    def refuse_lost(self, paths: Collection[str]) -> None:
        """Refuse to continue from a version of which vacuum has removed files.

        Raises:
            SystemFailure: names the files.
        """
        infos = self.system.get_file_info([f"{self.root}/{path}" for path in sorted(paths)])
        lost = [info.path for info in infos if info.type == pafs.FileType.NotFound]
        if lost:
            raise SystemFailure(
                f"the table {self.uri} was restored to a version of which {len(lost)} files no longer exist, "
                f"such as {lost[0]}: they are older than the retention of vacuum",
                guidance="restore the stream's table to a newer version, within the retention; or refresh "
                "the stream, after you have moved its history and its dead letter away",
            )

    def read_text(self, path: str) -> str | None:
        """Return the text of a file by its path under the root; None if there is no such file."""
        try:
            with self.open_path(path) as source:
                return str(source.read().decode())
        except FileNotFoundError:
            return None

    def write_text(self, path: str, text: str) -> None:
        """Write a text file by its path under the root; its folder is created."""
        self._write(path, text.encode())

    def replace_file(self, path: str, content: bytes) -> None:
        """Write a file, whole or not at all, by its path under the root, also if there is one.

        A kill may leave a second file beside it on a disk, whose name ends with `UNFINISHED`.
        """
        if self.location.is_object_store:  # an object appears whole
            self._write(path, content)
            return
        new = f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}{UNFINISHED}"
        self._write(new, content)
        self.system.move(f"{self.root}/{new}", f"{self.root}/{path}")

    def _write(self, path: str, content: bytes) -> None:
        target = f"{self.root}/{path}"
        if not self.location.is_object_store:
            self.system.create_dir(target.rpartition("/")[0])
        with self.system.open_output_stream(target) as sink:
            sink.write(content)

    def modification_time(self, path: str) -> int:
        """Return when a file under the root was written (epoch milliseconds)."""
        return int(self.system.get_file_info(f"{self.root}/{path}").mtime_ns // 1_000_000)

    def create_text(self, path: str, text: str) -> None:
        """Create a text file on this machine, whole or not at all, by its path under the root.

        A kill may leave a second file beside it, whose name ends with `UNFINISHED`.

        Raises:
            FileExistsError: the file exists.
            OSError: the file was not created.
        """
        new = f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}{UNFINISHED}"
        try:
            self.write_text(new, text)
            os.link(f"{self.root}/{new}", f"{self.root}/{path}")
        finally:
            with clean_up(f"{self.uri}/{new}"):
                self._delete(new)

    def size(self, path: str) -> int:
        """Return the bytes of a file under the root."""
        return int(self.system.get_file_info(f"{self.root}/{path}").size)

    def exists(self, path: str) -> bool:
        """Return whether there is a file with this path under the root."""
        info = self.system.get_file_info(f"{self.root}/{path}")
        return bool(info.type == pafs.FileType.File)

    def open_path(self, path: str) -> Any:
        """Open a file for reading by its path under the root."""
        return self.system.open_input_file(f"{self.root}/{path}")

    def describe(self, paths: Iterable[str]) -> list[DataFile]:
        """Return files with row counts and statistics from their footers. Files without rows are left out."""
        with ThreadPoolExecutor(_READERS) as pool:
            files = list(pool.map(self._describe_file, paths))
        return [file for file in files if file.records]

    def have_values(self, paths: Iterable[str], column: str) -> bool:
        """Return whether one of some files has a value in a column, or may have one by its footer."""
        with ThreadPoolExecutor(_READERS) as pool:
            return any(pool.map(lambda path: self._has_values(path, column), paths))

    def _has_values(self, path: str, column: str) -> bool:
        with self.open_path(path) as source:
            footer = pq.read_metadata(source)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                if chunk.path_in_schema == column:
                    has_count = chunk.statistics is not None and chunk.statistics.has_null_count
                    if not has_count or chunk.statistics.null_count < group.num_rows:
                        return True
        return False

    def add_statistics(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return files with their statistics, which are read from the footers where they are missing."""
        files_by_path = {file.path: file for file in files if file.stats}
        read = self.describe(file.path for file in files if not file.stats)
        files_by_path |= {file.path: file for file in read}
        return [files_by_path[file.path] for file in files]

    def _describe_file(self, path: str) -> DataFile:
        with self.open_path(path) as source:
            size, footer = source.size(), pq.read_metadata(source)
        stats = statistics(footer) if footer.num_rows else ""
        return DataFile(path, size, footer.num_rows, stats, read_values(footer))

    def discard(self, files: Iterable[DataFile]) -> int:
        """Remove files that no commit refers to, and their folders if they are then empty.

        A file that cannot be removed stays, with a warning. After a few of them, all others stay too: a store
        that refuses them answers each request late.

        Returns:
            the number of files that are gone.
        """
        gone = refused = 0
        folders = set()
        for file in files:
            if refused == _MAX_REFUSED:
                break
            folders.add(file.path.rpartition("/")[0])
            reach(Failpoint.FILE_UNNEEDED)
            refused += 1
            with clean_up(f"{self.uri}/{file.path}"):
                self._delete(file.path)
                gone, refused = gone + 1, refused - 1
        if not self.location.is_object_store:
            for folder in folders:
                selector = pafs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
                with clean_up(f"{self.uri}/{folder}"):
                    if not self.system.get_file_info(selector):
                        self.discard_folder(folder)
        return gone

    def discard_folder(self, folder: str) -> None:
        """Remove a folder and all files below it. What cannot be removed stays, with a warning."""
        reach(Failpoint.FOLDER_UNNEEDED)
        with clean_up(f"{self.uri}/{folder}"):
            if self.location.is_object_store:
                self.discard(DataFile(path, 0, 0) for path in self._below(folder))
            else:
                self.system.delete_dir(f"{self.root}/{folder}")

    def list_folder(self, folder: str) -> list[Any]:
        """Return pyarrow's information about the files in a folder; none if there is no such folder."""
        selector = pafs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
        infos = self.system.get_file_info(selector)
        return [info for info in infos if info.type == pafs.FileType.File]

    def _below(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder."""
        selector = pafs.FileSelector(f"{self.root}/{folder}", allow_not_found=True, recursive=True)
        infos = self.system.get_file_info(selector)
        start = len(self.root) + 1
        return [info.path[start:] for info in infos if info.type == pafs.FileType.File]

    @cached_property
    def _remover(self) -> Any:
        return self.location.remover()

    def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.location.is_object_store:
                self._remover.delete_file(path)
            else:
                self.system.delete_file(f"{self.root}/{path}")


def _now() -> int:
    return int(time.time() * 1000)


_KEYS = {"min": "minValues", "max": "maxValues", "null_count": "nullCount"}


class FooterStatistics:
    """The statistics of one table's files that have none in the log, from their footers.

    The log has only the number of rows of a file with a column that has no true bound (`worker.statistics`:
    NaN, an infinity). Which partition such a file contains, and whether its versions are closed, is in its
    footer: it is read once in the life of a `Table`, and only for such files.
    """

    def __init__(self, storage: TableStorage):
        self._storage = storage
        self._statistics: dict[str, Mapping[str, Any]] = {}

    def complete(
        self, actions: pa.Table, logged: pa.ChunkedArray, kind: str, column: Sequence[str]
    ) -> pa.ChunkedArray:
        """Return a statistic of each file, with those of the footers where the log has none of the file.

        Args:
            actions: the files, as `commits.add_actions` returns them.
            logged: the statistic of each file in the log.
            kind: `min`, `max` or `null_count`.
            column: the column, whose bounds are taken from footers only if they are texts or integers.
        """
        paths = _list_bare(actions)
        if not paths or not bool(
            pa.types.is_null(logged.type)
            or pa.types.is_integer(logged.type)
            or pa.types.is_string(logged.type)
            or pa.types.is_large_string(logged.type)
        ):
            return logged
        for file in self._storage.describe(path for path in paths if path not in self._statistics):
            self._statistics[file.path] = json.loads(file.stats or "{}")
        from_footers = {
            path: _find(self._statistics.get(path), (_KEYS[kind], *column)) for path in paths
        }
        values = logged.to_pylist()
        for row, path in enumerate(actions.column("path").to_pylist()):
            if type(from_footers.get(path)) in (str, int):
                values[row] = from_footers[path]
        type_ = None if pa.types.is_null(logged.type) else logged.type
        return pa.chunked_array([pa.array(values, type_)])


def _list_bare(actions: pa.Table) -> list[str]:
    """Return the paths of this project's files that have no statistics of columns in the log."""
    names = [name for name in actions.schema.names if name.startswith("null_count.")]
    paths = actions.column("path")
    if names:
        has_counts = reduce(pc.or_, (pc.is_valid(actions.column(name)) for name in names))
        paths = paths.filter(pc.invert(has_counts))
    return [path for path in paths.to_pylist() if DataFile(path, 0, 0).is_own]


def _find(statistics: Any, path: Sequence[str]) -> Any:
    for name in path:
        statistics = statistics.get(name) if isinstance(statistics, Mapping) else None
    return statistics
