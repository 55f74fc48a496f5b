"""What the log does not tell of tables, columns and publications: nothing of it is lost without a word."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectors.postgres import Postgres
from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Slice
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.postgres.logged import Lake
from tests.connectors.postgres.support import FULL, Database, end_transaction, start_transaction

_NUMBERS = itertools.count()

Start = Callable[..., Lake]


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    """Return the lake of some tables after SQL, with a publication {p}; the slots are dropped at the end."""
    names: list[str] = []

    def begin(sql: str, *tables: str, **config: Any) -> Lake:
        name = f"form{next(_NUMBERS)}"
        names.append(name)
        database.execute(sql.format(p=name, s=database.schema))
        full = database.config(incremental="log", slot=name, publication=name, **config)
        return Lake(database, full, tables)

    yield begin
    for name in names:
        database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = "
            f"'{name}'; DROP PUBLICATION IF EXISTS {name}"
        )


def sync(lake: Lake) -> str:
    """Return the warnings of a sync, on one line."""
    lake.warnings = []
    lake.sync()
    return " | ".join(lake.warnings)


PARTED = """
CREATE TABLE m (id int, d int, v text, PRIMARY KEY (id, d)) PARTITION BY RANGE (d);
CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10);
INSERT INTO m VALUES (1, 1, 'a');
CREATE PUBLICATION {p} FOR TABLE m WITH (publish_via_partition_root = true);
"""


@pytest.mark.parametrize(
    "attach",
    [
        "ALTER TABLE m ATTACH PARTITION m2 FOR VALUES FROM (10) TO (20)",
        # as one transaction with its rows, and as a tree of partitions
        (
            "CREATE TABLE m3 (LIKE m INCLUDING ALL) PARTITION BY RANGE (d); "
            "ALTER TABLE m3 ATTACH PARTITION m2 FOR VALUES FROM (10) TO (15); "
            "ALTER TABLE m ATTACH PARTITION m3 FOR VALUES FROM (10) TO (20)"
        ),
    ],
)
def test_a_partition_that_is_attached_is_read_in_full(start: Start, attach: str) -> None:
    lake = start(PARTED, "m")
    lake.sync()
    lake.database.execute(
        "BEGIN; CREATE TABLE m2 (LIKE m INCLUDING ALL); "
        f"INSERT INTO m2 SELECT n, 12, 'b' FROM generate_series(1, 5) n; {attach}; COMMIT;"
        "UPDATE m SET v = 'c' WHERE id = 2; DELETE FROM m WHERE id = 3; INSERT INTO m VALUES (20, 11, 'd')"
    )
    assert re.search(r'"m2" is new since the last sync, and is read in full', sync(lake))
    lake.assert_equal()
    lake.database.execute("UPDATE m SET v = 'e' WHERE id = 4; DELETE FROM m WHERE id = 5")
    assert sync(lake) == ""
    lake.assert_equal()


def test_changes_while_a_new_partition_is_read_are_after_its_rows(start: Start) -> None:
    lake = start(PARTED, "m")
    lake.sync()
    database = lake.database
    database.execute(
        "CREATE TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20);"
        "INSERT INTO m SELECT n, 12, 'b' FROM generate_series(1, 5) n; UPDATE m SET d = 2 WHERE id = 1 AND "
        "d = 12"
    )

    def change(item: Any) -> None:
        if isinstance(item, StreamPart) and isinstance(item.item, Slice) and not item.item.file:
            database.execute("UPDATE m SET v = 'x' WHERE id = 2; DELETE FROM m WHERE id = 3")

    lake.sync(change)
    lake.assert_equal()
    assert database.lines("SELECT v FROM m WHERE id = 2") == ["x"]


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ("ALTER TABLE m DETACH PARTITION m1", "1 of its partitions were detached or dropped"),
        ("DROP TABLE m1", "1 of its partitions were detached or dropped"),
        ("TRUNCATE m1", r'"s\d+"."m1" was rewritten'),
    ],
)
def test_rows_that_leave_with_a_partition_are_told(start: Start, change: str, warning: str) -> None:
    lake = start(PARTED, "m")
    lake.sync()
    lake.database.execute(change)
    assert re.search(warning, sync(lake))
    assert sync(lake) == ""
    for _ in range(2):
        lake.database.execute("TRUNCATE m")
        assert sync(lake) == ""


def test_a_partition_without_a_log_is_not_read_and_told(start: Start) -> None:
    lake = start(PARTED, "m")
    lake.database.execute(
        "CREATE UNLOGGED TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20); INSERT INTO m VALUES (7, "
        "12, 'u')"
    )
    assert re.search(r'partitions "s\d+"."m2" are foreign or unlogged tables', sync(lake))
    assert [row["id"] for row in lake.rows("m")] == [1]


def test_rows_of_heirs_are_those_of_the_heirs(start: Start) -> None:
    sql = """CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (v text, PRIMARY KEY (id)) INHERITS (a);
    INSERT INTO a VALUES (1); INSERT INTO b VALUES (2, 'x'); CREATE PUBLICATION {p} FOR TABLE a"""
    lake = start(sql, "a", "b")
    assert re.search(r'rows of "s\d+"."b", which inherit from it, are not read with it', sync(lake))
    lake.database.execute("INSERT INTO a VALUES (3); INSERT INTO b VALUES (4, 'y')")
    lake.sync()
    assert sorted(row["id"] for row in lake.rows("a")) == [1, 3]
    assert sorted(row["id"] for row in lake.rows("b")) == [2, 4]


TABLE = """CREATE TABLE a (id int PRIMARY KEY, v text, w text); INSERT INTO a VALUES (1, 'old', 'w');
CREATE PUBLICATION {p} FOR TABLE a"""


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE a DROP COLUMN v; ALTER TABLE a ADD COLUMN v text",
        "ALTER TABLE a RENAME v TO x; ALTER TABLE a RENAME w TO v",
        "ALTER TABLE a RENAME v TO x; ALTER TABLE a RENAME w TO v; ALTER TABLE a RENAME x TO w",
        "ALTER TABLE a DROP COLUMN v; ALTER TABLE a RENAME w TO v",
    ],
)
def test_a_name_that_is_of_another_column_is_an_error_until_a_reset(
    start: Start, change: str
) -> None:
    lake = start(TABLE, "a")
    lake.sync()
    lake.database.execute(f"{change}; INSERT INTO a (id, v) VALUES (2, 'new')")
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"(?s)were dropped and added again, or renamed.*elt reset"
        ):
            lake.sync()
    lake.reset("a")
    lake.sync()
    lake.assert_equal()


def test_a_column_that_comes_again_after_a_sync_without_it_is_an_error(start: Start) -> None:
    lake = start(TABLE, "a")
    lake.schemas["a"] = lake.catalog("a")["json_schema"]
    lake.sync()
    lake.database.execute("ALTER TABLE a DROP COLUMN v; INSERT INTO a VALUES (2, 'w')")
    assert "v" in sync(lake)
    lake.database.execute("ALTER TABLE a ADD COLUMN v text; INSERT INTO a VALUES (3, 'w', 'v')")
    with pytest.raises(ConfigError, match="v were dropped and added again"):
        lake.sync()


def test_values_of_a_column_after_the_catalog_are_counted_until_it_has_it(start: Start) -> None:
    lake = start(TABLE, "a")
    lake.schemas["a"] = lake.catalog("a")["json_schema"]
    lake.sync()
    lake.database.execute(
        "ALTER TABLE a ADD COLUMN n int; INSERT INTO a VALUES (2, 'y', 'w', 22), (3, 'z', 'w', NULL); "
        "UPDATE a SET n = 1 WHERE id = 1"
    )
    assert re.search(
        r"columns that the catalog does not have.*: n \(2\).*elt discover.*elt reset", sync(lake)
    )
    del lake.schemas["a"]
    lake.database.execute("INSERT INTO a VALUES (4, 'y', 'w', 44)")
    assert re.search(r"the columns n are read for the first time.*elt reset", sync(lake))
    lake.reset("a")
    lake.sync()
    lake.assert_equal()


def test_names_that_two_columns_had_for_a_while_are_an_error(start: Start) -> None:
    lake = start(TABLE, "a")
    lake.sync()
    swap = "ALTER TABLE a RENAME v TO x; ALTER TABLE a RENAME w TO v; ALTER TABLE a RENAME x TO w;"
    lake.database.execute(f"{swap} INSERT INTO a (id, v) VALUES (2, 'of w'); {swap}")
    with pytest.raises(
        ConfigError, match="had the names of others when rows of the log were written"
    ):
        lake.sync()


def test_a_column_that_comes_after_a_new_catalog_is_counted(start: Start) -> None:
    lake = start(TABLE, "a")
    lake.sync()
    lake.database.execute("ALTER TABLE a ADD n int")
    lake.schemas["a"] = lake.catalog("a")["json_schema"]
    lake.database.execute("ALTER TABLE a ADD late int; INSERT INTO a VALUES (2, 'y', 'w', 1, 2)")
    assert re.search(r"does not have.*: late \(1\)", sync(lake))


def test_a_column_that_the_catalog_leaves_out_from_the_start_is_no_warning(start: Start) -> None:
    lake = start(TABLE, "a")
    lake.schemas["a"] = lake.catalog("a")["json_schema"]
    del lake.schemas["a"]["properties"]["w"]
    lake.sync()
    lake.database.execute("INSERT INTO a VALUES (2, 'y', 'w')")
    assert sync(lake) == ""


def test_a_column_that_is_added_while_another_table_is_read(start: Start) -> None:
    lake = start(
        f"CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b VALUES (1); {TABLE}, b", "a", "b"
    )
    lake.schemas["a"] = lake.catalog("a")["json_schema"]

    added: list[Any] = []

    def add(item: Any) -> None:
        if isinstance(item, StreamPart) and item.stream.name == "b" and not added:
            added.append(item)
            lake.database.execute(
                "ALTER TABLE a ADD COLUMN n int; INSERT INTO a VALUES (2, 'y', 'w', 22)"
            )

    lake.sync(add)
    assert "n (1)" in " ".join(lake.warnings)


def test_tables_that_have_each_others_names_for_a_while(start: Start) -> None:
    lake = start(
        f"CREATE TABLE b (id int PRIMARY KEY, v text, w text); INSERT INTO b VALUES (1, 'b', '');{TABLE}, b",
        "a",
        "b",
    )
    lake.sync()
    swap = "ALTER TABLE a RENAME TO x; ALTER TABLE b RENAME TO a; ALTER TABLE x RENAME TO b;"
    lake.database.execute(
        f"{swap} INSERT INTO a VALUES (5, 'into b', ''); DELETE FROM b WHERE id = 1; {swap}"
    )
    lake.sync()
    lake.assert_equal()
    lake.database.execute(f"{swap} INSERT INTO a VALUES (6, 'into b', '')")
    assert "made again" in sync(lake)
    lake.assert_equal()


def test_labels_that_are_renamed_are_told_and_stored_as_the_log_has_them(start: Start) -> None:
    lake = start(
        """CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN dm AS mood;
        CREATE TYPE pair AS (m mood, n int);
        CREATE TABLE a (id int PRIMARY KEY, m mood, ms mood[], ds dm[], p pair);
        INSERT INTO a VALUES (1, 'sad', '{{sad,ok}}', '{{ok}}', '(sad,1)');
        CREATE PUBLICATION {p} FOR TABLE a""",
        "a",
    )
    lake.sync()
    database = lake.database
    database.execute("ALTER TYPE mood ADD VALUE 'happy' BEFORE 'sad'")
    assert sync(lake) == ""
    database.execute(
        "INSERT INTO a VALUES (2, 'happy', '{happy,sad,NULL}', '{sad}', NULL); "
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; INSERT INTO a VALUES (3, 'blue', '{blue}', NULL, NULL)"
    )
    assert re.search(r"were renamed: sad \(now blue\).*elt reset", sync(lake))
    rows = {row["id"]: row for row in lake.rows("a")}
    assert (rows[2]["ms"], rows[2]["ds"]) == (["happy", "sad", None], ["sad"])
    assert rows[3]["m"] == "blue"
    database.execute("ALTER TYPE pair RENAME ATTRIBUTE n TO number")
    assert "n (now number)" in sync(lake)
    assert sync(lake) == ""


def test_values_that_are_changed_without_a_change_of_rows_are_told(start: Start) -> None:
    lake = start(TABLE, "a")
    lake.sync()
    lake.database.execute("ALTER TABLE a ALTER v TYPE text USING 'other'")
    assert re.search(r'"s\d+"."a" was rewritten.*elt reset', sync(lake))
    lake.database.execute("ALTER TABLE a ALTER v TYPE int USING 7")
    assert re.search("the type of the columns v was changed", sync(lake))
    lake.database.execute("TRUNCATE a; INSERT INTO a (id, v) VALUES (1, 1)")
    assert [sync(lake) for _ in range(2)] == ["", ""]
    lake.database.execute("ALTER TABLE a ALTER v TYPE int USING 8")
    assert re.search(r'"s\d+"."a" was rewritten.*elt reset', sync(lake))


def test_labels_of_columns_that_are_not_read_are_not_looked_at(start: Start) -> None:
    lake = start(f"CREATE TYPE mood AS ENUM ('sad'); {TABLE}; ALTER TABLE a ADD m mood", "a")
    schema = lake.catalog("a")["json_schema"]
    del schema["properties"]["m"]
    lake.schemas["a"] = schema
    lake.sync()
    lake.database.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    assert sync(lake) == ""


@pytest.mark.parametrize(
    "change",
    [
        "DROP PUBLICATION {p}; INSERT INTO a VALUES (2, '', ''); CREATE PUBLICATION {p} FOR TABLE a",
        "DROP PUBLICATION {p}; CREATE PUBLICATION {p} FOR ALL TABLES",
        (
            "ALTER PUBLICATION {p} SET TABLE b; INSERT INTO a VALUES (2, '', ''); "
            "ALTER PUBLICATION {p} ADD TABLE a"
        ),
        "ALTER PUBLICATION {p} SET TABLE a (id, v, w)",
    ],
)
def test_a_table_that_was_published_again_is_an_error_until_a_reset(
    start: Start, change: str
) -> None:
    lake = start(f"CREATE TABLE b (id int PRIMARY KEY); {TABLE}", "a")
    lake.sync()
    lake.database.execute(
        change.format(p=lake.config["publication"]) + "; INSERT INTO a VALUES (3, '', '')"
    )
    with pytest.raises(ConfigError, match=r"(?s)left the publication.*not in the log.*elt reset"):
        lake.sync()
    lake.reset_all()
    lake.sync()
    lake.database.execute("INSERT INTO a VALUES (4, '', '')")
    lake.sync()
    lake.assert_equal()


def test_a_new_table_beside_a_publication_that_was_made_again(start: Start) -> None:
    """The slot still has changes from before it, which the server does not decode."""
    lake = start(f"CREATE TABLE b (id int PRIMARY KEY); {TABLE}, b", "a", "b")
    lake.sync()
    name = lake.config["publication"]
    lake.database.execute(
        f"DROP PUBLICATION {name}; INSERT INTO b VALUES (1); CREATE PUBLICATION {name} FOR TABLE a, b"
    )
    lake.reset("b")
    with pytest.raises(
        ConfigError, match=r"(?s)if the publication was made again, reset all streams"
    ):
        lake.sync()
    lake.reset_all()
    lake.sync()
    lake.assert_equal()


def test_a_table_that_was_in_another_schema_for_a_while_is_told(start: Start) -> None:
    lake = start(TABLE.replace("FOR TABLE a", "FOR TABLES IN SCHEMA {s}"), "a")
    lake.sync()
    schema = lake.database.schema
    lake.database.execute(
        f"CREATE SCHEMA {schema}x; ALTER TABLE a SET SCHEMA {schema}x; "
        f"INSERT INTO {schema}x.a VALUES (2, '', ''); ALTER TABLE {schema}x.a SET SCHEMA {schema}; "
        f"DROP SCHEMA {schema}x"
    )
    assert re.search("published with its schema, was altered.*SET SCHEMA.*elt reset", sync(lake))
    assert sync(lake) == ""


def test_a_publication_that_lacks_changes_is_an_error_of_the_sync(start: Start) -> None:
    lake = start(TABLE, "a")
    lake.sync()
    change = f"ALTER PUBLICATION {lake.config['publication']} SET (publish = "
    lake.database.execute(f"{change}'insert')")
    with pytest.raises(ConfigError, match="leaves out some kinds of changes"):
        lake.sync()
    lake.database.execute(f"{change}'insert, update, delete, truncate')")
    assert "was altered since the last sync" in sync(lake)
    assert sync(lake) == ""


@pytest.mark.parametrize("change", ["DROP TABLE m", "SET (publish_via_partition_root = false)"])
def test_a_stream_that_is_not_published_any_more_says_so(start: Start, change: str) -> None:
    lake = start(PARTED, "m")
    lake.sync()
    lake.database.execute(f"ALTER PUBLICATION {lake.config['publication']} {change}")
    (stream,) = [s for s in Postgres().open(lake.config) if s.name == "m"]
    assert stream.sync_modes == ("full_refresh",)
    remedy = r"is not in the publication.*ADD TABLE.*SET \(publish_via_partition_root = true\)"
    assert re.search(remedy, stream.why_full_refresh)


def test_only_published_rows_are_in_the_snapshot(start: Start) -> None:
    lake = start(TABLE + " WHERE (id > 5 OR w = 'it''s')", "a")
    lake.database.execute("INSERT INTO a VALUES (6, 'x', 'w'), (7, 'y', 'w'), (2, 'z', 'it''s')")
    lake.sync()
    assert sorted(row["id"] for row in lake.rows("a")) == [2, 6, 7]
    lake.database.execute(
        "ALTER TABLE a REPLICA IDENTITY FULL; UPDATE a SET id = 3, w = 'w' WHERE id = 6"
    )
    lake.sync()
    assert sorted(row["id"] for row in lake.rows("a")) == [2, 7]


def test_a_table_with_row_security_is_refused_alone(start: Start, database: Database) -> None:
    lake = start(
        f"""CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b VALUES (1); {TABLE}, b;
        CREATE ROLE reader{database.schema} LOGIN REPLICATION; GRANT USAGE ON SCHEMA {database.schema} TO
        reader{database.schema}; GRANT SELECT ON a, b TO reader{database.schema};
        ALTER TABLE a ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON a USING (id > 1)""",
        "a",
        "b",
    )
    lake.config["user"] = f"reader{database.schema}"
    try:
        with pytest.raises(ConfigError, match=r"(?s)row security hides rows.*BYPASSRLS"):
            lake.sync()
        assert [row["id"] for row in lake.rows("b")] == [1]
        database.execute(f"ALTER ROLE reader{database.schema} BYPASSRLS")
        lake.sync()
        lake.assert_equal()
    finally:
        database.execute(
            f"DROP OWNED BY reader{database.schema}; DROP ROLE reader{database.schema}"
        )


def test_a_stream_that_fails_keeps_its_log_and_the_others_go_on(start: Start) -> None:
    """Its state stays, and so does the slot: what came meanwhile is there when it is mended."""
    lake = start(f"CREATE TABLE b (id int PRIMARY KEY, n int[]); {TABLE}, b", "a", "b")
    lake.sync()
    database = lake.database
    database.execute(
        "INSERT INTO a VALUES (2, 'x', 'w'); INSERT INTO b VALUES (1, '{1}'); "
        "ALTER TABLE a ALTER v TYPE int USING 1; INSERT INTO a VALUES (3, 4, 'w')"
    )
    for number in (2, 3):
        database.execute(f"INSERT INTO b VALUES ({number}, '{{2}}')")
        with pytest.raises(ConfigError, match=r"column 'v'.*is not of its type"):
            lake.sync()
        assert list(lake.failures) == ["a"]
        lake.assert_equal("b")
    database.execute("ALTER TABLE a ALTER v TYPE text USING v::text")
    lake.sync()
    assert {row["id"] for row in lake.rows("a")} == {1, 2, 3}


def test_columns_with_names_of_the_logs_fields_are_refused_for_the_log(start: Start) -> None:
    lake = start(
        """CREATE TABLE a (id int PRIMARY KEY, _ab_cdc_lsn numeric, "_AB_CDC_deleted_at" text);
        INSERT INTO a VALUES (1, 5, NULL); CREATE PUBLICATION {p} FOR TABLE a""",
        "a",
    )
    (stream,) = [s for s in Postgres().open(lake.config) if s.name == "a"]
    assert stream.sync_modes == ("full_refresh",)
    assert re.search("names of fields that the log adds.*_ab_cdc_lsn", stream.why_full_refresh)
    assert lake.database.reader("a", FULL).read() == [
        {"id": 1, "_ab_cdc_lsn": "5", "_AB_CDC_deleted_at": None}
    ]


class Transaction:
    """A transaction of another session, which is rolled back unless it is ended before."""

    def __init__(self, database: Database, sql: str):
        self._database, self._sql = database, sql
        self.name = f"other{next(_NUMBERS)}"

    def __enter__(self) -> Transaction:
        name = f"SET application_name = '{self.name}';"
        self._process = start_transaction(self._database, f"{name} {self._sql};")
        return self

    def end(self) -> None:
        end_transaction(self._process, "COMMIT")

    def __exit__(self, *error: object) -> None:
        if self._process.returncode is None:
            end_transaction(self._process, "ROLLBACK")


def test_what_an_older_transaction_has_written_is_read_after_its_end(start: Start) -> None:
    lake = start("CREATE TABLE b (id int PRIMARY KEY, v text);" + TABLE, "a")
    lake.sync()
    database = lake.database
    with Transaction(database, "INSERT INTO b VALUES (1, 'before it was published')") as other:
        database.execute(f"ALTER PUBLICATION {lake.config['publication']} ADD TABLE b")
        database.execute("INSERT INTO b VALUES (2, 'x'), (3, 'y')")
        lake.names = ("a", "b")
        assert re.search(rf"transactions are open.*pid \d+, of elt.*{other.name}", sync(lake))
        lake.assert_equal()
        database.execute("UPDATE b SET v = 'z' WHERE id = 2; DELETE FROM b WHERE id = 3")
        assert other.name in sync(lake)
        other.end()
    assert sync(lake) == ""
    lake.assert_equal()
    assert {row["id"] for row in lake.rows("b")} == {1, 2}


def test_a_table_that_cannot_be_read_on_waits_for_older_transactions(start: Start) -> None:
    lake = start("CREATE TABLE b (id int, v text);" + TABLE, "a", wait_seconds=1)
    lake.sync()
    with Transaction(lake.database, "INSERT INTO b VALUES (1, 'before it was published')") as other:
        lake.database.execute(f"ALTER PUBLICATION {lake.config['publication']} ADD TABLE b")
        lake.names, lake.mode = ("a", "b"), {**lake.mode, "destination_sync_mode": "append"}
        error = rf"transactions are open.*pid \d+, of elt.*{other.name}"
        with pytest.raises(TransientError, match=error):
            lake.sync()
        assert list(lake.failures) == ["b"]


def test_what_keeps_a_slot_from_being_created_is_named(start: Start) -> None:
    lake = start("CREATE TABLE other (x int);" + TABLE, "a", wait_seconds=1)
    with (
        Transaction(lake.database, "INSERT INTO other VALUES (1)") as other,
        pytest.raises(TransientError, match=rf"cannot be created while transactions.*{other.name}"),
    ):
        lake.sync()
    lake.sync()
    lake.assert_equal()


def test_a_sync_whose_hold_on_the_slot_ends_commits_nothing_more(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = start(TABLE, "a")
    lake.sync()
    lake.database.execute("INSERT INTO a VALUES (2, '', '')")

    def end(item: Any) -> None:
        if isinstance(item, StreamPart) and isinstance(item.item, Slice):
            lake.database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            )

    with pytest.raises(TransientError, match="is reserved"):
        lake.sync(end)
    assert len(lake.rows("a")) == 1
    lake.sync()
    lake.assert_equal()
