"""Move all tables of a lake to another root: from a disk to a store, between stores, or to another folder.

Used by the command `elt move`.

The former lake stays as it is, but nobody writes to it any more. The steps, each of which `relocate` does
again for what is left:

1. The files of all tables are copied while syncs go on: they never change, only the log grows.
2. Each table says that it is being moved (`lake.delta.rules`), a stream's table before its companions. From
   then on no run commits to it, not even one that opened it before. A kill at MOVE_BEGUN leaves that.
3. What was written meanwhile is copied, and at the end the log, from its newest entry, which says that the
   table is being moved: so a part of a copy is no table, or one that nobody writes to.
4. The copy is compared with the former table: each file by its size (or its checksum), each entry of the log
   by its text, and each file that the log names must be there. A kill at TABLE_COPIED leaves that.
5. The copy is a table like any other (TABLE_RELOCATED), companions before the stream's table. The former
   table stays closed, so no sync with the former setting writes to it, and the two never differ in silence.

Iceberg's metadata is not copied, since it names the former place: the copy is published again.

Until the setting names the new root, `reopen` goes back. The former tables are removed by `remove_former`.
Test: `tests/lake/test_relocation.py::test_a_relocation_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.admin.moving import ICEBERG, list_files, log_last
from elt_assets.lake.admin.removal import read_last_move, remove_empty_folders, remove_folder
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.rules import Move
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import SUFFIXES
from elt_assets.storage import conditional_writes
from elt_assets.storage.location import Location

_COPIES = 8
"""Files that are copied at the same time."""
_BLOCK = 4 << 20
_READER = ""
"""The id of no writer: only the log is looked at."""
Sizes = dict[str, int]
"""The bytes of files, by their paths below a table's root."""
Report = Callable[[str], object]


@dataclass(frozen=True)
class LakeContents:
    """What is below the root of a lake."""

    tables: dict[str, Sizes] = field(default_factory=dict)
    """The files of each table, by its path below the root."""
    others: tuple[str, ...] = ()
    """The paths of files that belong to no table."""

    @property
    def order(self) -> list[str]:
        """The tables, companions after the tables of streams."""
        return sorted(self.tables, key=lambda name: (self.main_of(name) != name, name))

    def main_of(self, name: str) -> str:
        """Return the table of whose stream a table is a companion; itself if it is none."""
        mains = (name.removesuffix(suffix) for suffix in SUFFIXES.values() if name.endswith(suffix))
        return next((main for main in mains if main in self.tables), name)


def list_contents(root: Location) -> LakeContents:
    """Return the tables below a root, with their files."""
    files = dict(list_files(root))
    mark = f"/{LOG}/"
    roots = {name.partition(mark)[0] for name in files if mark in name and name.endswith(".json")}
    tables: dict[str, Sizes] = {name: {} for name in roots}
    others = []
    for name, size in files.items():
        parts = name.split("/")
        above = ("/".join(parts[:end]) for end in range(1, len(parts)))
        table = next((path for path in above if path in roots), None)
        if table is None:
            others.append(name)
        else:
            tables[table][name.removeprefix(f"{table}/")] = size
    return LakeContents(tables, tuple(others))


def relocate(
    source: Location, target: Location, command: str, *, checksums: bool = False, report: Report
) -> LakeContents:
    """Move the tables of a lake to another root, or go on with that; the former files stay.

    Args:
        command: what a user runs to finish the move.
        checksums: compare all files by their contents.
        report: gets what has been done.

    Returns:
        what there is to move.

    Raises:
        ConfigError: a table cannot be moved, or something else is at its new place. Nothing was changed.
        SystemFailure: a copy differs, or a file that the log names is lost. The former tables stay closed.
        EltError: a store failed; calling this again goes on.
    """
    conditional_writes.require(target)
    contents = list_contents(source)
    waiting = [name for name in contents.order if not _is_relocated(source, target, name, command)]
    _refuse_other_lake(source, target, contents)
    for name in waiting:
        copied = _copy_files(source.child(*name.split("/")), target.child(*name.split("/")))
        report(f"{name}: {copied:,} files copied")
    for name in waiting:
        place, new = (root.child(*name.split("/")) for root in (source, target))
        table = Table(place, _READER)
        if table.move is None:
            table.set_move(Move(place.uri, new.uri, _READER, _READER, command))
        reach(Failpoint.MOVE_BEGUN)
    for name in reversed(waiting):
        place, new = (root.child(*name.split("/")) for root in (source, target))
        _copy_files(place, new)
        _copy_log(place, new)
        verify_copy(place, new, checksums=checksums)
        reach(Failpoint.TABLE_COPIED)
    for name in reversed(waiting):
        Table(target.child(*name.split("/")), _READER).set_move(None)
        reach(Failpoint.TABLE_RELOCATED)
        report(f"{name}: moved to {target.child(name)}")
    return contents


