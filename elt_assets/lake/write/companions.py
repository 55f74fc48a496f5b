"""The tables of one stream, which are the table itself and the companions that follow it, and their owner.

All of `lake`, `pipeline` and `orchestration` have a stream's tables as `StreamTables`. `orchestration.build`
checks the claims of all connections; `pipeline.stream` and `destination.tables` refuse tables of others.

A Delta commit is atomic for one table only. So the change of a companion (the dead letter, the history) is
committed first. The table's own commit then names the companions' commits that belong to it, and makes them
all effective. If a companion has a later commit, a run died between the two commits, or the table was
restored. The companion is rolled back before the next sync begins, and `read_table` does not show such a
commit.

This holds for each commit of a companion, because the table always names one before it, or says that there is
none yet:

- While a history is off, each commit of the table names the history's last commit that belonged to it. So
  what a run left that died while the history was kept, or when it was turned on again, is rolled back.
- Where the table names none (it is new, or its history was never kept), the commit that the companion has now
  is named in a commit of the table before the companion's next one (`_record_companions`).

That the history follows the table is recorded separately: only a commit that brings the history up to date
says so. Tests: `tests/lake/test_companions.py`, `tests/lake/test_commit_model.py` (theme `histories`).

What a kill leaves, so that nothing is lost or doubled:

- COMPANIONS_RECORDED: a commit of the table that names its companions and changes no row and no state.
  `tests/lake/test_crash_points.py::test_a_first_sync_survives_a_kill_at_any_point`
- COMPANION_COMMITTED: a companion that is ahead. Readers get the commit that the table names. The next run
  rolls the companion back, and reads the records again.
  `tests/lake/test_crash_points.py::test_a_merge_survives_a_kill_at_any_point`
- COMPANION_ROLLED_BACK: the companion as the table names it. A further roll-back finds nothing to do.
  `tests/lake/test_crash_points.py::test_a_rollback_survives_a_kill_at_any_point`
- TABLE_COMMITTED: rows, companions and state, in effect since the table's own commit.
  `tests/lake/test_crash_points.py::test_a_history_that_pauses_survives_a_kill_at_any_point`

After the tables (`StreamTables`) come the checks of their owner: writers do not share a table, and do not
change a table that another one filled.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.outcome import NOTHING_PUBLISHED, Superseded
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.storage.location import Location

DEAD_LETTER_SUFFIX = "_dead_letter"
DEAD_LETTER, HISTORY = "dead_letter", "history"
NOT_KEPT = "not kept"
"""Value in place of a commit's name: the history does not follow the table."""
LEFT_AT = "history_left_at"
"""Entry beside the value `NOT_KEPT`: the name of the history's last commit that belongs to the table."""
SUFFIXES = {DEAD_LETTER: DEAD_LETTER_SUFFIX, HISTORY: HISTORY_SUFFIX}


@dataclass(frozen=True)
class CompanionChange:
    """The change that a commit of the stream makes to a companion."""

    table: Table
    schema: t.StructType
    change: TableChange
    metadata: CommitMetadata  # that of its own commit, except for `sequence` and `columns_at`
    records: int
    remade: bool = False  # the files of the change are written again if the commit is built again

    @property
    def written(self) -> Sequence[DataFile]:
        """The new files, visible and hidden."""
        return [*self.change.add, *self.metadata.list_new_hidden(self.table.metadata)]

    def publish(self) -> None:
        """Give the companion the columns of the files, and commit the change with its next sequence.

        The hidden files have columns that the companion may get only now, so the version with their columns
        is known only after that.
        """
        self.table.prepare(self.schema)
        sequence = self.table.metadata.sequence + 1
        metadata = replace(self.metadata, sequence=sequence, columns_at=self.table.version)
        self.table.commit(self.change, metadata, self.records)


def is_named(companions: Mapping[str, str | None], kind: str) -> bool:
    """Return whether a commit of the table says which commit of a companion belongs to it."""
    return companions.get(kind) != NOT_KEPT or LEFT_AT in companions


def find_named_commit(companions: Mapping[str, str | None], kind: str) -> str | None:
    """Return the commit of a companion that belongs to the table; None if there is none yet."""
    return companions.get(LEFT_AT if companions.get(kind) == NOT_KEPT else kind)


def app_id(key: Sequence[str]) -> str:
    """Return the name of an asset's transactions, which is part of the public contract."""
    return "elt:" + "/".join(key)


