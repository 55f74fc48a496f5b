"""Move a stream's tables to another path, or give them another writer: rows, companions, state and log.

Used by `orchestration.renaming`, for `elt rename`.

The table says first that it is being moved (`lake.delta.rules`). From then on no writer commits to it, not
even a run that opened it before. It says so until all its parts are at their new place, so a kill at any
point leaves tables that nobody writes to, and `move_tables` goes on with what is left:

- MOVE_BEGUN: everything is at the former place.
- WRITER_CHANGED: some writers (partitions, companions) have their new ids. A writer is continued in one
  commit with its state, so each has either the former id or the new one.
- TABLE_COPIED: of an object store, in which nothing can be moved. Entries of the log are copied from the
  newest one, which says that the table is being moved, so a reader of a part of the copy finds no table, or
  one that is being moved. They are removed from the oldest one, for the same reason.
- TABLE_MOVED: companions are moved before the table, which is what a sync opens first.

Iceberg's metadata is not moved: it names the former place, so no catalog can use it any more.

Test: `tests/lake/test_moving.py::test_a_move_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow.fs as pafs

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta import log
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.delta.log import LogEntry
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.rules import PROPERTY, Move
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import HISTORY, SUFFIXES, StreamTables
from elt_assets.storage.location import Location

ICEBERG = "_iceberg"
"""The folder of Iceberg's metadata of a table."""
ConvertState = Callable[[str], str]
"""Returns a state (JSON) as the new writer has it."""
_COPIES = 8
"""Objects that are copied or removed at the same time."""
_MAX_COPY = 5 << 30
"""Bytes that a store copies itself; a larger object goes through this machine."""
_VERSION = re.compile(r"(\d{20})\.").match


def move_tables(lake: Location, move: Move, convert: ConvertState) -> list[str]:
    """Move the tables of a stream, or finish a move that was begun.

    Args:
        convert: changes the state of each writer, if the writer changes.

    Returns:
        the new ids of the table's writers: the stream, or its partitions.

    Raises:
        ConfigError: something is at the new place already, there is nothing to move, another move has begun,
            or the table was restored and no sync has committed since. Nothing was changed.
        EltError: the store failed; calling this again goes on.
    """
    source, target = (lake.child(*place.split("/")) for place in (move.source, move.target))
    table = refuse_move(lake, move)
    begun = table.move
    if begun is None:
        table.set_move(move)
        reach(Failpoint.MOVE_BEGUN)
    if move.former != move.writer and not (begun and begun.has_new_writer):
        _change_writers(source, move, convert)
        table.advance()
        table.set_move(replace(move, has_new_writer=True))
    if source != target:
        for suffix in (*SUFFIXES.values(), ""):
            _move_folder(source.add_suffix(suffix), target.add_suffix(suffix))
            reach(Failpoint.TABLE_MOVED)
    Table(target, move.writer).set_move(None)
    return list_moved_writers(lake, move)


def refuse_move(lake: Location, move: Move) -> Table:
    """Return the table that is to be moved, at the place where it is whole; refuse a move that cannot begin.

    Raises:
        ConfigError: as `move_tables`. Nothing was changed.
    """
    source, target = (lake.child(*place.split("/")) for place in (move.source, move.target))
    table = _find_table(move, source, target)
    if table.move is None:
        _refuse_restored(table)
        if source != target:
            _refuse_occupied(target)
    return table


def list_moved_writers(lake: Location, move: Move) -> list[str]:
    """Return the ids of a moved table's writers: the stream, or its partitions."""
    moved = Table(lake.child(*move.target.split("/")), move.writer)
    return [writer for writer in moved.writers if _is_of(writer, move.writer)]


def find_ended_move(table: Table) -> Move | None:
    """Return the move whose end is the newest entry in the log of a table; None if that is anything else."""
    if not table.exists:
        return None
    newest, former = (log.read(table.storage, table.version - age) for age in (0, 1))
    if newest is None or former is None or list(list_moves(newest)) != [None]:
        return None
    return next(list_moves(former), None)


def list_moves(entry: LogEntry) -> Iterator[Move | None]:
    """Yield the move that each description of a table in an entry of its log says that it is in, or None."""
    for action in entry.actions(files=False):
        if metadata := action.get("metaData"):
            text = (metadata.get("configuration") or {}).get(PROPERTY)
            yield Move(**json.loads(text)) if text else None


def _find_table(move: Move, source: Location, target: Location) -> Table:
    """Return the stream's table, at the place where it is whole.

    Raises:
        ConfigError: it is at neither place, or another move of it has begun.
    """
    if source != target and is_table(target):
        with contextlib.suppress(ConfigError):  # a part of a copy
            table = Table(target, move.writer)
            if table.move is not None and _is_same(move, table.move):
                return table
    if not is_table(source):
        raise ConfigError(
            f"there is no table {source}", guidance="correct its name; nothing was changed"
        )
    table = Table(source, move.former)
    begun = table.move
    if begun is not None and not _is_same(move, begun):
        raise ConfigError(
            f"the table {source} is being moved from {begun.source} to {begun.target}",
            guidance=f"finish that first: write the names that it had then, and run `{begun.command}`",
        )
    return table