def _is_relocated(source: Location, target: Location, name: str, command: str) -> bool:
    """Return whether a table has been moved already.

    Raises:
        ConfigError: it is being moved elsewhere, or something else is at its new place.
    """
    place, new = (root.child(*name.split("/")) for root in (source, target))
    table = Table(place, _READER)
    move = table.move
    if move is not None and move.target != new.uri:
        raise ConfigError(
            f"the table {place} is being moved from {move.source} to {move.target or 'nowhere'}",
            guidance=f"finish that first: `{move.command}`; or go back: `elt move --cancel`",
        )
    if move is None:
        table.refuse_unwritable()
    if move is not None and is_table(new):
        with contextlib.suppress(ConfigError):  # a part of a copy
            copy = Table(new, _READER)
            return copy.id == table.id and copy.move is None
    if move is None and is_table(new):
        raise ConfigError(
            f"there is a table at {new} already",
            guidance=f"move it away, or choose another root; nothing was changed by `{command}`",
        )
    return False


def _refuse_other_lake(source: Location, target: Location, contents: LakeContents) -> None:
    """Refuse to begin a move to a root that has other tables: the next move would take them along."""
    others = sorted(set(list_contents(target).tables) - set(contents.tables))
    if others and not any(_find_move(source, name) for name in contents.order):
        raise ConfigError(
            f"{target} has {len(others)} tables of another lake, such as {target.child(others[0])}",
            guidance=f"choose a folder of its own, such as {target.child('lake')}; nothing was changed",
        )


def _find_move(root: Location, name: str) -> Move | None:
    return Table(root.child(*name.split("/")), _READER).move