class StreamTables:
    """A stream's table and its companions, at one snapshot.

    Args:
        place: the root of the stream's table: a location, or a path or URI of one; the companions are next
            to it.
        app_id: identifies the writer: one stream, or one partition of it.
        history: whether the stream keeps a history.
        partition_by: the partition columns of the stream's table; the companions have none.
    """

    def __init__(
        self,
        place: str | Location,
        app_id: str,
        *,
        history: bool = False,
        partition_by: Sequence[str] = (),
    ):
        root = Location.parse(place)
        self.main = Table(root, app_id, partition_by=partition_by)
        self.companions = {
            kind: Table(root.add_suffix(suffix), f"{app_id}|{kind}")
            for kind, suffix in SUFFIXES.items()
            if history or kind != HISTORY
        }

    @property
    def metadata(self) -> CommitMetadata:
        return self.main.metadata

    @property
    def dead_letter(self) -> Table:
        return self.companions[DEAD_LETTER]

    @property
    def history(self) -> Table | None:
        return self.companions.get(HISTORY)

    @property
    def is_history_current(self) -> bool:
        """Return whether the history has followed the table up to its present commit."""
        commits, history = self.metadata.companions, self.history
        if commits is None or history is None:
            return False
        return history.exists and history.metadata.stands_for == commits.get(HISTORY)

    def is_ahead(self, kind: str) -> bool:
        """Return whether a companion has a commit that the table of its writer does not name.

        Then a run is between the two commits, or died there, or the table was restored. Each partition is a
        separate writer of the companion.
        """
        recorded = self.main.companions_by_writer
        return any(
            _is_ahead(recorded, app.removesuffix(f"|{kind}"), kind, commit)
            for app, commit in self.companions[kind].content_commits.items()
        )

    def roll_back_companions(self, run_id: str | None, only: Table | None = None) -> list[str]:
        """Roll companions back to the commits that the table names.

        Args:
            only: the companion to roll back; default: all.

        Returns:
            what was done, as messages for the log.
        """
        commits = self.metadata.companions
        if commits is None:
            if self.metadata.commit is not None or not self.metadata.sequence:
                return []  # the commit does not record its companions
            commits = {}  # restored to before the first commit
        done = []
        for kind, table in self.companions.items():
            commit = find_named_commit(commits, kind)
            is_ahead = is_named(commits, kind) and table.metadata.stands_for != commit
            if table.exists and is_ahead and only in (None, table):
                table.roll_back(commit, run_id)
                reach(Failpoint.COMPANION_ROLLED_BACK)
                done.append(
                    f"the table {table.uri} was ahead of {self.main.uri} after a run that died or a restore; "
                    "it was rolled back"
                )
        return done

    def commit(
        self,
        change: TableChange,
        metadata: CommitMetadata,
        records: int,
        companions: Sequence[CompanionChange],
        schema: t.StructType | None = None,
    ) -> None:
        """Publish the changes of the companions, then that of the table, which makes all of them effective.

        Raises:
            as `Table.commit`.
        """
        waiting = list(companions)
        follows = self.is_history_current or any(
            companion.table is self.history for companion in waiting
        )
        if waiting and not self._names_all:
            self._record_companions(metadata)
            metadata = replace(metadata, sequence=self.metadata.sequence + 1)
        try:
            if waiting:
                self.main.refuse_if_overtaken()
            while waiting:
                self._commit_companion(waiting[0])
                waiting.pop(0)
                reach(Failpoint.COMPANION_COMMITTED)
            commits = self._companion_commits(follows=follows)
            self.main.commit(change, replace(metadata, companions=commits), records, schema)
            reach(Failpoint.TABLE_COMMITTED)
        except NOTHING_PUBLISHED as error:
            # Published companions are rolled back before the next sync. No commit names the other files.
            # After Superseded the commit is built again, from the files that are not `remade`.
            for companion in waiting:
                if companion.remade or not isinstance(error, Superseded):
                    companion.table.storage.discard(companion.written)
            raise

    def _commit_companion(self, companion: CompanionChange) -> None:
        """Publish the change of a companion. If a run that has lost the table since committed to the
        companion first, undo its commit and publish again."""
        try:
            companion.publish()
        except ConcurrentSync:
            self.main.refuse_if_overtaken()
            companion.table.reopen()
            # Only this one: the companions before it have this commit's changes already.
            self.roll_back_companions(companion.metadata.run_id, only=companion.table)
            companion.publish()

    @property
    def _names_all(self) -> bool:
        """Return whether the table names a commit of each companion, so that a crash can be undone."""
        commits = self.metadata.companions
        return commits is not None and all(is_named(commits, kind) for kind in self.companions)

    def _record_companions(self, metadata: CommitMetadata) -> None:
        """Commit where the companions are, before a commit to one of them, so that a crash can be undone."""
        record = replace(
            self.metadata,
            sequence=self.metadata.sequence + 1,
            run_id=metadata.run_id,
            sync_id=metadata.sync_id,
            commit=None,
            companions=self._companion_commits(follows=False),
        )
        self.main.commit(TableChange(), record, 0)
        reach(Failpoint.COMPANIONS_RECORDED)

    def advance(self) -> None:
        """Move to the newest snapshots."""
        for table in (self.main, *self.companions.values()):
            table.advance()

    def _companion_commits(self, *, follows: bool) -> Mapping[str, str | None]:
        """Return the name of each companion's commit.

        Args:
            follows: the history is up to date with the table.
        """
        present = self.metadata.companions or {}
        commits = {kind: table.metadata.stands_for for kind, table in self.companions.items()}
        if follows:
            return commits
        if HISTORY in commits:
            left = {LEFT_AT: commits[HISTORY]}
        elif HISTORY in present and is_named(present, HISTORY):
            left = {LEFT_AT: find_named_commit(present, HISTORY)}
        else:
            left = {}
        return {**commits, HISTORY: NOT_KEPT, **left}


