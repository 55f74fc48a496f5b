"""Changes of a real server's log, decoded in batches of any size."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elt_assets.errors import ConfigError, SystemFailure
from tests.connectors.postgres.decoding import UNCHANGED, Event, apply, cut, make_batch, open_log
from tests.connectors.postgres.support import FULL, Database
from tests.connectors.postgres.workload import NAMES, TABLES, Workload

pytestmark = pytest.mark.external

BIG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i)"
"""A text that does not fit in a page, also if it is compressed."""
FORMS = (
    "ALTER TABLE plain ADD IF NOT EXISTS more int; UPDATE plain SET more = id WHERE id % 2 = 0",
    "ALTER TABLE plain ADD gone int; UPDATE plain SET gone = id; ALTER TABLE plain DROP gone",
    "ALTER TABLE plain ALTER name TYPE varchar(100); ALTER TABLE plain ALTER amount TYPE numeric(20,2)",
    "ALTER TABLE wide ALTER number TYPE bigint",
    "ALTER TABLE wide REPLICA IDENTITY FULL",
    "ALTER TABLE wide REPLICA IDENTITY DEFAULT",
    "ALTER TABLE wide REPLICA IDENTITY USING INDEX wide_pkey",
    "ALTER TABLE parted ADD IF NOT EXISTS note text; UPDATE parted SET note = v WHERE id % 2 = 1",
)
"""Other forms of the tables of the workload; values in the log stay those of the table. No column is
dropped and added again: the log has only its name, and its former values would come back."""


def sort(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(msgspec.json.encode(row, order="sorted").decode() for row in rows)


def read_snapshot(database: Database, name: str) -> list[str]:
    rows = database.reader(name, FULL).read()
    return sort([msgspec.json.decode(msgspec.json.encode(row)) for row in rows])


def move_keys(chance: random.Random) -> str:
    """SQL that gives a row of `wide` another key, and its large value anew: the log lacks it."""
    key, other = chance.randrange(60), chance.randrange(60)
    return (
        f"UPDATE wide SET id = {other}, big = {BIG} WHERE id = {key} "
        f"AND NOT EXISTS (SELECT 1 FROM wide WHERE id = {other})"
    )


def run_workload(database: Database, chance: random.Random) -> None:
    work = Workload(chance)
    for _ in range(25):
        work.run(database, 4, truncates=True)
        database.execute(move_keys(chance))
        if chance.random() < 0.4:
            database.execute(chance.choice(FORMS))


def check_workload(database: Database, folder: Path, seed: int) -> None:
    """Check that the changes of a workload make the server's tables, and are the same in other batches."""
    chance = random.Random(seed)
    database.execute(
        TABLES.split("CREATE PUBLICATION")[0] + "CREATE TABLE unwanted (id int PRIMARY KEY)"
    )
    with open_log(database, 'TABLE plain, wide, "Full", parted, unwanted') as log:
        run_workload(database, chance)
        messages = log.messages()
        decoded = []
        for number, most in enumerate((len(messages), 1, 7, 300)):
            part = folder / str(number)
            part.mkdir()
            decoded.append(log.decode(part, cut(messages, chance, most), NAMES))
        assert all(other == decoded[0] for other in decoded)
    for name in NAMES:
        key = {"Full": ("a", "b"), "parted": ("id", "day")}.get(name, ("id",))
        assert sort(apply(decoded[0][name], key).rows()) == read_snapshot(database, name), name


@pytest.mark.parametrize("seed", range(3))
def test_changes_make_the_servers_tables(database: Database, tmp_path: Path, seed: int) -> None:
    check_workload(database, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 40))
def test_changes_make_the_servers_tables_for_many_seeds(
    database: Database, tmp_path: Path, seed: int
) -> None:
    check_workload(database, tmp_path, seed)


MOVED = f"""
CREATE TABLE t (id text PRIMARY KEY, note text, big text);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL, ALTER id SET STORAGE EXTERNAL;
ALTER TABLE t REPLICA IDENTITY {{identity}};
INSERT INTO t VALUES ('a', 'first', {BIG});
"""


def decode_after(database: Database, folder: Path, sql: str, tables: str = "t") -> list[Event]:
    """Return the changes of a table `t` that some SQL makes."""
    with open_log(database, f"TABLE {tables}") as log:
        database.execute(sql)
        return log.decode(folder)["t"]


def describe(event: Event) -> tuple[str, dict[str, Any], dict[str, str]]:
    values = {name: value for name, value in event.values.items() if value is not None}
    shortened = {n: v[:5] if isinstance(v, str) else v for n, v in values.items()}
    return ("delete" if event.is_delete else "row", shortened, event.nulled)