def _copy_files(source: Location, target: Location) -> int:
    """Copy the files of a table but for its log, those that are not there yet; return how many."""
    present = dict(list_files(target))
    missing = [
        name
        for name, size in list_files(source)
        if not name.startswith((f"{LOG}/", f"{ICEBERG}/")) and present.get(name) != size
    ]

    def copy(name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # a vacuum has removed it
            copy_file(source, target, name)

    with ThreadPoolExecutor(_COPIES) as pool:
        list(pool.map(copy, missing))
    return len(missing)


def _copy_log(source: Location, target: Location) -> None:
    files = [file for file in list_files(source) if file[0].startswith(f"{LOG}/")]
    present = dict(list_files(target.child(LOG)))
    for name, size in sorted(files, key=log_last):  # one after the other: see the order
        if present.get(name.removeprefix(f"{LOG}/")) != size:
            copy_file(source, target, name)


def copy_file(source: Location, target: Location, name: str) -> None:
    """Copy a file to another file system; on a disk it has its name only when it is whole."""
    system, root = source.file_system()
    other, end = target.file_system()
    path = f"{end}/{name}"
    draft = path if target.is_object_store else f"{path}.part"
    if not target.is_object_store:
        other.create_dir(path.rpartition("/")[0])
    with (
        system.open_input_stream(f"{root}/{name}") as reader,
        other.open_output_stream(draft) as writer,
    ):
        shutil.copyfileobj(reader, writer, _BLOCK)
    if draft != path:
        other.move(draft, path)


def verify_copy(source: Location, target: Location, *, checksums: bool) -> None:
    """Compare a copy of a table, which is still closed, with the table.

    Raises:
        SystemFailure: names the first file that differs, or that the log names and is not there.
    """
    files, copies = dict(list_files(source)), dict(list_files(target))
    files = {name: size for name, size in files.items() if not name.startswith(f"{ICEBERG}/")}
    compared = [name for name in files if checksums or name.startswith(f"{LOG}/")]
    wrong = [name for name, size in files.items() if copies.get(name) != size]
    with ThreadPoolExecutor(_COPIES) as pool:
        digests = [
            list(pool.map(lambda name, place=place: _digest(place, name), compared))
            for place in (source, target)
        ]
    wrong += [name for name, *both in zip(compared, *digests, strict=True) if both[0] != both[1]]
    if wrong:
        raise SystemFailure(
            f"{len(wrong)} files of the copy {target} differ from those of {source}, such as {wrong[0]}",
            guidance="remove the copies of these files, and run the command again",
        )
    table = Table(target, _READER)
    lost = [file.path for file in table.files if copies.get(file.path) != file.size]
    if lost:
        raise SystemFailure(
            f"the table {source} names {len(lost)} files that are not there or have another size, such as "
            f"{lost[0]}",
            guidance="restore these files from a backup of the lake, and run the command again; or go back "
            "with `elt move --cancel`",
        )


def _digest(place: Location, name: str) -> str:
    system, root = place.file_system()
    digest = hashlib.sha256()
    with system.open_input_stream(f"{root}/{name}") as reader:
        while block := reader.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def find_target(source: Location) -> Location | None:
    """Return the root to which a lake is being moved, or was moved; None if it is not."""
    for name in list_contents(source).order:
        move = _find_move(source, name)
        if move is not None and move.is_of_lake:
            return Location.parse(move.target.removesuffix(f"/{name}"))
    return None


def reopen(source: Location, *, report: Report) -> int:
    """Let syncs write to the tables of a lake again that were to be moved; return how many there are.

    Raises:
        ConfigError: a copy has commits that the table does not have. Nothing was changed.
    """
    closed: list[Table] = []
    for name in list_contents(source).order:
        table = Table(source.child(*name.split("/")), _READER)
        move = table.move
        if move is None or not move.is_of_lake:
            continue
        _refuse_continued(table, move)
        closed.append(table)
    for table in reversed(closed):
        table.set_move(None)
        report(f"{table.uri}: open again")
    return len(closed)


def _refuse_continued(table: Table, move: Move) -> None:
    target = Location.parse(move.target)
    copy = Table(target, _READER) if is_table(target) else None
    # The commit that opened the copy is one more.
    if copy is not None and copy.id == table.id and copy.version > table.version + 1:
        raise ConfigError(
            f"the copy {target} has commits that {table.uri} does not have",
            guidance=f"use the lake with the copy; or remove {target} if what it has since is not needed",
        )


def remove_former(former: Location, lake: Location, *, report: Report) -> Sequence[str]:
    """Remove the former tables of a lake, each of whose copies is whole in the present one.

    Returns:
        the URIs of files that belong to no table, and stay.

    Raises:
        ConfigError: a table was not moved to the present lake, or is not there. Nothing was removed.
    """
    contents = list_contents(former)
    for name in contents.order:
        place, new = (root.child(*name.split("/")) for root in (former, lake))
        _refuse_unmoved(place, new)
    others: list[str] = [former.child(name).uri for name in contents.others]
    for name in reversed(contents.order):
        others += remove_folder(former.child(*name.split("/")))
        reach(Failpoint.TABLE_REMOVED)
        report(f"{name}: removed")
    # By the names of the copies: a run that was killed may have removed the last table of a folder.
    for name in list_contents(lake).order if former.path is not None else ():
        remove_empty_folders(former, name.split("/"))
    return others


def _refuse_unmoved(place: Location, new: Location) -> None:
    closing = read_last_move(place)  # also of a table that was removed in part
    copy = Table(new, _READER) if is_table(new) else None
    is_moved = closing is not None and closing[1].target == new.uri
    if not is_moved or closing is None or copy is None or copy.version <= closing[0]:
        raise ConfigError(
            f"the table {place} has not been moved to {new}",
            guidance="move it with `elt move --to`, or remove it yourself; nothing was removed",
        )
    sizes = dict(list_files(new))
    missing = [file.path for file in copy.files if file.path not in sizes]
    if missing:
        raise ConfigError(
            f"the table {new} lacks files that it names, such as {missing[0]}",
            guidance="copy them from the former table; nothing was removed",
        )
