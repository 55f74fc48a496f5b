"""The slices of one read of a table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from connectors.cdc.texts import RESET
from connectors.postgres.catalog import Column, Table
from connectors.postgres.config import CURSOR, PostgresConfig
from connectors.postgres.dialect import quote_name
from connectors.postgres.position import (
    Position,
    build_cursor_condition,
    build_new_rows_condition,
    load_position,
    lookback_type,
)
from connectors.postgres.session import Session
from connectors.postgres.snapshot import (
    RANGES_VERSION,
    TablePart,
    export_snapshot,
    list_parts,
)
from connectors.sdk import Checkpoint, Slice, Wait
from connectors.sdk.items import Estimate, Warn
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream


def can_resume(table: Table, configured: ConfiguredStream) -> bool:
    """Return whether a read of a table that is interrupted can go on: see `position`."""
    return configured.resumable and configured.deduplicates and bool(table.primary_key)


class TableRead:
    """One read of a table in the snapshot of a session.

    Args:
        holder: the session; it stays open until the slices are read.
        left_out: the quoted names of partitions that are not read.

    Attributes:
        snapshot: that of the session.
    """

    def __init__(
        self,
        config: PostgresConfig,
        table: Table,
        configured: ConfiguredStream,
        holder: Session,
        left_out: Collection[str] = (),
    ):
        self._config, self._table, self._configured = config, table, configured
        self._holder = holder
        self.snapshot = export_snapshot(holder)
        parts, self._warning = list_parts(holder, table, self.snapshot.block)
        if left_out and self._warning:
            raise ConfigError(
                f"{', '.join(left_out)} cannot be left out of {table.relation.quoted}: {self._warning}",
                guidance="grant it, or exclude the table",
            )
        self._parts = [part for part in parts if part.source not in left_out]
        self._can_resume = can_resume(table, configured)
        self._cursor = self._find_cursor()
        self._columns = [column.name for column in table.choose_columns(configured)]

    def slices(self, state: dict[str, Any] | None) -> Iterator[Part]:
        """Yield the slices and the states of the read.

        Raises:
            EltError: the state is not of this table or server, or the server cannot be read.
        """
        last = None if state is None else load_position(state, self.snapshot)
        is_incremental = self._configured.sync_mode == INCREMENTAL
        if last is not None and last.is_complete and not is_incremental:
            yield Checkpoint(last.to_state())  # a refresh that has read all
            return
        final = self._final_position()
        yield from self._list_warnings()
        if last is not None and last.is_complete:
            yield from self._read_new(last)
        else:
            yield from self._read_all(last)
        if is_incremental or self._can_resume:
            yield Checkpoint(final.to_state())
        yield Wait()

    def read_all(self, progress: dict[str, Any] | None) -> Iterator[Part]:
        """Yield the slices of all rows, or of those that an interrupted read has not read, and states after
        which another one can go on.

        Args:
            progress: the last of these states; None to begin.

        Raises:
            EltError: as for `slices`.
        """
        yield from self._list_warnings()
        yield from self._read_all(
            None if progress is None else load_position(progress, self.snapshot)
        )

    def _list_warnings(self) -> Iterator[Warn]:
        if self._warning:
            yield Warn(self._warning)
        yield from self._table.list_warnings(self._configured)

    def list_slices_of(self, oids: Collection[int]) -> Iterator[Slice]:
        """Yield the slices of some parts of the table.

        Raises:
            ConfigError: they cannot be read by themselves.
        """
        parts = [part for part in self._parts if part.oid in oids]
        if len(parts) < len(oids):
            raise ConfigError(
                f"partitions of {self._table.relation.quoted} were attached, and cannot be read: "
                f"{self._warning}",
                guidance=f"grant it, or {RESET}",
            )
        for part in parts:
            yield from self._list_slices(part, 0, None, None)

    def _begin(self) -> Position:
        """Return the position of a read of this snapshot."""
        snapshot = self.snapshot
        return Position(snapshot.least, snapshot.identity, timeline=snapshot.timeline)

    def _final_position(self) -> Position:
        position = self._begin()
        position.files = {part.oid: part.filenode for part in self._parts}
        if self._cursor is not None:
            position.cursor_field = self._cursor.name
            position.cursor = self._greatest(self._cursor)
        return position

    def _read_all(self, last: Position | None) -> Iterator[Part]:
        """Yield slices of all rows, or of those that an interrupted read has not read."""
        self._require_hours()
        if last is not None and not self._can_resume:
            raise ConfigError(
                "the state is of an interrupted read, which cannot go on: the stream has no key any more, or "
                "its destination does not deduplicate",
                guidance=RESET,
            )
        rows = sum(part.rows for part in self._parts)
        if rows:
            yield Estimate(rows)
        position = last or replace(self._begin(), is_complete=False)
        for part in self._parts:
            first: int | None = 0
            if last is not None and part.oid in last.pages and self._is_same(part, last):
                first = last.pages[part.oid]
                is_new = build_new_rows_condition(last.least, self.snapshot)
                yield from self._list_slices(part, 0, first, is_new)
            position.files[part.oid] = part.filenode
            if first is None:
                continue
            for part_slice in self._list_slices(part, first, None, None):
                yield part_slice
                if self._can_resume and part.has_transactions:
                    position.pages[part.oid] = part_slice.data["end"]
                    yield Checkpoint(position.to_state())

    def _read_new(self, last: Position) -> Iterator[Part]:
        """Yield slices of the rows that are new since the last read."""
        for part in self._parts:
            is_whole, condition = True, None
            if part.oid not in last.files:
                yield Warn(f"{part.source} is new since the last read, and is read in full")
            elif self._cursor is not None:
                is_whole = False
                condition = build_cursor_condition(
                    self._cursor.name,
                    self._cursor.kind,
                    last,
                    lookback=self._config.lookback,
                    part=part,
                    snapshot=self.snapshot,
                )
                if not self._is_large(part, condition):
                    yield self._slice(part, 0, None, condition, is_whole=False)
                    continue
            elif part.has_transactions:
                condition = build_new_rows_condition(last.least, self.snapshot)
            else:
                condition = "true"
            if is_whole:
                self._require_hours()
            yield from self._list_slices(part, 0, None, condition, is_whole=is_whole)

    def _require_hours(self) -> None:
        """Check that whole tables may be read now, as for a comparison."""
        self._config.limits.require_hours(f"stream {self._configured.id}")

    @staticmethod
    def _is_same(part: TablePart, last: Position) -> bool:
        """Return whether the rows of a part are still where they were, unless they have changed."""
        return part.has_transactions and last.files.get(part.oid) == part.filenode

    def _list_slices(
        self,
        part: TablePart,
        first: int,
        end: int | None,
        condition: str | None,
        *,
        is_whole: bool = True,
    ) -> Iterator[Slice]:
        """Yield slices of a range of pages. The last one has no end: pages may have come since they were
        counted, and rows of the snapshot be in them.

        Args:
            is_whole: whether the server reads the whole table for all slices.
        """
        step = max(1, (self._config.slice_megabytes << 20) // self.snapshot.block)
        last = end if end is not None else part.pages
        if last is None or self.snapshot.version < RANGES_VERSION:
            yield self._slice(part, first, end, condition, is_whole=is_whole)
            return
        while first + step < last:
            yield self._slice(part, first, first + step, condition, is_whole=is_whole)
            first += step
        yield self._slice(part, first, end, condition, is_whole=is_whole)

    def _slice(
        self, part: TablePart, first: int, end: int | None, condition: str | None, *, is_whole: bool
    ) -> Slice:
        rows = None
        if not condition and part.rows:
            pages = part.pages or 1
            rows = part.rows * (min(end or pages, pages) - min(first, pages)) // pages
        condition = " AND ".join(
            f"({clause})" for clause in (self._table.condition, condition) if clause
        )
        place = "" if not first and end is None else f" pages {first} to {end or 'the end'}"
        data = {
            "snapshot": self.snapshot.name,
            "source": part.source,
            "oid": part.oid,
            "filenode": part.filenode,
            "first": first,
            "end": end,
            "condition": condition or None,
            "columns": self._columns,
            "is_whole": is_whole,
            "is_at_replica": self._holder.is_at_replica,
        }
        return Slice(f"{part.source.removeprefix('ONLY ')}{place}", data, rows=rows)

    def _is_large(self, part: TablePart, condition: str) -> bool:
        """Return whether the server expects more rows than a slice should have."""
        if part.pages is None:
            return False
        query = f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {part.source} WHERE {condition}"
        plan = next(iter(self._holder.row(query).values()))
        rows = json.loads(plan)[0]["Plan"]["Plan Rows"]
        step = (self._config.slice_megabytes << 20) // self.snapshot.block
        return bool(rows > part.rows * step / max(part.pages, 1))

    def _find_cursor(self) -> Column | None:
        """Return the column that is the cursor; None if rows are recognized by their transaction.

        Raises:
            ConfigError: the cursor cannot be one, or there is none.
        """
        if self._configured.sync_mode != INCREMENTAL:
            return None
        if self._config.incremental != CURSOR and self._table.is_lockable:
            return None
        column = self._table.find_cursor(self._configured)
        if self._config.lookback is not None:
            lookback_type(column.kind)
        return column

    def _greatest(self, column: Column) -> str | None:
        """Return the greatest value of a cursor in the snapshot as a text; None if there is none.

        An index serves it; MAX with a FILTER would not use one.
        """
        name, kind = quote_name(column.name), column.kind
        finite = "" if kind.greatest is None else f" AND {name} < '{kind.greatest}'::{kind.orders}"
        query = (
            f"SELECT {name}::text AS value FROM {self._table.relation.quoted} "
            f"WHERE {name} IS NOT NULL{finite} ORDER BY {name} DESC LIMIT 1"
        )
        rows = self._holder.rows(query)
        return rows[0]["value"] if rows else None
