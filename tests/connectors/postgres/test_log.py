"""Changes from the log of a real server: after any interruption the tables are those of the server."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.postgres import Postgres
from connectors.sdk.groups import GroupCheckpoint, StreamPart
from connectors.sdk.items import Measure
from connectors.sdk.reports import listen_to_warnings
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.logged import DEDUP, Killed, run_workload
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import Database
from tests.connectors.postgres.workload import NAMES, TABLES, Workload, large_transaction

_NUMBERS = itertools.count()


@pytest.fixture
def lake(database: Database) -> Iterator[Lake]:
    """Tables that are published, and a lake without any rows; the slot is dropped at the end."""
    name = f"log{next(_NUMBERS)}"
    database.execute(TABLES.format(p=name))
    config = database.config(incremental="log", slot=name, publication=name, slice_megabytes=1)
    yield Lake(database, config, NAMES)
    database.execute(
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}'"
    )
    database.execute(f"DROP PUBLICATION {name}")


def run_seed(lake: Lake, seed: int) -> None:
    database, work = lake.database, Workload(random.Random(seed))
    run_workload(
        lake, database, work, seed, lambda *rows: database.execute(large_transaction(*rows))
    )
    lake.assert_equal()


@pytest.mark.parametrize("seed", range(1))
def test_tables_equal_the_servers_after_kills_and_a_workload(lake: Lake, seed: int) -> None:
    run_seed(lake, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 52))
def test_tables_equal_the_servers_for_many_seeds(lake: Lake, seed: int) -> None:
    run_seed(lake, seed)


def list_slot(lake: Lake) -> list[str]:
    name = lake.config["slot"]
    return lake.database.lines(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{name}'")


def test_a_change_between_two_snapshots_is_appended_once(lake: Lake) -> None:
    """The slot has it, and the snapshot of its table too."""
    lake.mode = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    database = lake.database
    database.execute("INSERT INTO wide VALUES (1); INSERT INTO plain VALUES (1)")

    def change(item: Any) -> None:
        is_first = not lake.slices and isinstance(item, StreamPart) and item.stream.name != "wide"
        if is_first and not isinstance(item.item, Measure):
            database.execute("INSERT INTO wide VALUES (2); UPDATE wide SET note = 'x' WHERE id = 1")

    lake.sync(change)
    lake.sync()
    assert sorted((row["id"], row["note"]) for row in lake.tables["wide"].events) == [
        (1, "x"),
        (2, None),
    ]


def test_a_table_that_is_truncated_in_a_transaction_with_inserts(lake: Lake) -> None:
    """2ndQuadrant/pglogical#207, #327: TRUNCATE is lost, with inserts in one transaction or as a replica."""
    database = lake.database
    database.execute("INSERT INTO plain SELECT generate_series(1, 9); INSERT INTO wide VALUES (1)")
    lake.sync()
    database.execute(
        "SET session_replication_role = replica; BEGIN; INSERT INTO wide VALUES (2); TRUNCATE plain; "
        "INSERT INTO plain VALUES (5); COMMIT"
    )
    lake.sync()
    lake.assert_equal()
    assert [row["id"] for row in lake.tables["plain"].events[-2:]] == [None, 5]