def test_a_change_of_the_key_is_a_delete_and_a_row(database: Database, tmp_path: Path) -> None:
    """The log lacks the large value, and there is no former version of the new key: it stays unknown."""
    database.execute(MOVED.format(identity="DEFAULT"))
    events = decode_after(database, tmp_path, "UPDATE t SET id = 'b'")
    assert [describe(event) for event in events] == [
        ("delete", {"id": "a"}, {}),
        ("row", {"id": "b", "note": "first"}, {"big": UNCHANGED}),
    ]
    assert events[0].row["_ab_cdc_lsn"] == events[1].row["_ab_cdc_lsn"] > 0


def test_keys_that_rows_exchange(database: Database, tmp_path: Path) -> None:
    database.execute(MOVED.format(identity="DEFAULT") + "INSERT INTO t VALUES ('b', 'second', 'b')")
    sql = "UPDATE t SET id = 'c' WHERE id = 'a'; UPDATE t SET id = 'a' WHERE id = 'b'"
    sql += "; UPDATE t SET id = 'b', big = 'new' WHERE id = 'c'"
    events = decode_after(database, tmp_path, f"BEGIN; {sql}; COMMIT")
    kinds = [(kind, values["id"]) for kind, values, _ in map(describe, events)]
    moves = [("a", "c"), ("b", "a"), ("c", "b")]
    assert kinds == [part for a, b in moves for part in (("delete", a), ("row", b))]
    assert sort(apply(events, ["id"]).rows()) == read_snapshot(database, "t")


def test_the_replica_identity_full_has_all_values(database: Database, tmp_path: Path) -> None:
    database.execute(MOVED.format(identity="FULL"))
    sql = "UPDATE t SET note = 'again'; UPDATE t SET id = 'b'; DELETE FROM t"
    big = database.execute(f"SELECT {BIG}").strip()
    events = decode_after(database, tmp_path, sql)
    assert [describe(event) for event in events] == [
        ("row", {"id": "a", "note": "again", "big": big[:5]}, {}),
        ("delete", {"id": "a", "note": "again", "big": big[:5]}, {}),
        ("row", {"id": "b", "note": "again", "big": big[:5]}, {}),
        ("delete", {"id": "b", "note": "again", "big": big[:5]}, {}),
    ]
    assert {event.values["big"] for event in events} == {big}


def test_the_default_replica_identity_has_the_key(database: Database, tmp_path: Path) -> None:
    database.execute(MOVED.format(identity="DEFAULT"))
    events = decode_after(database, tmp_path, "UPDATE t SET note = NULL; DELETE FROM t")
    assert [describe(event) for event in events] == [
        ("row", {"id": "a"}, {"big": UNCHANGED}),
        ("delete", {"id": "a"}, {}),
    ]


def test_a_large_key_that_did_not_change(database: Database, tmp_path: Path) -> None:
    """The server leaves it out of the row, and writes it as the key before the change."""
    database.execute(MOVED.format(identity="DEFAULT"))
    # A row of more than 2 kB has its large values outside, and an index takes values up to 2.7 kB.
    large = "(SELECT left(string_agg(md5(i::text), ''), 2500) FROM generate_series(1, 80) i)"
    database.execute(f"UPDATE t SET id = {large}")
    sql = "UPDATE t SET note = 'again'; UPDATE t SET big = 'new'; DELETE FROM t"
    events = decode_after(database, tmp_path, sql)
    key = database.execute(f"SELECT {large}").strip()
    assert [event.values["id"] for event in events] == [key] * 3
    assert [event.is_delete for event in events] == [False, False, True]
    assert [event.nulled for event in events] == [{"big": UNCHANGED}, {}, {}]


