"""A made-up log, which a file of SQLite has: `python -m tests.programs.logged_source VERB …`.

It shows what a database brings so that its changes are read: the state of a table, its rows by ranges of the
key, and a reader of its log. The rest is `connectors.cdc`. `tests.connectors.cdc.logged_file` writes the
files.

The table `log` has the changes of all tables, one after another: `operation` is `insert`, `update`, `delete`
or `truncate`, and `commit` at the end of each transaction. A row is an object of JSON. The config has the
`path`; `slice_rows`, the rows of a range; `window_rows`, the changes of a window; and `forgets`, whether
changes are removed that all tables have.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from connectors.cdc import reader
from connectors.cdc.changes import ChangeFiles, RowFiles, number_snapshot
from connectors.cdc.reader import LogReader, LogState, ReadScope, Snapshot, TableItems, Window
from connectors.cdc.stream import LogGroup, LogStream
from connectors.cdc.texts import RESET, RESET_ALL
from connectors.sdk import Checkpoint, Slice, SlicedStream, Source, run
from connectors.sdk.groups import GroupState
from connectors.sdk.slice_files import SliceFiles, find_slice_folder
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream, StreamId

Json = Mapping[str, Any]
Row = Sequence["str | None"]
CURSOR = "_ab_cdc_number"
_OWN = "('log', 'server')"
_INTEGER = "INTEGER"


def open_file(path: str) -> sqlite3.Connection:
    """Open a file; each statement is a transaction, if none was begun."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


