"""Tables of SQLite, read by slices and by cursors, and interrupted anywhere."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sdk import Checkpoint, ConfigError, Slice
from connectors.sdk.arrow_records import page_of
from connectors.sdk.slices import SlicedStream
from elt_assets.protocol.catalog import ConfiguredStream
from tests.connectors.sql.sources import Sqlite

Json = dict[str, Any]
SLOW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Database:
    """A file of SQLite, and a reader of one of its tables that keeps rows and states."""

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[Json] = []
        self.state: Json | None = None

    def execute(self, sql: str, values: Sequence[Sequence[Any]] = ()) -> None:
        with sqlite3.connect(self.path) as connection:
            if values:
                connection.executemany(sql, values)
            else:
                connection.executescript(sql)
        connection.close()

    def open(self, name: str, **config: Any) -> SlicedStream:
        source = Sqlite()
        streams = {s.name: s for s in source.open({"path": str(self.path), **config})}
        stream = streams[name]
        assert isinstance(stream, SlicedStream)
        return stream

    def read(
        self, name: str, cursor: str | None = None, *, stop: int | None = None, **config: Any
    ) -> list[Json]:
        """Read what is new, up to some items if `stop` is given; keep what a state covers."""
        stream = self.open(name, **config)
        waiting: list[Json] = []
        new: list[Json] = []
        for number, item in enumerate(stream.slices(configure(stream, cursor), self.state)):
            if number == stop:
                break
            if isinstance(item, Slice):
                data = msgspec.json.decode(msgspec.json.encode(item.data))
                for batch in stream.read_slice(data):
                    waiting += page_of(batch, stream.json_schema).records
            elif isinstance(item, Checkpoint):
                self.state = msgspec.json.decode(msgspec.json.encode(item.state))
                new, waiting = new + waiting, []
        self.rows += new
        return new


def configure(stream: SlicedStream, cursor: str | None) -> ConfiguredStream:
    body: Json = {"stream": msgspec.json.decode(stream.describe().to_json())}
    body |= {"sync_mode": "incremental" if cursor else "full_refresh"}
    body |= {"destination_sync_mode": "append", "cursor_field": [cursor] if cursor else None}
    return ConfiguredStream.from_json(msgspec.json.encode(body))


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], Database]:
    def make_database(sql: str) -> Database:
        path = tmp_path / "test.db"
        path.unlink(missing_ok=True)
        database = Database(path)
        database.execute(sql)
        return database

    return make_database


KEYS = {
    "id INTEGER PRIMARY KEY": st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.none()),
    "a TEXT NOT NULL, b INT NOT NULL, PRIMARY KEY (a, b)": st.tuples(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers(-9, 9)
    ),
    "a TEXT, b INT, PRIMARY KEY (a, b)": st.tuples(
        st.none() | st.text("ab", max_size=2), st.none() | st.integers(-2, 2)
    ),
    "a TEXT PRIMARY KEY": st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.none()),
    "a TEXT COLLATE NOCASE NOT NULL PRIMARY KEY": st.tuples(
        st.sampled_from("aBcDeFgHi"), st.none()
    ),
}


@pytest.mark.parametrize("key", list(KEYS))
@SLOW
@given(data=st.data())
def test_a_table_is_read_once_however_often_the_read_is_interrupted(
    make: Callable[[str], Database], key: str, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(KEYS[key], unique=True, max_size=20))
    database = make(f"CREATE TABLE t (v TEXT, {key})")
    names = ["a", "b"] if "b INT" in key else [key.split()[0]]
    marks = ", ".join("?" * len(names))
    database.execute(
        f"INSERT INTO t ({', '.join(names)}) VALUES ({marks})", [row[: len(names)] for row in rows]
    ) if rows else None
    for _ in range(data.draw(st.integers(0, 3))):
        database.read("t", stop=data.draw(st.integers(0, 9)))
    database.read("t")
    keys = [tuple(row[name] for name in names) for row in database.rows]
    assert sorted(keys, key=repr) == sorted((row[: len(names)] for row in rows), key=repr)
    database.rows.clear()
    assert database.read("t") == []


@SLOW
@given(data=st.data())
def test_a_cursor_loses_no_row_that_comes_later_with_a_greater_or_the_same_value(
    make: Callable[[str], Database], data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(["INTEGER", "TEXT"]))
    values = st.integers(1, 9) if kind == "INTEGER" else st.sampled_from("abcdefg")
    database = make(f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {kind})")
    least: Any = None
    count = 0
    for _ in range(data.draw(st.integers(1, 4))):
        new = data.draw(st.lists(values, max_size=6))
        new = [value for value in new if least is None or value >= least]
        database.execute(
            "INSERT INTO t VALUES (?, ?)", [(count + n, v) for n, v in enumerate(new)]
        ) if (new) else None
        count += len(new)
        least = max([*new, *([] if least is None else [least])], default=None)
        if data.draw(st.booleans()):
            database.read("t", "c", stop=data.draw(st.integers(0, 5)))
        database.read("t", "c")
    assert {row["id"] for row in database.rows} == set(range(count))
    assert database.read("t", "c") == []


def test_a_first_read_has_rows_without_a_value_and_a_lookback_has_late_ones(
    make: Callable[[str], Database],
) -> None:
    database = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES (1, NULL), (2, 10)"
    )
    assert [row["id"] for row in database.read("t", "n")] == [1, 2]
    database.execute("INSERT INTO t VALUES (3, 6), (4, 11)")
    assert [row["id"] for row in database.read("t", "n", lookback=4)] == [2, 3, 4]
    assert database.read("t", "n") == []


@pytest.mark.parametrize(("kind", "values"), [("INT", (0, 1)), ("TEXT", ("", "a"))])
def test_a_value_that_python_takes_for_nothing_is_a_bound(
    make: Callable[[str], Database], kind: str, values: tuple[Any, Any]
) -> None:
    """meltano/sdk#3050: with 0 as the state, all rows are read again."""
    database = make(f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {kind})")
    database.execute("INSERT INTO t VALUES (?, ?)", [(1, values[0]), (2, None)])
    assert len(database.read("t", "c")) == 2
    database.execute("INSERT INTO t VALUES (?, ?)", [(3, values[1]), (4, values[0])])
    assert [row["id"] for row in database.read("t", "c")] == [1, 3, 4]


