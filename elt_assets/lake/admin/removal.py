"""What a stream has in the lake, and its removal: the table with its states, its companions, all documents.

`orchestration.removal` lists and removes the tables of streams, for `elt remove`.

A table says first that it is being removed (`lake.delta.rules`), so no writer commits to it any more, not
even a run that opened it before. What a kill leaves, so that `remove_tables` goes on with the rest:

- REMOVAL_BEGUN: everything is there, and nobody writes to it.
- TABLE_REMOVED: companions are removed before the table, by which they are found. Of each, the log goes
  first, without which there is no table: a reader never finds one that lacks some of its files. Only the
  entry that says that the table is being removed goes at the end, so that what is left is known by it
  (`is_being_removed`).

Files that are not of a table stay, and are named.
Test: `tests/lake/test_removal.py::test_a_removal_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.admin.moving import ICEBERG, list_files, list_moves, log_last
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.delta.log import read
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.rules import Move
from elt_assets.lake.delta.storage import DOCUMENTS, HIDDEN, VISIBLE, TableStorage
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import SUFFIXES
from elt_assets.lake.write.erasures import FOLDER as ERASURES
from elt_assets.storage.location import Location

_OWN = (LOG, VISIBLE, HIDDEN, DOCUMENTS, ICEBERG, ERASURES)
"""The folders of a table."""
_KINDS = {DOCUMENTS: "documents", ERASURES: "erasures"}
"""The folders that are parts of their own, with their kinds."""
_ENTRY = re.compile(r"\d{20}\.json")
_REMOVERS = 8
"""Objects that are removed at the same time."""


@dataclass(frozen=True)
class StoredPart:
    """A part of what a stream has in the lake."""

    kind: str
    """`table`, `history`, `dead_letter`, `documents` or `erasures`."""
    place: str
    """The URI of its table."""
    files: int
    size: int
    """In bytes."""


def list_parts(place: Location) -> list[StoredPart]:
    """Return what is at the place of a stream's table and of its companions, each with its size."""
    parts: list[StoredPart] = []
    for kind, suffix in {"table": "", **SUFFIXES}.items():
        root = place.add_suffix(suffix)
        files = [(name, size) for name, size in list_files(root) if _is_own(name)]
        kinds: dict[str, list[int]] = {}
        for name, size in files:
            kinds.setdefault(_KINDS.get(name.partition("/")[0], kind), []).append(size)
        parts += [StoredPart(own, root.uri, len(sizes), sum(sizes)) for own, sizes in kinds.items()]
    return parts


def remove_tables(place: Location, writer: str, command: str) -> list[str]:
    """Remove the table of a stream, and its companions; call it again to finish a removal.

    Args:
        place: the root of the table.
        writer: the id of the stream in transactions.
        command: what a user runs to finish the removal.

    Returns:
        the URIs of files below these places that are of no table, and stay.

    Raises:
        ConfigError: the table is being moved. Nothing was removed.
        EltError: the store failed; calling this again goes on.
    """
    _begin(place, writer, command)
    others: list[str] = []
    for suffix in (*SUFFIXES.values(), ""):
        others += remove_folder(place.add_suffix(suffix))
        reach(Failpoint.TABLE_REMOVED)
    return others


def is_being_removed(place: Location, writer: str) -> bool:
    """Return whether the table of a stream is being removed from a place, also if it cannot be opened any
    more."""
    last = read_last_move(place)
    return last is not None and last[1].is_removal and last[1].writer == writer


def read_last_move(place: Location) -> tuple[int, Move] | None:
    """Return the move that the newest entry of a log says the table to be in, and the version of that entry;
    None if it says none. The log may have lost all other entries."""
    names = [name for name, _ in list_files(place.child(LOG)) if _ENTRY.fullmatch(name)]
    version = max((int(name.partition(".")[0]) for name in names), default=-1)
    entry = read(TableStorage(place), version) if names else None
    moves = [] if entry is None else [move for move in list_moves(entry) if move is not None]
    return (version, moves[0]) if moves else None


def _begin(place: Location, writer: str, command: str) -> None:
    if not is_table(place):
        return
    try:
        table = Table(place, writer)
    except ConfigError:  # a part of a table, or a damaged one
        return
    move = table.move
    if move is not None and not move.is_removal:
        raise ConfigError(
            f"the table {place} is being moved from {move.source} to {move.target}",
            guidance=f"finish that first: `{move.command}`; nothing was removed",
        )
    if move is None:
        table.set_move(Move(place.uri, "", writer, writer, command))
    reach(Failpoint.REMOVAL_BEGUN)


def remove_folder(place: Location) -> list[str]:
    """Remove the files of a table, those of its log first; return the URIs of others, which stay."""
    files = list(list_files(place))
    own = [file for file in files if _is_own(file[0])]
    if own:
        logs = [file for file in own if file[0].startswith(f"{LOG}/")]
        names = [name for name, _ in sorted(logs, key=log_last, reverse=True)]
        entries = [name for name in names if _ENTRY.fullmatch(name.removeprefix(f"{LOG}/"))]
        _delete(place, [name for name in names if name not in entries[-1:]], 1)
        _delete(place, [name for name, _ in own if not name.startswith(f"{LOG}/")], _REMOVERS)
        _delete(place, entries[-1:], 1)
    others = [name for name, _ in files if not _is_own(name)]
    if not others and place.path is not None:
        system, root = place.file_system()
        if place.path.is_dir():
            system.delete_dir(root)
    return [place.child(name).uri for name in others]


def remove_empty_folders(lake: Location, levels: Sequence[str]) -> None:
    """Remove the folders above a removed table in which nothing is left; a store has no folders."""
    if lake.path is None:
        return
    for depth in range(len(levels) - 1, 0, -1):
        with contextlib.suppress(OSError):  # there is something in it, or no such folder
            lake.path.joinpath(*levels[:depth]).rmdir()


def _delete(place: Location, names: Sequence[str], at_once: int) -> None:
    if not names:
        return
    system, root = place.file_system()

    def delete(name: str) -> None:
        system.delete_file(f"{root}/{name}")

    remove = place.remover().delete_file if place.is_object_store else delete
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(remove, names))


def _is_own(name: str) -> bool:
    return name.partition("/")[0] in _OWN and "/" in name
