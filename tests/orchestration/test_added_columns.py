"""Fields that the catalog does not declare, through assets: columns that are added, and syncs that stop."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from elt_assets import read_table
from elt_assets.cli import main
from elt_assets.connection import find_place, load_catalog
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from tests.orchestration.test_streams import KEYED, TYPES, sync, things
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, read_log

pytestmark = pytest.mark.usefixtures("spark_provider")

ADDING: dict[str, Any] = {**KEYED, "on_undeclared": "add"}


def types_of(spark: SparkSession, key: str = "scripted/things") -> dict[str, str]:
    schema = read_table(spark, key).schema
    return {f.name: f.dataType.simpleString() for f in schema if not f.name.startswith("_")}


def test_a_field_becomes_a_column_and_stays_one(own: Project, spark: SparkSession) -> None:
    """Also when the next sync has no value of it, and when the catalog declares it at last."""
    sync(own, record(id=1, name="a"), state(1), **ADDING)
    result = sync(own, record(id=2, colour="red", size=3), record(id=3), state(3), **ADDING)
    assert "columns were added" in read_log(own, result)
    assert "'colour' (string) is new" in str(own.metadata("scripted", "things"))
    assert types_of(spark) == {
        "id": "bigint",
        "name": "string",
        "colour": "string",
        "size": "bigint",
    }
    sync(own, record(id=4, colour="blue"), state(4), **ADDING)
    assert "elt/schema_changes" not in own.metadata("scripted", "things")
    assert "elt/undeclared_fields" not in own.metadata("scripted", "things")
    sync(own, record(id=5, colour="green"), state(5), **KEYED)  # the others are only counted now
    assert [row["colour"] for row in things(spark)] == [None, "red", None, "blue", "green"]
    declared = {**TYPES, "colour": {"type": "string"}, "size": {"type": "integer"}}
    sync(own, record(id=6, colour="pink", size=1), state(6), **KEYED, schema=declared)
    assert types_of(spark) == {
        "id": "bigint",
        "name": "string",
        "colour": "string",
        "size": "bigint",
    }
    assert [(row["colour"], row["size"]) for row in things(spark)][-1] == ("pink", 1)


def test_a_type_of_an_added_column_grows_with_its_values(own: Project, spark: SparkSession) -> None:
    nested = {**TYPES, "address": {"type": "object", "properties": {"city": {"type": "string"}}}}
    more = {**ADDING, "schema": nested}
    sync(own, record(id=1, size=1, address={"city": "x", "zip": 1}, none=None), state(1), **more)
    assert types_of(spark) == {
        "id": "bigint",
        "name": "string",
        "address": "struct<city:string,zip:bigint>",
        "size": "bigint",
    }
    lines = [
        record(id=2, size=1.5, address={"city": "x", "zip": "0"}),
        record(id=3, none=[{"a": True}]),
    ]
    sync(own, *lines, state(3), **more)
    assert types_of(spark) == {
        "id": "bigint",
        "name": "string",
        "address": "struct<city:string,zip:string>",
        "size": "double",
        "none": "array<struct<a:boolean>>",
    }
    rows = read_table(spark, "scripted/things").orderBy("id").collect()
    assert [row["size"] for row in rows] == [1.0, 1.5, None]
    assert [row.address and row.address.zip for row in rows] == ["1", "0", None]
    assert all(not row._airbyte_meta.changes for row in rows)


def test_an_added_column_keeps_its_name_beside_one_that_is_alike(
    own: Project, spark: SparkSession
) -> None:
    """A field that differs from a declared one in case only is that field."""
    lines = [record(**{"id": 1, "Name": "a", "a b": 1, "a_b": 2}), state(1)]
    sync(own, *lines, **ADDING, history=True)
    (row,) = things(spark)
    assert row["name"] == "a"
    names = sorted(set(row) - {"id", "name"})
    assert names[0] == "a_b"
    assert (row["a_b"], row[names[1]]) == (2, 1)
    sync(own, record(**{"id": 1, "a b": 3, "a_b": 4}), state(2), **ADDING, history=True)
    (row,) = things(spark)
    assert (row["a_b"], row[names[1]]) == (4, 3)
    assert {"a_b", names[1]} <= types_of(spark, "scripted/things_history").keys()


def test_a_field_that_must_not_be_stored_is_not_added(own: Project, spark: SparkSession) -> None:
    fields = {"exclude": ["name"], "hash": ["mail"]}
    schema = {**TYPES, "mail": {"type": "string"}}
    line = record(id=1, NAME="secret", MAIL="a@b", colour="red")
    sync(own, line, state(1), **ADDING, fields=fields, schema=schema)
    (row,) = things(spark)
    assert row["colour"] == "red"
    assert "secret" not in str(row) and "a@b" not in str(row)
    included = {"include": ["id"]}
    sync(own, record(id=2, size=1), state(2), **ADDING, fields=included, schema=schema)
    assert "size" not in types_of(spark)


def test_names_that_are_data_are_refused(own: Project) -> None:
    names = {f"n{number}": 1 for number in range(101)}
    script(own, [record(id=1, **names), state(1)], **ADDING)
    result = materialize(own)
    assert "names may be data" in failure_of(result)
    sync(own, record(id=1, **names), state(1), **{**ADDING, "on_undeclared": "keep"})


@pytest.mark.parametrize("remedy", ["ignore", "warn", "keep", "add", "discover"])
def test_a_sync_stops_before_the_record_and_goes_on(
    own: Project, spark: SparkSession, remedy: str
) -> None:
    stopping = {**KEYED, "on_undeclared": "stop"}
    lines = [
        record(id=1, name="a"),
        state(1),
        record(id=2),
        record(id=3, colour="crimson"),
        state(3),
    ]
    script(own, lines, **stopping)
    result = materialize(own)
    text = failure_of(result)
    assert "colour" in text and "crimson" not in text
    assert "elt discover scripted" in text
    assert [row["id"] for row in things(spark)] == [1]
    if remedy == "discover":
        types = {**TYPES, "colour": {"type": "string"}}
        script(own, lines[2:], **stopping, schema=types)
        assert main(["discover", "scripted"]) == 0
        assert materialize(own).success
    else:
        sync(own, *lines[2:], **{**KEYED, "on_undeclared": remedy})
    assert [row["id"] for row in things(spark)] == [1, 2, 3]


def test_settings_that_do_not_go_together_are_refused(own: Project) -> None:
    script(own, [], **{**ADDING, "on_schema_change": "freeze"})
    with pytest.raises(ConfigError, match="write `on_schema_change: evolve`"):
        build()
    contract = {"columns": {"id": "bigint"}, "others": "refuse"}
    script(own, [], **ADDING, contract=contract)
    with pytest.raises(ConfigError, match="the `contract` refuses"):
        build()
    assert load_catalog(find_place("scripted")).streams


def test_fields_of_objects_that_the_schema_lacks_are_named_or_stored(
    own: Project, spark: SparkSession
) -> None:
    schema = {
        **TYPES,
        "testing": {"type": "object", "properties": {"id": {"type": "string"}}},
        "teams": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }
    more = {"id": 1, "testing": {"id": "a", "isAbVariation": True}}
    line = record(**more, teams=[{"name": "x"}, {"name": "y", "primary": False}])
    result = sync(own, line, state(1), **KEYED, schema=schema)
    counts = {"testing.isAbVariation": 1, "teams.primary": 1}
    assert own.metadata("scripted", "things")["elt/undeclared_fields"] == counts
    assert "teams.primary (1 records)" in read_log(own, result)
    sync(own, line, state(2), **ADDING, schema=schema)
    (row,) = read_table(spark, "scripted/things").collect()
    assert row.testing.isAbVariation is True
    assert [team.primary for team in row.teams] == [None, False]