def test_a_text_of_a_time_that_is_past_is_read_once(make: Callable[[str], Database]) -> None:
    database = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at DATETIME);"
        "INSERT INTO t VALUES (1, '2020-01-01 10:00:00'), (2, '2999-01-01 10:00:00')"
    )
    assert len(database.read("t", "at")) == 2
    assert [row["id"] for row in database.read("t", "at")] == [2]
    database.execute("DELETE FROM t WHERE id = 2")
    other = Database(database.path)
    assert len(other.read("t", "at")) == 1
    assert other.read("t", "at") == []


def test_errors_say_what_to_do(make: Callable[[str], Database], tmp_path: Path) -> None:
    database = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n REAL); INSERT INTO t VALUES (1, 2.5)"
    )
    with pytest.raises(ConfigError, match="'n' cannot be its cursor") as error:
        database.read("t", "n")
    assert "of: id" in (error.value.guidance or "")
    database.read("t", "id")
    stream = database.open("t")
    database.execute("ALTER TABLE t DROP COLUMN n")
    with pytest.raises(ConfigError, match="t cannot be read: no such column"):
        list(stream.read(configure(stream, None), None))
    text = tmp_path / "x"
    text.write_text("no database, but a text that is long enough to be looked at")
    source = Sqlite()
    for path, message in (
        (text, "file is not a database"),
        (make("SELECT 1").path, "there are no tables to read"),
        (tmp_path / "none", "unable to open database file"),
    ):
        with pytest.raises(ConfigError, match=message):
            source.check(source.parse({"path": str(path)}))


def test_names_of_any_form(make: Callable[[str], Database]) -> None:
    database = make('CREATE TABLE "a b""%s?" ("x y" INTEGER PRIMARY KEY, "%d" TEXT, "?" TEXT)')
    database.execute('INSERT INTO "a b""%s?" VALUES (?, ?, ?)', [(n, "p", "q") for n in range(9)])
    assert len(database.read('a b"%s?')) == 9


def test_states_have_the_form_that_is_stored(make: Callable[[str], Database]) -> None:
    database = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INT);"
        "INSERT INTO t VALUES (1, NULL), (2, 10), (3, 10), (4, 20)"
    )
    stream = database.open("t", lookback=4)
    assert list_states(stream, None, None) == [{"after": [3]}, {"is_complete": True}]
    read = {"cursor": "n", "low": None, "from": None, "high": 20, "rows": 1, "is_closed": False}
    end = {"cursor": "n", "value": 20, "rows": 1}
    assert list_states(stream, "n", None) == [{**read, "after": [3]}, end]
    assert list_states(stream, "n", {**read, "after": [3]}) == [end]
    assert list_states(stream, "n", end) == [end]


def list_states(stream: Any, cursor: str | None, state: Any) -> list[Any]:
    """The states of a read, of which each slice can be read."""
    states = []
    for part in stream.slices(configure(stream, cursor), state):
        if isinstance(part, Checkpoint):
            states.append(json.loads(json.dumps(part.state)))
        elif isinstance(part, Slice):
            list(stream.read_slice(json.loads(json.dumps(part.data))))
    return states
