"""A table or view as a stream that is read by slices.

A session, the holder, exports a snapshot and locks the table against changes of its form and against
TRUNCATE, which would show an empty table to a snapshot that is older. Each slice is read in that snapshot,
so all of them see one state of the database. The holder ends after `Wait`, when all slices are read and
committed. If it ends before, slices that are opened later fail, and those that are open go on: none reads
another state.

What is new since a state, and why nothing is lost if a read resumes, is in `position`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any

from connectors.cdc import stream
from connectors.postgres.catalog import LSN, Column, Table
from connectors.postgres.config import CURSOR, LOG, XMIN, PostgresConfig
from connectors.postgres.dialect import NOT_FINITE
from connectors.postgres.reading import TableRead
from connectors.postgres.replica import find_written, wait_for_replay
from connectors.postgres.session import Session, open_session
from connectors.sdk import SlicedStream
from connectors.sdk.comparison import Answer, ComparisonRequest, is_narrowed
from connectors.sdk.slices import Part
from connectors.sql.limits import StatementLimit
from elt_assets.errors import TransientError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARISON, _SELECTION = "connectors.postgres.comparison", "connectors.postgres.selection"
_WAITS = "connectors.postgres.log.waits"
_CONVERSION = "connectors.sdk.columns.conversion"
"""They are imported when they are used: pyarrow is slow to import."""


class TableStream(SlicedStream):
    """The rows of a table or view.

    Attributes:
        log_cursor: the column with the number of a change in the log; None if it is not read from the log.
    """

    selects_rows = True
    log_cursor: str | None = None

    def __init__(self, config: PostgresConfig, table: Table):
        self.config = config
        self.table = table
        self.name = table.relation.name
        self.namespace = table.relation.schema
        self.json_schema = table.schema()
        self.primary_key = table.primary_key
        self.is_resumable = bool(table.primary_key) and table.is_lockable
        self.source_defined_cursor = config.incremental == XMIN and table.is_lockable
        has_cursor = config.incremental != LOG and any(c.is_ordered for c in table.columns)
        if has_cursor or self.source_defined_cursor:
            self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        if is_narrowed(configured):
            yield from import_module(_SELECTION).select_rows(self, configured)
            return
        with self.open_holder() as holder:
            read = TableRead(self.config, self.table, configured, holder)
            yield from read.slices(state)

    def compare(
        self, configured: ConfiguredStream, state: dict[str, Any] | None, request: ComparisonRequest
    ) -> Answer:
        answer: Answer = import_module(_COMPARISON).compare_table(self, configured, state, request)
        return answer

    def find_position(self) -> int | None:
        """Return what a row that is changed after a snapshot that is taken next has a greater value of, in
        the column `log_cursor`; None if the stream has no such column."""
        return None

    @property
    def source(self) -> str:
        """The table in a query that reads all its rows."""
        return f"{'ONLY ' if self.table.is_alone else ''}{self.table.relation.quoted}"

    @property
    def has_cursor(self) -> bool:
        """Whether an incremental read is by a cursor column."""
        return self.config.incremental == CURSOR or not self.table.is_lockable

    @property
    def purpose(self) -> str:
        """What is read, for errors."""
        return f"stream {self.id}"

    @contextmanager
    def open_holder(
        self, limit: StatementLimit | None = None, *, may_be_replica: bool = True
    ) -> Iterator[Session]:
        """Open the session that keeps the snapshot of a read, and the lock.

        Args:
            limit: how long its statements may take; None for that of the queries of a read.
            may_be_replica: whether it is at the replica, if there is one.
        """
        config, find_replayed = self.config, None
        is_at_replica = may_be_replica and config.replica is not None
        if is_at_replica:
            find_replayed = partial(wait_for_replay, config, find_written(config))
            config = config.find_replica()
        with open_session(
            config,
            self.purpose,
            lock=self.table.relation.quoted if self.table.is_lockable else None,
            limit=limit or self._limit_statements(),
            find_replayed=find_replayed,
        ) as holder:
            holder.is_at_replica = is_at_replica
            yield holder

    def _limit_statements(self) -> StatementLimit | None:
        return self.config.limits.limit_statements("make `slice_megabytes` smaller")

    @contextmanager
    def open_comparison(self) -> Iterator[tuple[Session, int | None]]:
        """Open the session of a comparison, within the limits.

        Yields:
            The session, and the position of `find_position` before its snapshot.
        """
        limits = self.config.limits

        @contextmanager
        def open_pair() -> Iterator[tuple[Session, int | None]]:
            advice = "name fewer `columns` in the check `source`"
            position = self.find_position()
            limit = limits.limit_statements(advice, ends_with_hours=True)
            with self.open_holder(limit) as session:
                yield session, position

        def take_lock(pair: tuple[Session, int | None], count: int) -> bool:
            return pair[0].take_reader_lock(count)

        with limits.open_reader(open_pair, take_lock, self.require_hours) as pair:
            yield pair

    def require_hours(self) -> None:
        """Check that the whole table may be read now.

        Raises:
            TransientError: it is outside of the hours of the limits.
        """
        self.config.limits.require_hours(self.purpose)

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        by_name = {column.name: column for column in self.table.columns}
        columns: list[Column] = [by_name[name] for name in data["columns"] if name in by_name]
        names, types = [c.name for c in columns], [c.type for c in columns]
        expressions = ", ".join(column.select for column in columns)
        query = f"SELECT {expressions} FROM {data['source']}{_where(data)}"
        conversion = import_module(_CONVERSION)
        with self._open_reader(data) as session:
            if data["filenode"]:
                session.execute(f"LOCK TABLE {data['source']} IN ACCESS SHARE MODE")
                file = session.row(f"SELECT pg_relation_filenode({data['oid']})::int8 AS number")
                if file["number"] != data["filenode"]:
                    raise TransientError(
                        f"stream {self.id}: the table was truncated or rewritten while it was read",
                        guidance="run it again",
                    )
            for batch in self.config.limits.pace(session.batches(query)):
                yield conversion.make_batch(
                    names, map(conversion.convert, batch.columns, types, repeat(NOT_FINITE))
                )

    def _open_reader(self, data: Mapping[str, Any]) -> AbstractContextManager[Session]:
        """Open the session that reads a slice, within the limits."""
        open_reader = partial(
            open_session,
            self.config.find_replica() if data["is_at_replica"] else self.config,
            self.purpose,
            snapshot=data["snapshot"],
            limit=self._limit_statements(),
        )
        check = self.require_hours if data["is_whole"] else _pass
        return self.config.limits.open_reader(open_reader, Session.take_reader_lock, check)


class LogStream(stream.LogStream, TableStream):
    """The rows of a table that is read from the log, and its changes."""

    cursor = log_cursor = LSN

    def find_position(self) -> int:
        position: int = import_module(_WAITS).find_position(self.config, self.table.relation)
        return position

    @property
    def column_names(self) -> Sequence[str]:
        return [column.name for column in self.table.columns]


def _pass() -> None:
    """Check nothing."""


def _where(data: Mapping[str, Any]) -> str:
    conditions = []
    if data["first"]:
        conditions.append(f"ctid >= '({data['first']},0)'::tid")
    if data["end"] is not None:
        conditions.append(f"ctid < '({data['end']},0)'::tid")
    if data["condition"] is not None:
        conditions.append(f"({data['condition']})")
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
