"""The stream of a table or a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectors.cdc import stream
from connectors.mysql.config import MySqlConfig
from connectors.mysql.cursors import CursorRead, begin, is_indexed
from connectors.mysql.reads import Division, Range, read_creation, require_creation, select
from connectors.mysql.session import Session, open_session
from connectors.mysql.sql import literal
from connectors.mysql.tables import Column, Table
from connectors.sdk import Checkpoint, Slice, SlicedStream
from connectors.sdk.items import Estimate
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

if TYPE_CHECKING:
    import pyarrow as pa


CURSOR = "_ab_cdc_cursor"
"""The field with the number of a change of the log."""


class TableStream(SlicedStream):
    """The rows of a table.

    A table with a key (its primary key, or a unique index of columns that are not nullable) is read in ranges
    of it; any other one as one slice, which cannot be resumed.
    """

    def __init__(self, config: MySqlConfig, table: Table):
        self._config = config
        self._table = table
        self.name = table.name
        self.namespace = table.database
        self.json_schema = table.schema()
        self.primary_key = table.primary_key
        self.is_resumable = table.key is not None
        if any(column.kind.is_cursor for column in table.columns):
            self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        with self._open() as session:
            created = self._require_same(session, state)
            if configured.sync_mode == INCREMENTAL:
                yield from self._read_new(session, configured, state, created)
            else:
                yield from self._refresh(session, state or {}, created)

    def _require_same(self, session: Session, state: Mapping[str, Any] | None) -> str:
        """Return when the table was created or altered.

        Raises:
            ConfigError: that was after the read whose state is given.
        """
        created = read_creation(session, self._table)
        if state is not None and state.get("created", created) != created:
            raise ConfigError(
                f"{session.purpose}: the table was altered or created again since the read "
                "that was interrupted",
                guidance="reset the stream, so that it is read from the beginning",
            )
        return created

    def _refresh(self, session: Session, state: dict[str, Any], created: str) -> Iterator[Part]:
        if not state.get("is_complete"):
            yield from self._read_all(session, state, created)
            if self._table.key is not None:
                yield Checkpoint({"is_complete": True})

    def _read_all(self, session: Session, state: dict[str, Any], created: str) -> Iterator[Part]:
        """Yield the slices of all rows, and the states after which another read can go on."""
        if self._table.rows is not None and "after" not in state:
            yield Estimate(self._table.rows)
        key = self._table.key
        if key is None:
            yield self._slice(Range("", None), created)
            return
        columns = [column for name in key.columns if (column := self._table.column(name))]
        division = Division(self._table, columns)
        if state.get("by", list(key.columns)) != list(key.columns):
            raise self._make_key_error(session)
        for part in division.ranges(session, self._config.slice_rows, state.get("after")):
            yield self._slice(part, created)
            if part.until is not None:
                progress = {"by": list(key.columns), "after": part.until, "created": created}
                yield Checkpoint(progress)

    def _read_new(
        self,
        session: Session,
        configured: ConfiguredStream,
        state: dict[str, Any] | None,
        created: str,
    ) -> Iterator[Part]:
        cursor = self._cursor(configured)
        read = begin(session, self._table, cursor, state, self._config.lookback)
        division = read.division
        if division is None:
            yield self._slice(Range(read.condition, None), created)
        else:
            if state is not None and state.get("by", _names(division)) != _names(division):
                raise self._make_key_error(session)
            yield from self._divide(session, read, division, created)
        yield Checkpoint(read.final_state())

    def _divide(
        self, session: Session, read: CursorRead, division: Division, created: str
    ) -> Iterator[Part]:
        for part in division.ranges(session, self._config.slice_rows, read.after):
            yield self._slice(part, created)
            if part.until is not None:
                yield Checkpoint(read.state_within(part.until, created))

    def _slice(self, part: Range, created: str) -> Slice:
        end = "the end" if part.until is None else ", ".join(part.until)
        rows = None if part.until is None else self._config.slice_rows
        return Slice(f"up to {end}", {"where": part.where, "created": created}, rows)

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        with self._open() as session:
            require_creation(session, self._table, data["created"])
            yield from self.read_rows(session, data["where"])
            require_creation(session, self._table, data["created"])

    def read_rows(self, session: Session, where: str = "") -> Iterator[pa.RecordBatch]:
        """Yield the rows for which a condition holds as a session sees them; all by default."""
        from connectors.mysql.convert import make_batch  # noqa: PLC0415 - `discover` needs no Arrow

        columns = self._table.columns
        names, kinds = [c.name for c in columns], [c.kind for c in columns]
        for texts in session.columns(select(self._table, where)):
            yield make_batch(names, kinds, texts)

    def has_new_data(
        self, configured: ConfiguredStream, state: dict[str, Any] | None
    ) -> bool | None:
        if configured.sync_mode != INCREMENTAL or state is None or state.get("value") is None:
            return None
        cursor = self._cursor(configured)
        if state["cursor"] != cursor.name or not is_indexed(self._table, cursor):
            return None
        if state.get("rows") is None:  # rows with the same value may have come
            return None
        condition = f"{cursor.compared} > {literal(cursor.kind, state['value'])}"
        with self._open() as session:
            query = f"SELECT 1 FROM {self._table.quoted} WHERE {condition} LIMIT 1"
            return bool(session.rows(query))

    def _open(self) -> Any:
        return open_session(self._config, f"{self.id} cannot be read from {self._config.place}")

    def _cursor(self, configured: ConfiguredStream) -> Column:
        path = configured.cursor_field or []
        column = self._table.column(path[0]) if len(path) == 1 else None
        if column is None or not column.kind.is_cursor:
            usable = [column.name for column in self._table.columns if column.kind.is_cursor]
            problem = f"{'.'.join(path)!r} cannot be its cursor" if path else "it has no cursor"
            raise ConfigError(
                f"stream {str(self.id)!r} cannot be read incrementally: {problem}",
                guidance=f"set `cursor_field` to a column that grows, of: {', '.join(usable)}",
            )
        return column

    @staticmethod
    def _make_key_error(session: Session) -> ConfigError:
        return ConfigError(
            f"{session.purpose}: the key or the index has changed since the read that was interrupted",
            guidance="reset the stream, so that it is read from the beginning",
        )


class LogStream(stream.LogStream, TableStream):
    """The rows of a table that is read from the log, and its changes."""

    cursor = CURSOR

    @property
    def columns(self) -> Sequence[Column]:
        return self._table.columns

    @property
    def column_names(self) -> Sequence[str]:
        return [column.name for column in self.columns]

    def list_ranges(self, progress: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield the slices of the table, and the states after them.

        Args:
            progress: the last state; None to begin.
        """
        with self._open() as session:
            state = None if progress is None else dict(progress)
            yield from self._read_all(session, state or {}, self._require_same(session, state))


def _names(division: Division) -> list[str]:
    return [column.name for column in division.columns]