class SqliteTable(SlicedStream):
    """The rows of a table, in ranges of its key."""

    is_resumable = True

    def __init__(self, config: Json, name: str):
        self._config, self.name = config, name
        with closing(self.open()) as connection:
            described = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        self.types = {column: declared for _, column, declared, _, _, _ in described}
        self.key = [column for _, column, _, _, _, place in described if place]
        self.primary_key = tuple(self.key)
        types = {name: _json_type(declared) for name, declared in self.types.items()}
        properties = {name: {"type": [kind, "null"]} for name, kind in types.items()}
        self.json_schema = {"type": "object", "properties": properties}

    def open(self) -> sqlite3.Connection:
        return open_file(self._config["path"])

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        yield Slice("all", {"after": None, "until": None})

    def list_ranges(self, after: Sequence[Any] | None) -> Iterator[Part]:
        """Yield ranges, and states after them. `after`: the last key of those that are read already."""
        key, rows = ", ".join(self.key), self._config.get("slice_rows", 100)
        while True:
            where, values = self._limit_keys(after, None)
            query = (
                f'SELECT {key} FROM "{self.name}" {where} ORDER BY {key} LIMIT 1 OFFSET {rows - 1}'
            )
            with closing(self.open()) as connection:
                until = connection.execute(query, values).fetchone()
            yield Slice(f"after {after}", {"after": after, "until": until and list(until)})
            if until is None:
                return
            after = list(until)
            yield Checkpoint({"after": after})

    def _limit_keys(
        self, after: Sequence[Any] | None, until: Sequence[Any] | None
    ) -> tuple[str, list[Any]]:
        """Return the condition of a range, and its values."""
        key = ", ".join(self.key)
        marks = ", ".join("?" for _ in self.key)
        bounds = [(sign, end) for sign, end in ((">", after), ("<=", until)) if end is not None]
        conditions = [f"({key}) {sign} ({marks})" for sign, _ in bounds]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return where, [value for _, end in bounds for value in end]

    def read_slice(self, data: Json) -> Iterator[pa.RecordBatch]:
        with closing(self.open()) as connection:
            yield self.read_rows(connection, *self._limit_keys(data["after"], data["until"]))

    def read_rows(
        self, connection: sqlite3.Connection, where: str = "", values: Sequence[Any] = ()
    ) -> pa.RecordBatch:
        """Return the rows for which a condition holds, all by default."""
        columns = ", ".join(f'"{name}"' for name in self.types)
        rows = connection.execute(f'SELECT {columns} FROM "{self.name}" {where}', values).fetchall()
        return self.build([[row[n] for row in rows] for n in range(len(self.types))])

    def build(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Return the values of the columns."""
        arrays = [
            pa.array(values, pa.int64() if declared == _INTEGER else pa.string())
            for values, declared in zip(columns, self.types.values(), strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.types))


def _json_type(declared: str) -> str:
    return "integer" if declared == _INTEGER else "string"


class LoggedTable(LogStream, SqliteTable):
    """The rows of a table, and its changes."""

    cursor = CURSOR

    @property
    def column_names(self) -> Sequence[str]:
        return list(self.types)


class Form(NamedTuple):
    """What the log says of a row: its table, and its columns at that time."""

    table: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return self.table


@dataclass(frozen=True)
class TableState(reader.TableState):
    """What is known of a table.

    Attributes:
        position: the number of the last change of the log that is in it, or was before it.
        number: the last one of its rows in `_ab_cdc_number`.
    """

    position: int
    number: int

    def to_json(self) -> dict[str, Any]:
        progress = {} if self.progress is None else {"progress": dict(self.progress)}
        numbers = {"position": self.position, "number": self.number}
        return {**numbers, "complete": self.is_complete, **progress}

    @classmethod
    def parse(cls, json: Json, shared: Json) -> TableState:
        return cls(
            int(json["position"]),
            int(json["number"]),
            progress=json.get("progress"),
            is_complete=bool(json["complete"]),
        )


class FileReader(LogReader[TableState]):
    """The read of a log in a file."""

    def __init__(self, config: Json, scope: ReadScope[LoggedTable]):
        self._config, self._scope = config, scope
        self._end = self._first = 0
        self._rows: RowFiles[Form, Row]

    def _open(self) -> sqlite3.Connection:
        return open_file(self._config["path"])

    def load(self, state_to_load: GroupState | None) -> LogState[TableState]:
        with closing(self._open()) as connection:
            ((server,),) = connection.execute("SELECT id FROM server")
            last = _read_last(connection)
            ((first,),) = connection.execute("SELECT min(number) FROM log")
            names = set(_list_tables(connection))
        self._first = last + 1 if first is None else first
        if state_to_load is None:
            return LogState({"server": server})
        log = reader.load_state(
            state_to_load,
            lambda shared: {"server": str(shared["server"])},
            TableState.parse,
            lambda stream: stream.name in names,
        )
        latest = max((table.position for table in log.tables.values()), default=0)
        if log.shared["server"] != server or latest > last:
            raise ConfigError(
                f"the log of {self._config['path']} is another one than that of the state",
                guidance=f"changes may be lost: {RESET_ALL}",
            )
        return log

    def snapshot(self, log: LogState[TableState], stream: StreamId) -> TableItems[TableState]:
        table = log.tables.get(stream)
        if table is not None and table.position + 1 < self._first:
            raise ConfigError(f"changes of {stream} were removed from the log", guidance=RESET)
        if table is None and not self._scope.members[stream].deduplicates:
            yield from self._read_at_once(stream)
        elif table is None or not table.is_complete:
            table = table or self._make_table(None)
            after = None if table.progress is None else table.progress["after"]
            parts = self._scope.streams[stream].list_ranges(after)
            yield Snapshot(table, table.number, table.number, parts, table.number)

    def _make_table(self, connection: sqlite3.Connection | None) -> TableState:
        """Return the state of a table before its rows are read."""
        number = time.time_ns() // 1_000
        if connection is not None:
            return TableState(_read_last(connection), number)
        with closing(self._open()) as own:
            return TableState(_read_last(own), number)

    def _read_at_once(self, stream: StreamId) -> TableItems[TableState]:
        """Yield the rows of a table as they are at one position of the log: ranges are read at different
        times, and the log repeats what they show already, which a stream that appends would have twice."""
        table_stream = self._scope.streams[stream]
        with (
            closing(self._open()) as connection,
            tempfile.TemporaryDirectory(dir=find_slice_folder()) as folder,
        ):
            connection.execute("BEGIN")
            table = self._make_table(connection)
            rows = table_stream.read_rows(connection)
            files = SliceFiles(Path(folder))
            files.write(stream, number_snapshot(rows, CURSOR, table.number, table.number))
            parts = [part.item for part in files.close() if isinstance(part.item, Slice)]
            yield Snapshot(table, table.number, table.number, parts, table.number, is_held=True)

    def changes(
        self, log: LogState[TableState], files: ChangeFiles
    ) -> Generator[Window, None, None]:
        tables = {name: log.tables[name] for name in files.keys}
        ids = {stream.name: stream for stream in tables}
        numbers = {stream: table.number for stream, table in tables.items()}
        columns = {stream: self._scope.streams[stream].column_names for stream in tables}
        self._rows = RowFiles(files, columns, numbers, self._build)
        self._end = min(table.position for table in tables.values())
        size = 0
        with closing(self._open()) as connection:
            query = "SELECT * FROM log WHERE number > ? AND number <= ? ORDER BY number"
            last = _read_last(connection)
            for entry in connection.execute(query, (self._end, last)):
                number, moment, name, operation, before, after = entry
                stream = ids.get(name)
                if stream is not None and number > tables[stream].position:
                    size += 1
                    files.attempt(stream, self._add, stream, moment, before, after)
                if operation == "commit":
                    self._end = number
                    if size >= self._config.get("window_rows", 100):
                        size = 0
                        self._rows.flush()
                        yield Window(is_last=number == last)
        self._rows.flush()
        quiet = self._end - min(table.position for table in tables.values())
        yield Window(is_due=quiet >= _QUIET_ENTRIES)

    def _add(self, stream: StreamId, moment: int, before: str | None, after: str | None) -> None:
        """Add a change; one that has no row truncates the table."""
        rows = [[] if text is None else [json.loads(text)] for text in (before, after)]
        if not any(rows):
            self._rows.truncate(stream, moment)
            return
        form = Form(stream.name, tuple((rows[0] + rows[1])[0]))
        old, new = ([_list_texts(row) for row in part] for part in rows)
        self._rows.add(stream, form, old, new, moment)

    def _build(
        self, stream: StreamId, form: Form, places: Sequence[int | None], rows: Sequence[Row]
    ) -> pa.RecordBatch:
        table_stream, columns = self._scope.streams[stream], []
        for (name, declared), place in zip(table_stream.types.items(), places, strict=True):
            values = [None if place is None else row[place] for row in rows]
            try:
                columns.append([int(v) if declared == _INTEGER and v else v for v in values])
            except ValueError:
                raise ConfigError(
                    f"the log has a value of {name!r} of {form} that is no integer", guidance=RESET
                ) from None
        return table_stream.build(columns)

    def move(self, stream: StreamId, table: TableState) -> TableState:
        position = max(table.position, self._end)
        return replace(table, position=position, number=self._rows.numbers[stream])

    def is_current(self) -> bool:
        return all(
            SqliteTable(self._config, stream.name).types == stream.types
            for stream in self._scope.streams.values()
        )

    def release(self, log: LogState[TableState], files: ChangeFiles) -> None:
        is_whole = self._scope.is_acknowledged and log.is_within(files.keys)
        if self._config.get("forgets") and is_whole:
            with closing(self._open()) as connection:
                connection.execute("DELETE FROM log WHERE number <= ?", (self._end,))


_QUIET_ENTRIES = 1_000


def _list_texts(row: Json) -> list[str | None]:
    return [None if value is None else str(value) for value in row.values()]


def _read_last(connection: sqlite3.Connection) -> int:
    """Return the number of the last change, also if it was removed."""
    rows = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'log'").fetchall()
    return int(rows[0][0]) if rows else 0


def _list_tables(connection: sqlite3.Connection) -> list[str]:
    query = f"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN {_OWN}"
    return [name for (name,) in connection.execute(f"{query} AND name NOT LIKE 'sqlite_%'")]


class LoggedSource(Source):
    """The tables of a file of SQLite that have a log."""

    name = "logged"

    def check(self, config: Json) -> None:
        with closing(open_file(config["path"])) as connection:
            connection.execute("SELECT id FROM server").fetchone()

    def streams(self, config: Json) -> list[LoggedTable]:
        group = LogGroup[LoggedTable](f"{__name__}:FileReader", config)
        with closing(open_file(config["path"])) as connection:
            names = _list_tables(connection)
        return [group.add(LoggedTable(config, name)) for name in names]


if __name__ == "__main__":
    sys.exit(run(LoggedSource(), sys.argv[1:]))
