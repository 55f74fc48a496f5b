"""The tables of one stream: the table itself, and its companions, which follow it.

Delta commits are atomic for one table each. So a companion (the dead letter, the history) is committed
first, and the table's own commit names the companions' commits that belong to it: the stream moves when
that commit is made. What a companion has beyond it is of a run that died in between, or was taken back with
the table: it is undone before the next sync begins, and `read_table` does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.commits import Superseded
from elt_assets.lake.delta.files import Change
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.history import SUFFIX as HISTORY_SUFFIX

DEAD_LETTER_SUFFIX = "_dead_letter"
DEAD_LETTER, HISTORY = "dead_letter", "history"
NOT_KEPT = "not kept"
"""In place of a commit's name: the stream keeps no history at present. It follows no more."""
SUFFIXES = {DEAD_LETTER: DEAD_LETTER_SUFFIX, HISTORY: HISTORY_SUFFIX}


@dataclass(frozen=True)
class CompanionChange:
    """What a commit of the stream does to a companion; `head` says what the companion's own commit says.

    `remade`: its files are made anew where the commit has to be.
    """

    table: Table
    schema: t.StructType
    change: Change
    head: CommitMetadata
    records: int
    remade: bool = False

    def publish(self) -> None:
        """Commit it, after what the table's newest head says."""
        head = replace(self.head, sequence=self.table.head.sequence + 1)
        self.table.commit(self.change, head, self.records)


def app_id(key: Sequence[str]) -> str:
    """What an asset's transactions are named, by the public contract."""
    return "elt:" + "/".join(key)


class StreamTables:
    """A stream's table and its companions, at one snapshot.

    Args:
        uri: the root of the stream's table; its companions lie beside it.
        app_id: names the writer: one stream, or one partition of it.
        history: whether the stream keeps one.
    """

    def __init__(self, uri: str, app_id: str, *, history: bool = False):
        self.main = Table(uri, app_id)
        self.companions = {
            kind: Table(f"{uri}{suffix}", f"{app_id}|{kind}")
            for kind, suffix in SUFFIXES.items()
            if history or kind != HISTORY
        }

    @property
    def head(self) -> CommitMetadata:
        return self.main.head

    @property
    def dead_letter(self) -> Table:
        return self.companions[DEAD_LETTER]

    @property
    def history(self) -> Table | None:
        return self.companions.get(HISTORY)

    @property
    def follows(self) -> bool:
        """Whether the history has followed the table to where it is."""
        told, history = self.head.companions, self.history
        if told is None or history is None:
            return False
        return history.exists and history.head.stands_for == told.get(HISTORY)

    def is_ahead(self, kind: str) -> bool:
        """Whether a companion has a commit that its writer's table does not name: a run is between the two
        commits, or died there, or the table was restored. Each partition is a writer of its own."""
        named = self.main.companions_by_writer
        return any(
            _is_ahead(named, app.removesuffix(f"|{kind}"), kind, commit)
            for app, commit in self.companions[kind].standing.items()
        )

    def settle(self, run_id: str | None) -> list[str]:
        """Take companions back to where the table says they belong.

        Returns:
            what was done, for the log.
        """
        told = self.head.companions
        if told is None:
            if self.head.commit is not None or not self.head.sequence:
                return []  # of a time, or a table, that told nothing of them
            told = {}  # restored to before the first commit
        done = []
        for kind, table in self.companions.items():
            belongs = told.get(kind)
            if table.exists and table.head.stands_for != belongs and not self._is_unfollowed(kind):
                table.roll_back(belongs, run_id)
                done.append(
                    f"the table {table.uri} was ahead of {self.main.uri}, which a run that died or a restore "
                    "left behind; it was taken back"
                )
        return done

    def commit(
        self,
        change: Change,
        head: CommitMetadata,
        records: int,
        companions: Sequence[CompanionChange],
        schema: t.StructType | None = None,
    ) -> None:
        """Publish changes of the companions, then, as what counts, of the table.

        Raises:
            as `Table.commit`.
        """
        waiting = list(companions)
        if waiting and self.head.companions is None:
            self._begin(head)
            head = replace(head, sequence=self.head.sequence + 1)
        try:
            if waiting:
                self.main.refuse_if_overtaken()
            while waiting:
                self._commit_companion(waiting[0])
                waiting.pop(0)
            told = {**(self.head.companions or {}), **self._belonging()}
            self.main.commit(change, replace(head, companions=told), records, schema)
        except (ConcurrentSync, Superseded) as error:
            # What was published is undone before the next sync; the rest nobody names.
            for each in waiting:
                if each.remade or isinstance(error, ConcurrentSync):
                    each.table.discard_files(each.change.add)
            raise

    def _commit_companion(self, each: CompanionChange) -> None:
        """Publish; if a run that has lost the table since was first there, in place of what it left."""
        each.table.prepare(each.schema)
        try:
            each.publish()
        except ConcurrentSync:
            self.main.refuse_if_overtaken()
            each.table.reopen()
            self.settle(each.head.run_id)
            each.publish()

    def _begin(self, head: CommitMetadata) -> None:
        """Tell where the companions stood before the first commit, so that a crash can be undone."""
        first = replace(
            self.head,
            sequence=self.head.sequence + 1,
            run_id=head.run_id,
            sync_id=head.sync_id,
            commit=None,
            companions=self._belonging(),
        )
        self.main.commit(Change(), first, 0)

    def advance(self) -> None:
        """Move to the newest snapshots."""
        for table in (self.main, *self.companions.values()):
            table.advance()

    def _belonging(self) -> Mapping[str, str | None]:
        """What the companions stand at; a history that is not kept any more no longer follows."""
        standing = {kind: table.head.stands_for for kind, table in self.companions.items()}
        return {HISTORY: NOT_KEPT, **standing}

    def _is_unfollowed(self, kind: str) -> bool:
        """A history that was not kept for a while is built on, not taken back."""
        return kind == HISTORY and (self.head.companions or {}).get(HISTORY) == NOT_KEPT


def _is_ahead(
    named: Mapping[str, Mapping[str, str | None] | None], writer: str, kind: str, commit: str | None
) -> bool:
    if writer not in named:
        return True
    companions = named[writer]
    return companions is not None and companions.get(kind) not in (commit, NOT_KEPT)