def test_a_slot_that_is_gone_or_ahead_is_an_error(lake: Lake) -> None:
    database, slot = lake.database, lake.config["slot"]
    database.execute("INSERT INTO plain VALUES (1)")
    lake.sync()
    database.execute("INSERT INTO plain VALUES (2)")
    database.execute(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    with pytest.raises(ConfigError, match="something else reads the slot"):
        lake.sync()
    database.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    with pytest.raises(ConfigError, match="is gone: the changes since the last sync are lost"):
        lake.sync()
    assert not list_slot(lake)


def test_only_one_read_has_the_slot(lake: Lake) -> None:
    lake.database.execute("INSERT INTO plain VALUES (1)")

    def read_too(item: Any) -> None:
        with pytest.raises(TransientError, match="another sync reads the slot"):
            Lake(lake.database, lake.config, NAMES).sync()
        del item

    lake.sync(read_too)


def test_a_stream_that_is_not_read_keeps_the_slot_where_it_is(lake: Lake) -> None:
    database = lake.database
    database.execute("INSERT INTO plain VALUES (1); INSERT INTO wide VALUES (1)")
    lake.sync()
    database.execute("UPDATE plain SET name = 'x'; INSERT INTO wide VALUES (2)")
    lake.names = ("plain",)
    for _ in range(2):
        lake.sync()
    assert "streams that are not read now" in lake.warnings[-1]
    lake.assert_equal()
    lake.names = NAMES
    lake.sync()
    lake.assert_equal()


def test_columns_that_come_and_go(lake: Lake) -> None:
    database = lake.database
    database.execute("INSERT INTO plain VALUES (1, 'a')")
    lake.sync()
    database.execute(
        "ALTER TABLE plain ADD more int; INSERT INTO plain (id, more) VALUES (2, 7); "
        "ALTER TABLE plain DROP amount; INSERT INTO plain (id, name) VALUES (3, 'c')"
    )
    lake.sync()
    rows = {row["id"]: row.get("more") for row in lake.rows("plain")}
    assert rows == {1: None, 2: 7, 3: None}


def test_a_renamed_column_is_a_warning(lake: Lake) -> None:
    """Rows of the log have the names of their time, and a catalog may have the former one."""
    database, lake.names = lake.database, ("plain",)
    database.execute("INSERT INTO plain VALUES (1, 'a')")
    lake.sync()
    former = lake.catalog("plain")
    database.execute(
        "INSERT INTO plain VALUES (2, 'b'); ALTER TABLE plain RENAME name TO title; "
        "INSERT INTO plain VALUES (3, 'c')"
    )
    lake.sync()
    assert any("without the columns title" in text for text in lake.warnings)
    lake.mode = {**DEDUP, "stream": former}
    lake.sync()
    assert lake.warnings[-1] == "columns of the catalog are gone, and not read: name"


def test_a_key_that_the_user_has_chosen_moves_as_one_of_the_table(lake: Lake) -> None:
    database = lake.database
    database.execute(
        "CREATE TABLE kept (a int NOT NULL, b int NOT NULL, v text); CREATE UNIQUE INDEX u ON kept (b, a); "
        "ALTER TABLE kept REPLICA IDENTITY USING INDEX u; "
        f"ALTER PUBLICATION {lake.config['publication']} ADD TABLE kept; INSERT INTO kept VALUES (1, 1, 'x')"
    )
    lake.names, lake.mode = ("kept",), {**DEDUP, "primary_key": [["a"], ["b"]]}
    lake.sync()
    database.execute(
        "UPDATE kept SET a = 9, v = 'y'; INSERT INTO kept VALUES (1, 1, 'z'), (2, 2, 'w')"
    )
    database.execute("DELETE FROM kept WHERE b = 2")
    lake.sync()
    lake.assert_equal()
    lake.mode = {**DEDUP, "primary_key": [["v"]]}
    database.execute("UPDATE kept SET v = 'p' WHERE v = 'z'; DELETE FROM kept WHERE a = 9")
    with pytest.raises(ConfigError, match="does not have 'v' of the primary key"):
        lake.sync()


def test_a_partition_whose_columns_are_in_another_order(lake: Lake) -> None:
    """PeerDB-io/peerdb#3544: values are taken by the place of a column in the parent."""
    lake.database.execute(
        "CREATE TABLE moved (v text, gone int, day int NOT NULL, id int NOT NULL, PRIMARY KEY (id, day)); "
        "ALTER TABLE moved DROP COLUMN gone; "
        "ALTER TABLE parted ATTACH PARTITION moved FOR VALUES FROM (1000) TO (2000)"
    )
    lake.sync()
    lake.database.execute(
        "INSERT INTO parted VALUES (1, 1500, 'IA'), (2, 7, 'NY'); UPDATE parted SET day = 1600 WHERE id = 2; "
        "UPDATE parted SET v = NULL WHERE id = 1"
    )
    lake.sync()
    lake.assert_equal()


def test_arrays_of_enums_boxes_and_composites(lake: Lake) -> None:
    """powersync-ja/powersync-service#405: boxes[] and moods[] differ between the snapshot and the log."""
    lake.database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN rating AS int; "
        "CREATE DOMAIN words AS text[]; "
        "CREATE TYPE part AS (b box, m mood, n int[]); "
        "CREATE TABLE nested (id int PRIMARY KEY, m mood[], b box[], r rating[], p part, ps part[], "
        "w words); "
        f"ALTER PUBLICATION {lake.config['publication']} ADD TABLE nested"
    )
    lake.names = ("nested",)
    lake.sync()
    lake.database.execute(
        "INSERT INTO nested VALUES (1, '{sad,NULL}', '{(1,2),(3,4);(5,6),(7,8)}', '{1,2}', "
        "ROW(box '(1,2),(3,4)', 'sad', '{1,NULL}')::part, "
        "ARRAY[ROW(box '(1,2),(3,4)', 'sad', '{1}')::part], ARRAY['a,b', 'c\"d'])"
    )
    lake.sync()
    assert len(lake.rows("nested")) == 1
    lake.assert_equal()


