"""A stream's schema changes, and what becomes of the rows that its tables have."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import DELETED_AT
from tests.lake.harness import Lake
from tests.lake.staging import (
    INTEGER,
    NUMBER,
    STRING,
    TIMESTAMP,
    array,
    checkpoint,
    rows,
    stream,
    struct,
)

UNION = {"type": ["integer", "string"]}


WIDENINGS: list[tuple[Any, Any, Any, Any]] = [
    (INTEGER, NUMBER, -(2**53), -(2.0**53)),
    *((NUMBER, STRING, sent, text) for sent, text in [(1e-4, "0.0001"), (1e10, "10000000000")]),
    (STRING, UNION, "a", '"a"'),
    (INTEGER, UNION, 5, "5"),
    (struct(x=INTEGER), struct(x=NUMBER), {"x": 1}, (1.0,)),
    (array(INTEGER), array(NUMBER), [1, 2], [1.0, 2.0]),
    (TIMESTAMP, STRING, "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"),
]
"""The table's type, the declared one, a value there, the value after."""


def test_rows_are_converted_by_a_widening(lake: Lake, spark: SparkSession) -> None:
    names = [f"c{number}" for number in range(len(WIDENINGS))]
    narrow, wide, sent, expected = zip(*WIDENINGS, strict=True)
    lake.sync(stream(dict(zip(names, narrow, strict=True))), dict(zip(names, sent, strict=True)))
    lake.sync(stream(dict(zip(names, wide, strict=True))), {})
    assert rows(spark, lake.table, *names) == [expected, (None,) * len(names)]
    assert lake.table.metadata.sequence == 3  # the rewriting is a commit of its own


def test_a_widening_that_would_change_a_value_is_an_error(lake: Lake) -> None:
    lake.sync(stream({"id": INTEGER}), {"id": 2**53 + 1})
    writer = lake.writer(stream({"id": NUMBER}))
    writer.write(lake.stage({"id": 1.5}))
    with pytest.raises(ConfigError, match="would change"):
        writer.commit(checkpoint(1, final=True))
    assert lake.ids() == [2**53 + 1]


def test_a_widening_converts_the_history_and_the_tombstones(
    lake: Lake, spark: SparkSession
) -> None:
    lake.history = True
    deletable = {"_ab_cdc_deleted_at": STRING, "at": TIMESTAMP}

    def keyed(number: Any) -> Any:
        fields = {"id": INTEGER, "n": number, **deletable}
        return stream(fields, "append_dedup", key=["id"], cursor=["at"])

    def row(key: int, n: Any, hour: int, *, deleted: bool = False) -> dict[str, Any]:
        gone = "yes" if deleted else None
        return {"id": key, "n": n, "at": f"2026-01-01T{hour:02}:00:00Z", "_ab_cdc_deleted_at": gone}

    lake.sync(keyed(INTEGER), row(1, 1, 1), row(2, 2, 1), row(2, 2, 3, deleted=True), value=1)
    lake.sync(keyed(NUMBER), row(1, 1.5, 2), row(2, 2.5, 2), value=2)
    assert rows(spark, lake.table, "id", "n") == [(1, 1.5)]
    assert lake.versions("id", "n", "_is_current") == [
        (1, 1.0, False),
        (1, 1.5, True),
        (2, 2.0, False),
        (2, 2.5, False),
    ]


@pytest.mark.parametrize("is_new", [True, False], ids=["new table", "new column"])
@pytest.mark.parametrize("policy", ["append_dedup", "overwrite_dedup"])
def test_a_widening_converts_deletes_of_the_commit_that_brought_their_column(
    lake: Lake, spark: SparkSession, policy: str, is_new: bool
) -> None:
    """The hidden files of a history have columns that their commit adds to it."""
    lake.history = True
    syncs = iter(range(1, 9))

    def sync(fields: dict[str, Any], *records: dict[str, Any]) -> None:
        number = next(syncs)
        fields = {"id": INTEGER, "at": INTEGER, DELETED_AT: STRING, **fields}
        generation = number if policy == "overwrite_dedup" else 1
        configured = stream(fields, policy, key=["id"], cursor=["at"], generation=generation)
        lake.sync(configured, *({"at": number, **record} for record in records), value=number)

    gone = {"id": 2, DELETED_AT: "yes"}
    if not is_new:
        sync({}, {"id": 1})
    sync({"n": INTEGER}, {"id": 1, "n": 1}, {**gone, "n": 7})
    history = lake.tables().history
    assert history is not None and history.metadata.hidden
    sync({"n": STRING}, {"id": 1, "n": "b"}, {**gone, "n": "c"})
    older = {"id": 2, "n": "e", "at": 0}  # than the delete
    sync({"n": STRING}, {"id": 1, "n": "d"}, *([older] if policy == "append_dedup" else []))
    assert rows(spark, lake.table, "id", "n") == [(1, "d")]
    assert (1, "1", False) in lake.versions("id", "n", "_is_current")