def _is_ahead(
    recorded: Mapping[str, Mapping[str, str | None] | None],
    writer: str,
    kind: str,
    commit: str | None,
) -> bool:
    if writer not in recorded:
        return True
    companions = recorded[writer]
    if companions is None or not is_named(companions, kind):
        return False
    return find_named_commit(companions, kind) != commit


Owner = TypeVar("Owner", bound=Hashable)


class Claims(Generic[Owner]):
    """Tables that writers have claimed, by their levels below the root of the lake.

    Names that differ only in case are the same. The companions of a table are claimed with it.
    """

    def __init__(self) -> None:
        self._owners: dict[tuple[str, ...], Owner] = {}
        self._inside: dict[tuple[str, ...], Owner] = {}
        """A writer of a table within a folder, by the folder."""

    def claim(
        self, writer: Owner, path: Sequence[str], has_history: bool
    ) -> tuple[Owner, Sequence[str]] | None:
        """Claim a table and its companions.

        Returns:
            None; or another writer and the table that both would write to, or within: nothing is claimed.
        """
        *above, name = (level.casefold() for level in path)
        folders = [tuple(above[: depth + 1]) for depth in range(len(above))]
        suffixes = ["", DEAD_LETTER_SUFFIX, *([HISTORY_SUFFIX] if has_history else [])]
        tables = [(*above, name + suffix) for suffix in suffixes]
        for owner, table in self._neighbours(tables, folders):
            if owner != writer:
                return owner, table
        self._owners |= dict.fromkeys(tables, writer)
        self._inside |= dict.fromkeys(folders, writer)
        return None

    def _neighbours(
        self, tables: Sequence[tuple[str, ...]], folders: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[Owner, Sequence[str]]]:
        for owners, paths in (
            (self._owners, tables),
            (self._inside, tables),
            (self._owners, folders),
        ):
            yield from ((owners[path], path) for path in paths if path in owners)


def check_claims(claims: Iterable[tuple[str, Sequence[str], bool]]) -> None:
    """Check that no two writers share a table, and that no table lies within another.

    Args:
        claims: for each table its writer, its levels below the root of the lake, and whether it has a
            history; its companions are claimed with it. Names that differ only in case are the same.

    Raises:
        ConfigError: names both writers and the table.
    """
    claimed = Claims[str]()
    for writer, path, has_history in claims:
        rival = claimed.claim(writer, path, has_history)
        if rival is not None:
            other, table = rival
            raise ConfigError(
                f"{other} and {writer} would both write to the table {'/'.join(table)}, or within it",
                guidance="put one of them into a separate connection with another `namespace`",
            )


def refuse_foreign(
    table: Table, owner: str, guidance: str, *, partitions_of: str | None = None
) -> None:
    """Check that a table was not filled by another writer.

    Args:
        owner: the writer, as users know it.
        guidance: what to do.
        partitions_of: the owner's `app_id` if it may have partitions, which are separate writers.

    Raises:
        ConfigError: names the other writer.
    """
    if not table.is_foreign:
        return
    writer = table.newest_writer
    if partitions_of is not None and writer is not None and writer.startswith(f"{partitions_of}|"):
        return
    whose = writer or "another program"
    raise ConfigError(
        f"the table {table.uri} was not written by {owner}, but by {whose}", guidance=guidance
    )