def test_check_prints_the_sql_that_mends_the_log(lake: Lake) -> None:
    database, config = lake.database, lake.config
    source = Postgres()
    source.check(source.parse(config))
    with pytest.raises(
        ConfigError, match=r'there is no publication [^$]*CREATE PUBLICATION "none"'
    ):
        source.check(source.parse({**config, "publication": "none"}))
    database.execute(f"ALTER PUBLICATION {config['publication']} SET (publish = 'insert')")
    with pytest.raises(ConfigError, match="leaves out some kinds of changes"):
        source.check(source.parse(config))


def test_a_publication_without_truncations_keeps_the_rows(lake: Lake) -> None:
    """estuary/connectors#855: some truncate tables to keep them small, and want the rows elsewhere."""
    database, publication = lake.database, lake.config["publication"]
    database.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete')")
    database.execute("INSERT INTO plain VALUES (1), (2)")
    lake.sync()
    database.execute("TRUNCATE plain; INSERT INTO plain VALUES (3)")
    lake.sync()
    assert sorted(row["id"] for row in lake.rows("plain")) == [1, 2, 3]
    warnings: list[str] = []
    with listen_to_warnings(warnings.append):
        Postgres().check(Postgres().parse(lake.config))
    assert any("leaves out TRUNCATE" in text for text in warnings)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_table_that_is_dropped_and_made_again(lake: Lake, *, is_interrupted: bool) -> None:
    database, publication = lake.database, lake.config["publication"]
    database.execute("INSERT INTO plain SELECT i, 'old' FROM generate_series(1, 9) i")
    lake.sync()
    database.execute(
        "INSERT INTO plain VALUES (10, 'old'); DELETE FROM plain WHERE id = 1; DROP TABLE plain; "
        "CREATE TABLE plain (id int PRIMARY KEY, name text, more int); "
        "INSERT INTO plain VALUES (5, 'new', 1); "
        f"ALTER PUBLICATION {publication} ADD TABLE plain; INSERT INTO plain VALUES (6, 'new', 2)"
    )
    if is_interrupted:

        def kill(item: Any) -> None:
            if isinstance(item, GroupCheckpoint):
                raise Killed

        with pytest.raises(Killed):
            lake.sync(kill)
        database.execute("UPDATE plain SET name = 'newer' WHERE id = 6")
    for _ in range(2):
        lake.sync()
        lake.assert_equal()
    assert sum("made again" in text for text in lake.warnings) == 1 + is_interrupted


@pytest.mark.long  # the server takes 40 s to decode its log
def test_pgbench_makes_its_tables_again(lake: Lake) -> None:
    """viggy28/streambed#5: `pgbench -i` drops its tables, makes them again, and truncates them; the rows of
    the former ones stay."""
    database, publication = lake.database, lake.config["publication"]
    names = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers")
    server = database.server
    command = [str(server.programs / "pgbench"), "-h", "127.0.0.1", "-p", str(server.port)]
    command += ["-U", "elt", "-n", "postgres"]
    variables = {**os.environ, "PGOPTIONS": f"-c search_path={database.schema}"}

    def run(*options: str) -> None:
        subprocess.run([*command, *options], env=variables, check=True, capture_output=True)

    def sync() -> None:
        tables = ", ".join(f"{database.schema}.{name}" for name in names)
        database.execute(f"ALTER PUBLICATION {publication} SET TABLE {tables}")
        lake.sync()
        lake.assert_equal()

    lake.names = names
    for least, rows in ((0, 500), (400, 200)):
        run("-i", "-s", "1")
        database.execute(
            f"DELETE FROM pgbench_accounts WHERE aid NOT BETWEEN {least + 1} AND {least + rows}"
        )
        run("-t", "50")
        sync()
        assert len(lake.rows("pgbench_accounts")) == rows