def test_tombstones_of_a_replaced_table_have_its_new_types(lake: Lake, spark: SparkSession) -> None:
    """The commit that replaces the rows also replaces the columns, those of the hidden files too."""

    def keyed(number: Any, generation: int, **more: Any) -> Any:
        fields = {"id": INTEGER, "n": number, DELETED_AT: STRING, **more}
        return stream(fields, "overwrite_dedup", key=["id"], cursor=["n"], generation=generation)

    def row(key: int, n: Any, gone: str | None = None) -> dict[str, Any]:
        return {"id": key, "n": n, DELETED_AT: gone}

    lake.sync(keyed(INTEGER, 1), row(1, 1), row(2, 2, "yes"), value=1)
    lake.sync(keyed(NUMBER, 2), row(1, 1.5), row(2, 2.5, "yes"), value=2)
    lake.sync(keyed(NUMBER, 3, more=STRING), row(1, 3.5), value=3)
    lake.sync(keyed(STRING, 4), row(1, "4"), row(2, "5", "yes"), value=4)
    lake.sync(keyed(STRING, 5), row(3, "6"), value=5)
    assert rows(spark, lake.table, "id", "n") == [(3, "6")]


def test_a_table_restored_to_narrower_types_gets_the_types_of_its_history(
    lake: Lake, spark: SparkSession
) -> None:
    """The restore does not change the history, whose files have the wider types."""
    lake.history = True

    def keyed(number: Any) -> Any:
        fields = {"id": INTEGER, "n": number, "part": {"properties": {"n": number}}}
        return stream(fields, "append_dedup", key=["id"], cursor=["n"])

    def row(key: int, n: Any) -> dict[str, Any]:
        return {"id": key, "n": n, "part": {"n": n}}

    lake.sync(keyed(INTEGER), row(1, 1), row(2, 2), value=1)
    version = lake.table.version
    lake.sync(keyed(NUMBER), row(1, 3.5), value=2)
    DeltaTable(lake.table.uri).restore(version)
    lake.sync(keyed(INTEGER), row(1, 4), value=3)
    assert rows(spark, lake.table, "id", "n", "part.n") == [(1, 4.0, 4.0), (2, 2.0, 2.0)]
    found = lake.versions("id", "n", "_is_current")
    assert sorted(found) == [(1, 1.0, False), (1, 4.0, True), (2, 2.0, True)]


def test_frozen_columns_reject_values_that_evolve_accepts(lake: Lake, spark: SparkSession) -> None:
    lake.sync(stream({"id": INTEGER}), {"id": 1})
    text = stream({"id": STRING})
    done = lake.sync(text, {"id": "x"}, {"id": "2"}, {"id": 3}, on_schema_change="freeze")
    assert done.records + done.rejected == 3
    assert done.rejected >= 1 and done.changed == 0
    assert "id" in rows(spark, lake.dead_letter, "reason")[0][0]
    lake.sync(text, {"id": "x"})
    assert ("x",) in rows(spark, lake.table, "id") and ("1",) in rows(spark, lake.table, "id")


@pytest.mark.parametrize("with_history", [False, True])
def test_a_delete_is_applied_if_frozen_columns_lack_the_marker(
    lake: Lake, spark: SparkSession, with_history: bool
) -> None:
    lake.history = with_history
    fields = {"id": INTEGER, "n": INTEGER, "at": INTEGER}
    keyed: dict[str, Any] = {"policy": "append_dedup", "key": ["id"], "cursor": ["at"]}
    plain, marked = stream(fields, **keyed), stream({**fields, DELETED_AT: STRING}, **keyed)

    lake.sync(plain, {"id": 1, "n": 1, "at": 1}, {"id": 2, "n": 2, "at": 1}, value=1)
    delete = {"id": 2, "n": None, "at": 3, DELETED_AT: "2026-01-01"}
    lake.sync(marked, delete, {"id": 3, "n": 3, "at": 3}, value=2, on_schema_change="freeze")
    assert rows(spark, lake.table, "id", "n") == [(1, 1), (3, 3)]
    assert DELETED_AT not in lake.table.schema.names

    late = {"id": 2, "n": 2, "at": 2}  # older than the delete, whoever still has the marker
    lake.sync(marked, late, value=3, on_schema_change="freeze")
    lake.sync(plain, late, value=4, on_schema_change="freeze")
    assert rows(spark, lake.table, "id", "n") == [(1, 1), (3, 3)]
    lake.sync(marked, late, {"id": 1, "at": 4, DELETED_AT: "2026-01-02"}, value=5)
    assert rows(spark, lake.table, "id", "n") == [(3, 3)]