def _is_same(move: Move, begun: Move) -> bool:
    places = (begun.source, begun.target, begun.former, begun.writer)
    return places == (move.source, move.target, move.former, move.writer)


def _refuse_restored(table: Table) -> None:
    for writer in table.writers:
        if Table(table.storage.location, writer).metadata.restored:
            raise ConfigError(
                f"the table {table.uri} was restored, and no sync has committed since",
                guidance="write the former names again and sync the stream; then move its table",
            )


def _refuse_occupied(target: Location) -> None:
    """Refuse a new place at which anything is, also of a companion."""
    for suffix in (*SUFFIXES.values(), ""):
        place = target.add_suffix(suffix)
        if next(list_files(place), None) is not None:
            raise ConfigError(
                f"there is something at {place} already",
                guidance="move it away, or choose another name; nothing was changed",
            )


def _is_of(app_id: str, writer: str) -> bool:
    """Return whether an id is that of a writer, or of a partition or a companion of it."""
    return app_id == writer or app_id.startswith(f"{writer}|")


def _change_writers(place: Location, move: Move, convert: ConvertState) -> None:
    """Let new writers continue the commits of all former ones, in the stream's table and its companions."""
    for writer in Table(place, move.former).writers:
        if _is_of(writer, move.former):
            StreamTables(
                place, writer, history=is_table(place.add_suffix(SUFFIXES[HISTORY]))
            ).roll_back_companions(None)
    # Companions first: the table names commits by their names, which stay.
    for suffix in (*SUFFIXES.values(), ""):
        part = place.add_suffix(suffix)
        for writer in Table(part, move.former).writers if is_table(part) else ():
            if _is_of(writer, move.former):
                former = Table(part, writer)
                successor = Table(part, move.writer + writer.removeprefix(move.former))
                successor.take_over(former, _convert(former.metadata, convert))
                reach(Failpoint.WRITER_CHANGED)


def _convert(metadata: CommitMetadata, convert: ConvertState) -> CommitMetadata:
    refresh = metadata.refresh
    if refresh is not None and refresh.state is not None:
        refresh = replace(refresh, state=convert(refresh.state))
    state = None if metadata.state is None else convert(metadata.state)
    return replace(metadata, state=state, refresh=refresh)


def _move_folder(source: Location, target: Location) -> None:
    """Move all files of a table; files that are at the new place already are left there."""
    system, root = source.file_system()
    _remove_iceberg(source)
    if next(list_files(source), None) is None:
        return
    _, end = target.file_system()
    if not source.is_object_store:
        system.create_dir(end.rpartition("/")[0])
        system.move(root, end)
        return
    copied = dict(list_files(target))
    missing = [
        (name, size)
        for name, size in sorted(list_files(source), key=log_last)
        if copied.get(name) != size
    ]
    parts = [part for part in missing if not _is_of_log(part)]
    with ThreadPoolExecutor(_COPIES) as pool:
        list(pool.map(lambda part: _copy(system, root, end, part), parts))
    for part in filter(_is_of_log, missing):  # one after the other: see the order
        _copy(system, root, end, part)
    reach(Failpoint.TABLE_COPIED)
    _remove_all(source)


def _remove_iceberg(place: Location) -> None:
    metadata = place.child(ICEBERG)
    if place.is_object_store:
        for name, _ in list(list_files(metadata)):
            metadata.remover().delete_file(name)
        return
    system, root = metadata.file_system()
    if system.get_file_info(root).type == pafs.FileType.Directory:
        system.delete_dir(root)


def _copy(system: Any, root: str, end: str, part: tuple[str, int]) -> None:
    name, size = part
    if size < _MAX_COPY:
        system.copy_file(f"{root}/{name}", f"{end}/{name}")
        return
    with (
        system.open_input_stream(f"{root}/{name}") as reader,
        system.open_output_stream(f"{end}/{name}") as writer,
    ):
        shutil.copyfileobj(reader, writer, 16 << 20)


def _remove_all(place: Location) -> None:
    remover = place.remover()
    names = list(list_files(place))
    for name, _ in sorted(filter(_is_of_log, names), key=log_last, reverse=True):
        remover.delete_file(name)
    rest = [name for name, size in names if not _is_of_log((name, size))]
    with ThreadPoolExecutor(_COPIES) as pool:
        list(pool.map(remover.delete_file, rest))


def list_files(place: Location) -> Iterator[tuple[str, int]]:
    """Yield the files below a place: the path of each from there, and its size in bytes."""
    system, root = place.file_system()
    selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
    for info in system.get_file_info(selector):
        if info.type == pafs.FileType.File:
            yield info.path[len(root) + 1 :], info.size


def _is_of_log(part: tuple[str, int]) -> bool:
    return part[0].startswith(f"{LOG}/")


def log_last(part: tuple[str, int]) -> tuple[bool, int, bool]:
    """Return the order in which files are copied: those of the log last, the newest entries first, and what
    no entry is after all."""
    name = part[0].rpartition("/")[2]
    version = _VERSION(name)
    is_entry = name.endswith(".json") and version is not None
    return _is_of_log(part), -int(version[1]) if version else 1, not is_entry