@pytest.mark.parametrize("change", ["UPDATE t SET id = 2", "UPDATE t SET v = 'x'", "DELETE FROM t"])
def test_another_key_than_the_tables_is_an_error(
    database: Database, tmp_path: Path, change: str
) -> None:
    """The log of an index has no primary key of the row before, nor a sign that it has changed."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL UNIQUE, v text);"
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_u_key"
    )
    with open_log(database, "TABLE t") as log:
        database.execute("INSERT INTO t VALUES (1, 1, 'v')")
        assert [describe(event)[0] for event in log.decode(tmp_path)["t"]] == ["row"]
        database.execute(change)
        with pytest.raises(ConfigError, match="REPLICA IDENTITY DEFAULT"):
            log.decode(tmp_path)


def test_a_truncated_table_is_one_delete_of_all_rows(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int REFERENCES t, PRIMARY KEY (id))"
    )
    with open_log(database, "TABLE t, u") as log:
        database.execute("INSERT INTO t VALUES (1); TRUNCATE u")
        assert len(log.decode(tmp_path, names=["t"])["t"]) == 1
        database.execute("TRUNCATE t CASCADE")
        events = log.decode(tmp_path)
    assert [describe(event) for event in events["t"]][1:] == [
        ("delete", {}, {"id": "SOURCE_TRUNCATED"})
    ]
    assert [event.is_delete for event in events["u"]] == [True, True]


def test_partitions_have_the_name_and_the_columns_of_their_root(
    database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE t (id int, day int, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);"
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE t_2 (gone int, v text, day int NOT NULL, id int NOT NULL);"
        "ALTER TABLE t_2 DROP gone; ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10) TO (20)"
    )
    sql = (
        "INSERT INTO t VALUES (1, 1, 'x'), (2, 12, 'y'); UPDATE t SET day = day + 10 WHERE id = 1;"
    )
    sql += "UPDATE t_2 SET v = 'z' WHERE id = 2;"
    sql += "CREATE TABLE t_3 PARTITION OF t FOR VALUES FROM (20) TO (30);"
    events = decode_after(database, tmp_path, sql + "UPDATE t SET day = 20 WHERE id = 2")
    assert sort(apply(events, ["id", "day"]).rows()) == read_snapshot(database, "t")


def test_forms_of_a_table_in_one_transaction(database: Database, tmp_path: Path) -> None:
    """Columns that the table has no more are left out; those that it had not yet are null."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b int)")
    sql = "INSERT INTO t VALUES (1, 'a', 1); ALTER TABLE t DROP a, ADD c text;"
    sql += "INSERT INTO t VALUES (2, 2, 'c'); ALTER TABLE t RENAME b TO d; UPDATE t SET d = 3;"
    events = decode_after(database, tmp_path, f"BEGIN; {sql} COMMIT; INSERT INTO t VALUES (4, 4)")
    assert [event.values for event in events[:2]] == [
        {"id": 1, "c": None, "d": None},
        {"id": 2, "c": "c", "d": None},
    ]
    assert sort(apply(events, ["id"]).rows()) == read_snapshot(database, "t")


def test_forms_of_several_tables(database: Database, tmp_path: Path) -> None:
    """Each form of each table has a file of its own."""
    names = "abc"
    sql = "".join(f"CREATE TABLE {name} (id int PRIMARY KEY, x int);" for name in names)
    database.execute(sql)
    with open_log(database, "TABLE a, b, c") as log:
        for form in range(3):
            for name in names:
                database.execute(f"INSERT INTO {name} VALUES ({form}, 1)")
                database.execute(f"ALTER TABLE {name} ADD y{form} int")
        events = log.decode(tmp_path)
    for name in names:
        assert sort(apply(events[name], ["id"]).rows()) == read_snapshot(database, name)


def test_changes_have_the_commit_of_their_transaction(database: Database, tmp_path: Path) -> None:
    """Transactions come in the order of their commits, not of their numbers."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    with open_log(database, "TABLE t, u") as log:
        database.execute(
            "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1);"
            "INSERT INTO t VALUES (2); COMMIT; INSERT INTO u VALUES (3)"
        )
        messages = log.messages()
        events = log.decode(tmp_path, cut(messages, random.Random(1), 2))
    commits = [(int.from_bytes(m[1:9], "big"), m[9:17]) for m in messages if m[:1] == b"B"]
    lsns = {name: [event.row["_ab_cdc_lsn"] for event in part] for name, part in events.items()}
    assert lsns == {"t": [commits[0][0]] * 2, "u": [commits[0][0], commits[1][0]]}
    times = {event.row["_ab_cdc_updated_at"] for part in events.values() for event in part}
    assert len(times) == 2


def test_other_messages_tell_nothing(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (id int PRIMARY KEY, m mood)"
    )
    with open_log(database, "TABLE t") as log:
        database.execute(
            "INSERT INTO t VALUES (1, 'sad'); SELECT pg_logical_emit_message(true, 'a', 'b')"
        )
        messages = log.messages()
        assert b"Y" in {message[:1] for message in messages}
        expected = log.decode(tmp_path, [make_batch(messages)])
        more = [b"M\0\0\0\0\0\0\0\0\0a\0\0\0\0\1b", b"O\0\0\0\0\0\0\0\1origin\0"]
        mixed = [part for message in messages for part in (*more, message)]
        assert log.decode(tmp_path, [make_batch([]), make_batch(mixed), make_batch([])]) == expected
        with pytest.raises(SystemFailure, match="unknown kind b'S'"):
            log.decode(tmp_path, [make_batch([*messages, b"S\0"])])