def test_new_nested_fields_are_null_in_existing_rows(lake: Lake, spark: SparkSession) -> None:
    narrow = stream({"o": struct(x=INTEGER), "l": array(struct(x=INTEGER))})
    lake.sync(narrow, {"o": {"x": 1}, "l": [{"x": 1}]})
    wider = stream({"o": struct(x=INTEGER, y=STRING), "l": array(struct(x=INTEGER, y=STRING))})
    lake.sync(wider, {"o": {"x": 2, "y": "b"}, "l": [{"x": 2, "y": "b"}]})
    assert rows(spark, lake.table, "o", "l") == [
        ((1, None), [(1, None)]),
        ((2, "b"), [(2, "b")]),
    ]


def test_a_cursor_type_without_an_order_is_refused(lake: Lake) -> None:
    for kind in (UNION, array(INTEGER), struct(x=INTEGER)):
        wanted = stream({"id": INTEGER, "at": kind}, "append_dedup", key=["id"], cursor=["at"])
        with pytest.raises(ConfigError, match="has no order"):
            lake.writer(wanted)


@pytest.mark.parametrize("policy", ["append_dedup", "overwrite_dedup"])
def test_fields_that_are_renamed_in_case_only_keep_their_columns(
    lake: Lake, spark: SparkSession, policy: str
) -> None:
    """Key, cursor, nested fields and elements too, with a history."""
    lake.history = True

    def sync(number: int, change: Any, *data: dict[str, Any], mode: Any = "evolve") -> None:
        part = {"City": STRING, "No": NUMBER if number > 3 else INTEGER}
        fields = {"Id": INTEGER, "At": INTEGER, "Email": STRING}
        nested = {
            "Part": struct(**_renamed(part, change)),
            "List": array(struct(**_renamed({"X": INTEGER}, change))),
        }
        configured = stream(
            _renamed({**fields, **nested}, change),
            policy,
            key=[change("Id")],
            cursor=[change("At")],
            generation=1,
        )
        renamed = (_renamed(each, change) for each in data)
        lake.sync(configured, *renamed, value=number, on_schema_change=mode)

    def row(key: int, at: int, city: str) -> dict[str, Any]:
        part = {"City": city, "No": 1}
        return {"Id": key, "At": at, "Email": f"{at}@x", "Part": part, "List": [{"X": at}]}

    sync(1, str, row(1, 1, "A"), row(2, 1, "B"))
    sync(2, str.lower, row(2, 3, "C"), row(3, 2, "D"), {**row(4, 2, "x"), "Email": 5})
    sync(3, str.upper, row(2, 2, "too late"), row(1, 4, "E"), mode="fail")
    sync(4, str.lower, row(5, 1, "F"))
    assert [name for name in lake.table.schema.names if not name.startswith("_")] == [
        *("Id", "At", "Email", "Part", "List")
    ]
    assert rows(spark, lake.table, "Id", "At", "Email", "Part.City", "List.X") == [
        (1, 4, "4@x", "E", [4]),
        (2, 3, "3@x", "C", [3]),
        (3, 2, "2@x", "D", [2]),
        (4, 2, "5", "x", [2]),
        (5, 1, "1@x", "F", [1]),
    ]
    assert lake.versions("Id", "At", "Part.City", "_is_current")[:2] == [
        (1, 1, "A", False),
        (1, 4, "E", True),
    ]


def _renamed(value: Any, change: Any) -> Any:
    """Return a record, or the properties of a schema, with other names of the fields."""
    if isinstance(value, list):
        return [_renamed(each, change) for each in value]
    if not isinstance(value, dict):
        return value
    is_schema = "type" in value
    return {
        name if is_schema else change(name): each if is_schema else _renamed(each, change)
        for name, each in value.items()
    }


def test_a_record_with_fields_of_both_cases_keeps_both(lake: Lake, spark: SparkSession) -> None:
    lake.sync(stream({"id": INTEGER, "Email": STRING}), {"id": 1, "Email": "1@x"})
    both = stream({"id": INTEGER, "email": STRING, "Email": STRING})
    lake.sync(both, {"id": 2, "Email": "2@x", "email": "2@y"})
    lake.sync(stream({"id": INTEGER, "email": STRING}), {"id": 3, "email": "3@y"})
    names = [column.name for column in lake.table.schema.fields if not column.name.startswith("_")]
    assert len(names) == 3 and names[1] == "Email"
    assert rows(spark, lake.table, *names) == [
        (1, "1@x", None),
        (2, "2@x", "2@y"),
        (3, None, "3@y"),
    ]
