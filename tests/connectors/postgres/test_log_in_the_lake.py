"""Syncs of changes from the log into tables of the lake."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from connectors.postgres import Postgres as Source
from elt_assets.failpoints import armed
from tests.connectors.logged import Failing
from tests.connectors.postgres.support import Database
from tests.connectors.postgres.workload import NAMES, TABLES, Workload
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import materialize, read_log

Versions = dict[int, list[dict[str, Any]]]

pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]


@pytest.fixture
def published(database: Database) -> Iterator[Database]:
    database.execute(TABLES.format(p="lake"))
    yield database
    database.execute("SELECT pg_drop_replication_slot('lake'); DROP PUBLICATION lake")


def connect(own: Project, database: Database, modes: dict[str, Any], **more: Any) -> None:
    """Configure a connection; its catalog is that of the source."""
    config = database.config(incremental="log", slot="lake", publication="lake", window_megabytes=1)
    source = {"connector": "postgres", "config": config, **more.pop("source", {})}
    streams = [
        {"name": name, "namespace": database.schema, "sync_mode": "incremental", **modes[name]}
        for name in modes
    ]
    folder = own.connection("log", source=source, streams=streams, read_together=True, **more)
    catalog = [msgspec.json.decode(stream.describe().to_json()) for stream in Source().open(config)]
    (folder / "catalog.json").write_text(json.dumps({"streams": catalog}))


AUDIT = """
CREATE TABLE audit (number serial, operation text, before jsonb, after jsonb,
  transaction bigint DEFAULT txid_current());
CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO {s}.audit (operation, before, after) VALUES (tg_op,
    CASE WHEN tg_op IN ('UPDATE', 'DELETE') THEN to_jsonb(old) END,
    CASE WHEN tg_op IN ('UPDATE', 'INSERT') THEN to_jsonb(new) END);
  RETURN NULL; END $$;
CREATE TRIGGER record AFTER INSERT OR UPDATE OR DELETE ON plain FOR EACH ROW EXECUTE FUNCTION record();
CREATE TRIGGER truncated AFTER TRUNCATE ON plain FOR EACH STATEMENT EXECUTE FUNCTION record();
"""
"""What the server did with each row of a table, in order; TRUNCATE has no row."""


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the lake with the values that the server's JSON has."""
    plain = {name: value for name, value in row.items() if not name.startswith("_")}
    if plain.get("at") is not None:
        # The server's JSON leaves out zeros at the end.
        plain["at"] = f"{plain['at']:%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".") + "+00:00"
    if plain.get("amount") is not None:
        plain["amount"] = float(plain["amount"])
    if isinstance(plain.get("tags"), str):
        plain["tags"] = json.loads(plain["tags"])
    return plain


