"""Rows that stay after their source has deleted them (`deletes: keep`).

What reports of other tools say went wrong there is tried: dlt-hub/dlt#4165, artie-labs/transfer#796 (a delete
takes the values away), linkedin/datahub-gma#549, dbt-labs/dbt-core#2749 (a row that comes again is deleted),
ardent-data/weevr#203, oracle/dbt-oracle#179 (each run marks the row again), PeerDB-io/peerdb#961 (a resync),
airbytehq/airbyte#66330 (a delete of a key without a row), airbytehq/airbyte#63379 (no time of the delete).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.columns.metadata_columns import RAW_ID, ROW_DELETED_AT
from elt_assets.lake.merge import file_splitting
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.lake.read.changes import ChangeReader, Position, find_changes, read_commit_name
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT, ConfiguredStream
from tests.lake.harness import Lake
from tests.lake.plain import NoSpark, rows_of, without_spark
from tests.lake.publishing import oracle
from tests.lake.staging import INTEGER, STRING, TIMESTAMP, checkpoint, rows, stream

pytestmark = pytest.mark.spark
SMALL = (file_splitting, "MAX_ROWS_UNSPLIT", 0)
"""Lets each merge split the files of its table."""
NOON = "2026-03-01T12:00:00Z"
Values = tuple[Any, ...]


def people(marker: Any = None, cursor: Sequence[str] = ("at",), **more: Any) -> ConfiguredStream:
    marker = marker or TIMESTAMP
    fields = {"id": INTEGER, "name": STRING, "at": INTEGER, DELETED_AT: marker, **more}
    return stream(fields, APPEND_DEDUP, key=["id"], cursor=cursor)


def sync(lake: Lake, *records: Any, configured: ConfiguredStream | None = None, **more: Any) -> Any:
    """One sync, as of a stream with `deletes: keep`."""
    configured = configured or people()
    configured.sync_id = lake.tables().metadata.sync_id + 1
    return lake.sync(configured, *records, **{"keeps_deleted": True, **more})


def plain_rows(lake: Lake, *names: str) -> list[Values]:
    """Some columns of a lake without Spark, and whether each row is deleted."""
    table = lake.table
    stored = [row for file in table.files for row in rows_of(table.storage.root, file)]
    return sorted(
        ((*(row[name] for name in names), row.get(ROW_DELETED_AT)) for row in stored), key=repr
    )


AT_NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize("is_split", [False, True])
def test_a_row_stays_with_its_values_and_the_time_of_its_delete(
    tmp_path: Path, is_split: bool
) -> None:
    with without_spark(*([SMALL] if is_split else [])):
        lake = Lake(cast(SparkProvider, NoSpark()), tmp_path)
        sync(lake, *({"id": n, "name": f"n{n}", "at": 1} for n in (1, 2, 3)))
        sync(lake, {"id": 1, "at": 2, DELETED_AT: NOON}, {"id": 9, "at": 2, DELETED_AT: NOON})
        live = [(n, f"n{n}", 1, None) for n in (2, 3)]
        gone = (1, "n1", 1, AT_NOON)
        assert plain_rows(lake, "id", "name", "at") == [gone, *live]

        # It comes again: nothing changes, neither the row nor its id.
        ids = plain_rows(lake, "id", RAW_ID)
        sync(lake, {"id": 1, "at": 2, DELETED_AT: NOON})
        sync(lake, {"id": 1, "name": "n1", "at": 1}, {"id": 1, "at": 3, DELETED_AT: NOON})
        assert plain_rows(lake, "id", RAW_ID) == ids

        sync(lake, {"id": 1, "name": "late", "at": 1})  # of equal cursors, the later one
        assert plain_rows(lake, "id", "name", "at")[0] == (1, "late", 1, AT_NOON)
        sync(lake, {"id": 1, "name": "back", "at": 4})
        assert plain_rows(lake, "id", "name", "at") == [(1, "back", 4, None), *live]
        sync(lake, {"id": 9, "name": "older than its delete", "at": 1})
        assert plain_rows(lake, "id", "name")[-1] == (9, "older than its delete", AT_NOON)


@pytest.mark.parametrize(
    ("marker", "value", "is_time"),
    [
        (TIMESTAMP, NOON, True),
        (STRING, "2026-03-01 13:00:00+01:00", True),
        (STRING, "yes", False),
        ({"type": "boolean"}, False, False),
        (TIMESTAMP, "yes", False),  # becomes null, with a recorded change
    ],
)
def test_the_time_is_that_of_the_marker_or_of_the_extraction(
    tmp_path: Path, marker: Any, value: Any, is_time: bool
) -> None:
    with without_spark():
        lake = Lake(cast(SparkProvider, NoSpark()), tmp_path)
        sync(lake, {"id": 1, "name": "a", "at": 1}, configured=people(marker))
        gone = {"id": 1, "at": 2, DELETED_AT: value}
        sync(lake, gone, configured=people(marker))
        ((_, extracted, time),) = plain_rows(lake, "id", "_airbyte_extracted_at")
        assert time == (AT_NOON if is_time else extracted)
        sync(lake, {"id": 1, "name": "b", "at": 3}, configured=people(marker))
        assert plain_rows(lake, "name") == [("b", None)]


Record = tuple[int, int, str, bool, bool]
RECORDS: st.SearchStrategy[list[Record]] = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(1, 3),
        st.sampled_from("ab"),
        *[st.sampled_from([0, 0, 1])] * 2,
    ).map(lambda record: (*record[:3], bool(record[3]), bool(record[4]))),
    max_size=5,
)


def frozen(kind: Any, cursor: Sequence[str]) -> ConfiguredStream:
    """A stream whose column `value` has a type that not every record fits: some are rejected."""
    return people(STRING, cursor, value=kind)


def event(id_: int, day: int, name: str, is_gone: bool, is_misfit: bool) -> dict[str, Any]:
    value = "one" if is_misfit else 1
    gone = f"2026-03-0{day}T00:00:00Z" if is_gone else None
    return {"id": id_, "at": day, "name": name, "value": value, DELETED_AT: gone}


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(st.tuples(RECORDS, st.booleans()), min_size=2, max_size=6),
    is_split=st.booleans(),
    has_cursor=st.booleans(),
)
def test_any_history_keeps_the_same_rows_as_one_without_deleted_rows(
    batches: list[tuple[list[Record], bool]], is_split: bool, has_cursor: bool
) -> None:
    compare_lakes(batches, is_split=is_split, has_cursor=has_cursor)


@pytest.mark.long
@settings(max_examples=2_000, deadline=None)
@given(
    batches=st.lists(st.tuples(RECORDS, st.booleans()), min_size=2, max_size=6),
    is_split=st.booleans(),
    has_cursor=st.booleans(),
)
def test_many_histories_keep_the_same_rows_as_ones_without_deleted_rows(
    batches: list[tuple[list[Record], bool]], is_split: bool, has_cursor: bool
) -> None:
    compare_lakes(batches, is_split=is_split, has_cursor=has_cursor)


def compare_lakes(
    batches: list[tuple[list[Record], bool]], *, is_split: bool, has_cursor: bool
) -> None:
    """Rows that the source has are those of a lake that removes deleted ones, with replays in between; and
    deleted rows do not depend on whether rows that come again are skipped."""
    cursor = ("at",) if has_cursor else ()
    ways = {
        "removes": {"keeps_deleted": False},
        "keeps": {},
        "rewrites": {"skips_unchanged": False},
    }
    with TemporaryDirectory() as folder, without_spark(*([SMALL] if is_split else [])):
        lakes = {name: Lake(cast(SparkProvider, NoSpark()), Path(folder, name)) for name in ways}
        for number, (records, replays) in enumerate(batches):
            for name, more in ways.items():
                some = [event(*record[:4], record[4] and number > 0) for record in records]
                configured = frozen(INTEGER if number == 0 else STRING, cursor)
                sync(lakes[name], *some, configured=configured, on_schema_change="freeze", **more)
                if replays:
                    accept_rejected(lakes[name], frozen(STRING, cursor), **more)
            stored = {name: plain_rows(lake, "id", "at", "name") for name, lake in lakes.items()}
            assert stored["keeps"] == stored["rewrites"]
            assert [row for row in stored["keeps"] if row[-1] is None] == stored["removes"]


def accept_rejected(
    lake: Lake, configured: ConfiguredStream, *, keeps_deleted: bool = True, **_: Any
) -> None:
    tables = lake.tables()
    tables.roll_back_companions("replay")
    configured.sync_id = tables.metadata.sync_id + 1
    spec = WriteSpec(configured, "replay", keeps_deleted=keeps_deleted)
    replay(lake.provider, tables, spec, lake.scratch)


def test_a_table_that_has_rows_gets_the_column_and_loses_it_by_no_accident(lake: Lake) -> None:
    first = {"id": 1, "name": "a", "at": 1}
    sync(lake, first, {"id": 2, "name": "b", "at": 1}, keeps_deleted=False)
    sync(lake, {"id": 2, "at": 2, DELETED_AT: NOON}, keeps_deleted=False)
    assert ROW_DELETED_AT not in lake.table.schema.names
    sync(lake, {"id": 3, "name": "c", "at": 3})
    sync(lake, {"id": 3, "name": "c", "at": 4}, keeps_deleted=False)  # nothing is deleted yet
    sync(lake, {"id": 1, "at": 5, DELETED_AT: NOON})
    assert rows(lake.spark, lake.table, "id", ROW_DELETED_AT)[1] == (3, None)
    with pytest.raises(ConfigError, match=r"`deletes: keep` is not set any more") as raised:
        sync(lake, {"id": 4, "name": "d", "at": 6}, keeps_deleted=False)
    assert "--refresh truncate" in str(raised.value.guidance)
    sync(lake, {"id": 4, "name": "d", "at": 6})  # the first remedy
    refreshed = people()
    refreshed.generation_id = refreshed.minimum_generation_id = 2
    sync(lake, first, configured=refreshed, keeps_deleted=False)  # the second one
    assert lake.ids() == [1]
    assert ROW_DELETED_AT not in lake.table.schema.names


def test_a_refresh_replaces_deleted_rows_unless_it_retains_rows(lake: Lake) -> None:
    sync(lake, *({"id": n, "name": "a", "at": 1} for n in (1, 2)))
    sync(lake, {"id": 1, "at": 2, DELETED_AT: NOON})
    retaining, truncating = people(), people()
    retaining.generation_id = 2
    sync(lake, {"id": 2, "name": "a", "at": 1}, configured=retaining)
    assert lake.ids() == [1, 2]
    truncating.generation_id = truncating.minimum_generation_id = 3
    writer = lake.writer(truncating, keeps_deleted=True)
    for records in (
        [{"id": n, "name": "b", "at": 1} for n in (2, 3)],
        [{"id": 3, "at": 2, DELETED_AT: NOON}],
    ):
        writer.write(lake.stage(*records))
        writer.commit(checkpoint())
    assert lake.ids() == [1, 2]
    writer.commit(checkpoint(final=True))
    assert [row[:2] for row in rows(lake.spark, lake.table, "id", "name")] == [(2, "b"), (3, "b")]
    assert dict(rows(lake.spark, lake.table, "id", ROW_DELETED_AT))[3] is not None


@pytest.mark.parametrize("begins_later", [False, True])
def test_a_history_ends_the_version_of_a_row_that_stays(lake: Lake, begins_later: bool) -> None:
    lake.history = not begins_later
    sync(lake, *({"id": n, "name": "a", "at": 1} for n in (1, 2)))
    sync(lake, {"id": 1, "at": 2, DELETED_AT: NOON})
    lake.history = True
    sync(lake, {"id": 2, "name": "b", "at": 3})
    gone = [] if begins_later else [(1, "a", False)]
    names = ("id", "name", "_is_current")
    assert lake.versions(*names) == [*gone, (2, "a", False), (2, "b", True)]
    assert ROW_DELETED_AT not in lake.tables().companions["history"].schema.names
    refreshed = people()
    refreshed.generation_id = refreshed.minimum_generation_id = 2
    sync(
        lake, {"id": 1, "name": "c", "at": 1}, {"id": 2, "name": "b", "at": 3}, configured=refreshed
    )
    assert [row for row in lake.versions(*names) if row[2]] == [(1, "c", True), (2, "b", True)]
    sync(lake, {"id": 1, "at": None, DELETED_AT: NOON}, configured=refreshed)
    assert [row for row in lake.versions(*names) if row[2]] == [(2, "b", True)]
    assert lake.ids() == [1, 2]


def test_readers_of_changes_get_a_deleted_row_as_an_update(lake: Lake) -> None:
    sync(lake, *({"id": n, "name": "a", "at": 1} for n in (1, 2)))
    seen = lake.table.version
    position = Position(seen, read_commit_name(lake.table, seen))
    sync(lake, {"id": 1, "at": 2, DELETED_AT: NOON})
    changes = find_changes(lake.table, position, None)
    reader = ChangeReader.create(changes, None, [["id"]])
    (changed,) = reader.scan_rows().to_table().to_pylist()
    assert (changes.reload, changed["id"], changed["name"]) == (None, 1, "a")
    assert changed[ROW_DELETED_AT] is not None
    assert not reader.scan_deleted().to_table().to_pylist()


@pytest.mark.parametrize("name", [ROW_DELETED_AT, "_Deleted_At"])
def test_a_field_with_the_name_of_the_column_is_refused(lake: Lake, name: str) -> None:
    field: dict[str, Any] = {name: TIMESTAMP}
    with pytest.raises(ConfigError, match=r"`deletes: keep` needs the column '_deleted_at'"):
        sync(lake, {"id": 1, "at": 1}, configured=people(None, **field))
    # Without it, the field is one like any other.
    sync(
        lake, {"id": 1, "at": 1, name: NOON}, configured=people(None, **field), keeps_deleted=False
    )
    sync(
        lake,
        {"id": 1, "at": 2, DELETED_AT: NOON},
        configured=people(None, **field),
        keeps_deleted=False,
    )
    with pytest.raises(ConfigError, match=r"or its table has a column"):
        sync(lake, {"id": 1, "at": 1}, configured=people(renamed=TIMESTAMP))
    remedy = people(renamed=TIMESTAMP)
    remedy.generation_id = remedy.minimum_generation_id = 2
    sync(lake, {"id": 1, "at": 1, "renamed": NOON}, configured=remedy)
    assert rows(lake.spark, lake.table, "id", ROW_DELETED_AT) == [(1, None)]


def test_deleted_rows_stay_in_each_partition(lake: Lake) -> None:
    for partition in ("a", "b"):
        sync(lake, {"id": 1, "name": partition, "at": 1}, partition=partition)
    sync(lake, {"id": 1, "at": 2, DELETED_AT: NOON}, partition="a")
    stored = rows(lake.spark, lake.table, "name", ROW_DELETED_AT)
    assert [(name, time is not None) for name, time in stored] == [("a", True), ("b", False)]
    with pytest.raises(ConfigError, match="is not set any more"):
        sync(lake, {"id": 1, "name": "c", "at": 3}, partition="b", keeps_deleted=False)


def test_a_wider_type_and_a_new_column_take_deleted_rows_along(lake: Lake) -> None:
    sync(lake, {"id": 1, "name": "a", "at": 1}, {"id": 2, "name": "b", "at": 1})
    sync(lake, {"id": 1, "at": 2, DELETED_AT: NOON})
    wider = people(more=STRING)
    wider.stream.json_schema["properties"]["id"] = STRING
    sync(lake, {"id": "2", "name": "b", "at": 3, "more": "x"}, configured=wider)
    stored = rows(lake.spark, lake.table, "id", "name", ROW_DELETED_AT, "more")
    assert [(i, n, time is not None, m) for i, n, time, m in stored] == [
        ("1", "a", True, None),
        ("2", "b", False, "x"),
    ]
    sync(lake, {"id": "1", "name": "c", "at": 4}, configured=wider)
    assert rows(lake.spark, lake.table, "id", ROW_DELETED_AT)[0] == ("1", None)


def test_deleted_rows_are_published_in_iceberg(tmp_path: Path) -> None:
    publisher = Publisher(oracle.sqlite_settings(tmp_path / "catalog"))
    with without_spark():
        lake = Lake(cast(SparkProvider, NoSpark()), tmp_path / "shop")
        table = oracle.lake_table(Path(lake.uri))
        sync(lake, *({"id": n, "name": "a", "at": 1} for n in (1, 2)), keeps_deleted=False)
        publisher.publish(table)  # before the table has the column
        for record in ({"at": 2, DELETED_AT: NOON}, {"name": "b", "at": 3}):
            sync(lake, {"id": 1, **record})
            publisher.publish(table)
            oracle.check_current(publisher, table)
            iceberg = oracle.load(publisher, table)
            assert iceberg is not None
            times = iceberg.scan().to_arrow().sort_by("id").column(ROW_DELETED_AT).to_pylist()
            assert times == [AT_NOON if DELETED_AT in record else None, None]