def sort(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def read_table(own: Project, database: Database, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        own.table("log", database.schema, name).to_pyarrow_table().to_pylist()
    )
    return rows


def assert_current(own: Project, database: Database, names: Sequence[str]) -> None:
    """Check that tables have the rows of the server."""
    for name in names:
        lines = database.lines(f'SET TimeZone = UTC; SELECT to_jsonb(t)::text FROM "{name}" t')
        rows = [comparable(row) for row in read_table(own, database, name)]
        assert sort(rows) == sort([json.loads(line) for line in lines]), name


def list_events(own: Project, database: Database) -> list[Any]:
    """What the appended rows say was done: the key that was deleted, or the row."""
    rows = sorted(read_table(own, database, "plain"), key=lambda row: row["_airbyte_raw_id"])
    return [
        row["id"] if row["_ab_cdc_deleted_at"] else comparable(row)
        for row in sorted(rows, key=lambda row: row["_ab_cdc_lsn"])
    ]


def list_audited(database: Database) -> list[Any]:
    events: list[Any] = []
    query = "SET TimeZone = UTC; SELECT before, after FROM audit ORDER BY number"
    for line in database.lines(query):
        before, after = (json.loads(part) if part else None for part in line.split("|"))
        if before and (after is None or after["id"] != before["id"]):
            events.append(before["id"])
        if after:
            events.append(after)
        elif not before:
            events.append(None)
    return events


def run_seed(own: Project, database: Database, seed: int, rounds: int) -> None:
    """Let the server work, and syncs fail anywhere; then compare all tables."""
    database.execute(AUDIT.format(s=database.schema))
    work = Workload(random.Random(seed))
    dedup = {"destination_sync_mode": "append_dedup"}
    modes = {**dict.fromkeys(NAMES, dedup), "plain": {"destination_sync_mode": "append"}}
    connect(own, database, modes)
    assert materialize(own).success
    for _ in range(rounds):
        work.run(database, 25, truncates=True)
        with armed(Failing(work.random.randrange(1, 40))):
            materialize(own)
    assert materialize(own).success
    assert_current(own, database, NAMES[1:])
    assert list_events(own, database) == list_audited(database)


def list_versions(own: Project, database: Database) -> Versions:
    """The versions of each row in the history, in the order of their changes."""
    versions: Versions = defaultdict(list)
    rows = read_table(own, database, "plain_history")
    for row in sorted(rows, key=lambda row: (row["_ab_cdc_lsn"], row["_airbyte_raw_id"])):
        if not row["_ab_cdc_deleted_at"]:
            versions[row["id"]].append(comparable(row))
    return versions


def list_audited_versions(database: Database) -> tuple[Versions, Versions]:
    """The rows of each key that were written, and those that a transaction has left."""
    events: Versions = defaultdict(list)
    last: dict[tuple[str, int], dict[str, Any] | None] = {}
    query = "SET TimeZone = UTC; SELECT transaction, before, after FROM audit ORDER BY number"
    for line in database.lines(query):
        transaction, *parts = line.split("|")
        before, after = (json.loads(part) if part else None for part in parts)
        for row, left in ((before, None), (after, after)):
            if row:
                last.pop((transaction, row["id"]), None)
                last[transaction, row["id"]] = left
        if not before and not after:
            last = {place: row if place[0] != transaction else None for place, row in last.items()}
        if after:
            events[after["id"]].append(after)
    results: Versions = defaultdict(list)
    for (_, key), left in last.items():
        if left:
            results[key].append(left)
    return events, results


def is_subsequence(part: list[Any], whole: list[Any]) -> bool:
    rest = iter(whole)
    return all(any(entry == other for other in rest) for entry in part)


def run_history_seed(own: Project, database: Database, seed: int, rounds: int) -> None:
    """As `run_seed`, with a history, which has what each transaction has left of a row.

    Of what a transaction replaces itself, it has what was read at another time.
    """
    database.execute(AUDIT.format(s=database.schema))
    work = Workload(random.Random(seed))
    dedup = {"destination_sync_mode": "append_dedup", "history": True}
    connect(own, database, {"plain": dedup, "wide": dedup})
    assert materialize(own).success
    for _ in range(rounds):
        work.run(database, 25, truncates=True)
        with armed(Failing(work.random.randrange(1, 40))):
            materialize(own)
    assert materialize(own).success
    assert_current(own, database, ["plain", "wide"])
    versions = list_versions(own, database)
    events, results = list_audited_versions(database)
    for key in {*events, *versions}:
        assert is_subsequence(results[key], versions[key]), key
        assert is_subsequence(versions[key], events[key]), key
    for name in ("plain", "wide"):
        rows = read_table(own, database, f"{name}_history")
        current = [comparable(row) for row in rows if row["_is_current"]]
        assert sort(current) == sort(
            [comparable(row) for row in read_table(own, database, name)]
        ), name
        assert not any(row["_airbyte_meta"]["changes"] for row in rows)


def test_a_history_has_each_version_that_a_row_had(published: Database, own: Project) -> None:
    run_history_seed(own, published, seed=3, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 26))
def test_histories_of_many_syncs_that_fail(published: Database, own: Project, seed: int) -> None:
    run_history_seed(own, published, seed, rounds=6)


def test_syncs_that_fail_anywhere_lose_and_double_nothing(
    published: Database, own: Project
) -> None:
    run_seed(own, published, seed=7, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 16))
def test_many_syncs_that_fail_anywhere(published: Database, own: Project, seed: int) -> None:
    run_seed(own, published, seed, rounds=8)


def test_an_event_has_the_time_from_the_servers_commit_to_the_lakes(
    published: Database, own: Project
) -> None:
    connect(own, published, {"plain": {"destination_sync_mode": "append_dedup"}})
    published.execute("INSERT INTO plain VALUES (1)")
    assert materialize(own).success
    start = time.time()
    published.execute("UPDATE plain SET name = 'x'")
    time.sleep(1)
    assert materialize(own).success
    metadata = own.metadata("log", published.schema, "plain")
    assert 1 <= metadata["elt/source_lag_seconds"] <= time.time() - start
    assert materialize(own).success  # without a change
    assert "elt/source_lag_seconds" not in own.metadata("log", published.schema, "plain")


def test_a_reset_of_all_streams_drops_the_slot(
    published: Database, own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    elt = Elt(capsys)
    slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'lake'"
    dedup = {"destination_sync_mode": "append_dedup"}
    connect(own, published, {"plain": dedup, "wide": dedup})
    published.execute("INSERT INTO plain VALUES (1); INSERT INTO wide VALUES (1)")
    assert materialize(own).success
    metadata = own.metadata("log", published.schema, "plain")
    assert metadata["elt/measure/slot_retained_bytes"] >= 0
    assert "elt/source_lag_seconds" not in metadata  # a snapshot is no change
    counts = [metadata[f"elt/records_{name}"] for name in ("read", "committed")]
    assert counts == [1, 1]  # not the end of the rows of before
    elt("reset", "log", f"{published.schema}.plain")
    assert published.lines(slots) == ["lake"]
    published.execute("UPDATE plain SET name = 'x'; DELETE FROM wide")
    elt("reset", "log")
    assert published.lines(slots) == []
    elt("reset", "log")
    assert materialize(own).success
    assert_current(own, published, ["plain"])


def test_a_stream_that_cannot_be_read_does_not_stop_the_others(
    published: Database, own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    dedup = {"destination_sync_mode": "append_dedup"}
    connect(own, published, {"plain": dedup, "wide": {"destination_sync_mode": "append"}})
    published.execute("INSERT INTO plain (id, name) VALUES (1, 'x'); INSERT INTO wide VALUES (1)")
    assert materialize(own).success
    published.execute("ALTER TABLE plain DROP name; ALTER TABLE plain ADD name text")
    for number in (2, 3):
        published.execute(
            f"INSERT INTO plain (id) VALUES ({number}); INSERT INTO wide VALUES ({number})"
        )
        assert not materialize(own).success
        assert [row["id"] for row in read_table(own, published, "plain")] == [1]
        rows = read_table(own, published, "wide")
        assert sorted(row["id"] for row in rows) == list(range(1, number + 1))  # each once
    Elt(capsys)("reset", "log", f"{published.schema}.plain")
    assert materialize(own).success
    assert_current(own, published, ["plain", "wide"])


def test_a_stream_that_is_not_read_keeps_its_changes_in_the_slot(
    published: Database, own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    dedup = {"destination_sync_mode": "append_dedup"}
    connect(own, published, {"plain": dedup, "wide": dedup})
    published.execute("INSERT INTO plain (id) VALUES (1); INSERT INTO wide VALUES (1)")
    assert materialize(own).success
    published.execute("INSERT INTO plain (id) VALUES (2); INSERT INTO wide VALUES (2)")
    only_plain = f'key:"log/{published.schema}/plain"'
    assert materialize(own, only_plain).success
    Elt(capsys)("reset", "log", f"{published.schema}.plain")
    published.execute("DELETE FROM plain WHERE id = 1; DELETE FROM wide WHERE id = 1")
    assert materialize(own, only_plain).success  # without a state of any stream that is read
    assert materialize(own).success
    assert_current(own, published, ["plain", "wide"])


def test_a_new_column_of_the_log_is_added_and_filled(
    published: Database, own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The catalog stays as it was, and what the log brings during the backfill wins."""
    elt, key = Elt(capsys), f"log/{published.schema}/plain"
    adding = {"destination_sync_mode": "append_dedup", "on_undeclared": "add", "history": True}
    connect(own, published, {"plain": adding})
    published.execute("INSERT INTO plain (id, amount) SELECT n, n FROM generate_series(1, 5) n")
    assert materialize(own).success
    published.execute("ALTER TABLE plain ADD due date DEFAULT '2026-01-31', ADD gone int")
    published.execute(
        "UPDATE plain SET name = 'x', gone = 1 WHERE id = 1; DELETE FROM plain WHERE id = 5"
    )
    published.execute("ALTER TABLE plain DROP gone")
    assert materialize(own).success
    rows = {row["id"]: row for row in read_table(own, published, "plain")}
    assert {n: row["due"] and str(row["due"]) for n, row in rows.items()} == {
        1: "2026-01-31",
        2: None,
        3: None,
        4: None,
    }
    assert isinstance(rows[1]["due"], dt.date)  # as the server has it
    assert "due" in elt("discover", "log", "--dry-run")  # the catalog does not have it
    state = elt.json("state", "show", key)["state"]
    assert "3 rows filled" in elt("backfill", key, "--columns", "due")
    assert elt.json("state", "show", key)["state"] == state
    published.execute("UPDATE plain SET due = NULL WHERE id = 2; INSERT INTO plain (id) VALUES (6)")
    assert materialize(own).success
    rows = {row["id"]: row for row in read_table(own, published, "plain")}
    assert [str(rows[n]["due"]) for n in (1, 2, 3, 4, 6)] == [
        "2026-01-31",
        "None",
        *["2026-01-31"] * 3,
    ]


def test_a_new_column_of_the_log_stops_a_sync_that_must_stop(
    published: Database, own: Project
) -> None:
    stopping: dict[str, Any] = {"destination_sync_mode": "append_dedup", "on_undeclared": "stop"}
    stopping["fields"] = {"exclude": ["amount"]}
    connect(own, published, {"plain": stopping})
    published.execute("INSERT INTO plain (id) VALUES (1)")
    assert materialize(own).success
    published.execute("INSERT INTO plain (id) VALUES (3)")
    published.execute("UPDATE plain SET amount = 1 WHERE id = 1")
    published.execute("ALTER TABLE plain ADD due date")
    published.execute("INSERT INTO plain (id) VALUES (4)")
    insert = "INSERT INTO plain (id) VALUES (5); INSERT INTO plain (id, due) VALUES (2, now())"
    published.execute(f"BEGIN; {insert}; COMMIT")
    assert not materialize(own).success
    # What is before the first transaction with a value is kept, and only that.
    assert sorted(row["id"] for row in read_table(own, published, "plain")) == [1, 3, 4]
    assert not materialize(own).success
    assert sorted(row["id"] for row in read_table(own, published, "plain")) == [1, 3, 4]
    connect(own, published, {"plain": stopping})  # with the catalog of the source
    assert materialize(own).success
    rows = {row["id"]: row for row in read_table(own, published, "plain")}
    assert rows.keys() == {1, 2, 3, 4, 5}
    assert (rows[2]["due"] is None, rows[4]["due"]) == (False, None)
    assert "amount" not in rows[2]


def test_values_that_came_before_the_catalog_had_their_column_are_filled(
    published: Database, own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sync reads the updates that fill a column before anybody runs `elt discover`: a warning says so."""
    dedup = {"destination_sync_mode": "append_dedup"}
    connect(own, published, {"plain": dedup})
    published.execute("INSERT INTO plain (id) VALUES (1), (2)")
    assert materialize(own).success
    published.execute("ALTER TABLE plain ADD foo text; UPDATE plain SET foo = 'foo' || id")
    result = materialize(own)
    assert "foo (2)" in read_log(own, result)
    elt = Elt(capsys)
    elt("discover", "log")
    published.execute("INSERT INTO plain (id, foo) VALUES (3, 'own')")
    assert materialize(own).success
    assert "2 rows filled" in elt("backfill", f"log/{published.schema}/plain", "--columns", "foo")
    assert_current(own, published, ["plain"])
