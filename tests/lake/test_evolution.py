"""Columns that are new to a table that exists."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.columns.evolution import SchemaPlan, plan, plan_replacement
from elt_assets.lake.columns.from_json_schema import columns, read_names
from elt_assets.lake.columns.logical_types import (
    Array,
    Column,
    LogicalType,
    Scalar,
    Struct,
    Unread,
    column_of,
    is_narrower,
    to_stored,
    union,
)
from elt_assets.lake.columns.metadata_columns import table_schema
from elt_assets.sync.field_selection import OnSchemaChange
from tests.lake.staging import (
    BIG_INTEGER,
    BIG_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    JSON,
    NTZ,
    NUMBER,
    SCALARS,
    STRING,
    TIMESTAMP,
    array,
    struct,
)

V1_INTEGER = {"$ref": "WellKnownTypes.json#/definitions/Integer"}


def schema(**properties: Any) -> t.StructType:
    return t.StructType([column.field for column in declared(**properties)])


def declared(**properties: Any) -> list[Column]:
    return columns({"properties": properties})


def planned(was: Any, now: Any, mode: OnSchemaChange = "evolve") -> SchemaPlan:
    """A table with one column, and what is declared for it."""
    return plan(schema(x=was), declared(x=now), mode)


def types(found: t.StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in found.fields}


def test_new_columns_and_nested_fields_are_added() -> None:
    was = schema(o=struct(a=INTEGER), l=array(struct(a=INTEGER)))
    now = declared(o=struct(b=STRING, a=INTEGER), l=array(struct(a=INTEGER, c=DATE)), n=NUMBER)
    found = plan(was, now, "evolve")
    assert found.added == ["o.b", "l[].c", "n"]
    assert types(found.schema) == {
        "o": "struct<a:bigint,b:string>",
        "l": "array<struct<a:bigint,c:date>>",
        "n": "double",
    }
    assert [column.type.simpleString() for column in found.columns] == list(
        types(found.schema).values()
    )
    assert not found.rewrites
    assert any("'o.b' (string) is new" in line for line in found.differences)


@pytest.mark.spec("protocol.97")
def test_columns_that_the_catalog_no_longer_has_are_kept_and_null() -> None:
    was = schema(gone=INTEGER, o=struct(a=INTEGER, gone=DATE))
    found = plan(was, declared(o=struct(a=INTEGER)), "evolve")
    assert found.schema == was
    assert [column.name for column in found.columns] == ["gone", "o"]
    assert [column.type for column in found.columns] == [field.dataType for field in was.fields]
    assert sum("is no longer in the catalog" in line for line in found.differences) == 2


WIDER = [
    (INTEGER, BIG_INTEGER),
    (INTEGER, NUMBER),
    (INTEGER, BIG_NUMBER),
    (BIG_INTEGER, BIG_NUMBER),
    (DATE, NTZ),
    (DATE, TIMESTAMP),
    (NTZ, TIMESTAMP),
    *((each, STRING) for each in (BOOLEAN, INTEGER, NUMBER, BIG_NUMBER, DATE, TIMESTAMP, BINARY)),
    *((each, JSON) for each in (STRING, INTEGER, TIMESTAMP, struct(a=INTEGER), array(DATE))),
]
INCOMPATIBLE = [
    (NUMBER, BIG_NUMBER),
    (BIG_INTEGER, NUMBER),
    (BOOLEAN, INTEGER),
    (DATE, INTEGER),
    (struct(a=INTEGER), INTEGER),
    (struct(a=INTEGER), STRING),
    (array(INTEGER), struct(a=INTEGER)),
    (array(BOOLEAN), array(INTEGER)),
]


@pytest.mark.parametrize(("narrow", "wide"), WIDER)
def test_a_wider_type_widens_the_column(narrow: Any, wide: Any) -> None:
    found = planned(narrow, wide)
    assert found.schema == schema(x=wide)
    assert found.rewrites and [one.path for one in found.widened] == ["x"]
    assert found.columns == declared(x=wide)


@pytest.mark.parametrize(("narrow", "wide"), WIDER)
def test_a_narrower_type_is_read_as_the_type_of_the_table(narrow: Any, wide: Any) -> None:
    found = planned(wide, narrow)
    assert found.schema == schema(x=wide)
    assert not found.rewrites and not found.columns[0].strict
    assert found.columns[0].type == schema(x=wide)["x"].dataType
    assert len(found.differences) == 1


@pytest.mark.parametrize(("one", "other"), INCOMPATIBLE + [(b, a) for a, b in INCOMPATIBLE])
def test_incompatible_types_are_refused(one: Any, other: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(schema(x=one), declared(x=other), "evolve", where="the table lake/shop/users")
    assert "the table lake/shop/users" in caught.value.message
    assert re.search(r"'x(\[\])?' is \S+ in the table, \S+ in the catalog", caught.value.message)
    guidance = str(caught.value.guidance)
    assert "freeze" in guidance and "from the beginning" in guidance


def test_nested_widenings_are_reported_with_their_paths() -> None:
    found = planned(array(struct(a=array(INTEGER), b=DATE)), array(struct(a=array(NUMBER), b=DATE)))
    assert [str(one) for one in found.widened] == ["x[].a[]: bigint → double"]
    assert types(found.schema) == {"x": "array<struct<a:array<double>,b:date>>"}


def test_the_table_and_the_catalog_may_each_have_wider_fields() -> None:
    found = planned(struct(a=INTEGER, b=STRING), struct(a=NUMBER, b=DATE, c=JSON))
    assert types(found.schema) == {"x": "struct<a:double,b:string,c:string>"}
    assert (found.added, [one.path for one in found.widened]) == (["x.c"], ["x.a"])


def test_text_and_json_are_different_types() -> None:
    assert planned(STRING, JSON).rewrites
    found = planned(JSON, STRING)
    assert found.columns[0].kind is Scalar.JSON and not found.rewrites
    assert planned({"type": "object"}, JSON, "fail").differences == []  # JSON either way


def test_version_1_numbers_are_read_from_text() -> None:
    assert planned(NUMBER, V1_INTEGER).columns[0].kind is Scalar.NUMBER_TEXT
    assert planned(INTEGER, V1_INTEGER, "fail").columns[0].kind is Scalar.INTEGER_TEXT
    assert planned(NUMBER, INTEGER).columns[0].kind is Scalar.INTEGER_IN_DOUBLE


def test_freeze_does_not_change_the_table() -> None:
    was = schema(a=INTEGER, gone=DATE, o=struct(b=INTEGER), same=STRING, wide=NUMBER)
    now = declared(a=NUMBER, o=struct(b=BOOLEAN, n=DATE), same=STRING, wide=INTEGER, new=DATE)
    found = plan(was, now, "freeze")
    assert found.schema == was
    assert (found.added, found.rewrites) == ([], False)
    assert [column.name for column in found.columns] == was.names
    assert {column.name for column in found.columns if column.strict} == {"a", "o"}
    assert any("'new' (date) is new; it is left out" in line for line in found.differences)
    assert any("'o.n' (date) is new; it is left out" in line for line in found.differences)


def test_fail_lists_every_difference() -> None:
    was = schema(a=INTEGER, gone=DATE, o=struct(b=INTEGER))
    now = declared(a=NUMBER, o=struct(b=INTEGER, n=DATE))
    with pytest.raises(ConfigError) as caught:
        plan(was, now, "fail")
    for part in ("'a'", "'gone'", "'o.n'", "bigint", "double"):
        assert part in caught.value.message


def test_an_unsupported_column_type_is_kept_but_not_written() -> None:
    was = t.StructType([t.StructField("m", t.MapType(t.StringType(), t.LongType()))])
    assert plan(was, [], "evolve").schema == was
    for mode in ("evolve", "freeze"):
        with pytest.raises(ConfigError, match="'m' is map<string,bigint>"):
            plan(was, declared(m=struct(a=INTEGER)), mode)


def test_fields_are_matched_by_their_names_in_the_source() -> None:
    was = t.StructType([c.field for c in columns({"properties": {"a b": INTEGER}})])
    now = columns({"properties": {"a_b": DATE, "a b": NUMBER}}, read_names(was))
    found = plan(was, now, "evolve")
    assert types(found.schema)["a_b"] == "double"
    assert found.added == ["a_b"] and len(found.schema.names) == 2
    assert read_names(found.schema)["a b"].name == "a_b"


def test_columns_of_this_project_are_ignored() -> None:
    found = plan(table_schema(declared(a=INTEGER), partitioned=True), declared(a=INTEGER), "fail")
    assert found.schema == schema(a=INTEGER)


def test_a_replaced_table_gets_the_declared_types() -> None:
    now = declared(a=BOOLEAN, new=DATE)
    found = plan_replacement(schema(a=INTEGER, gone=DATE), now)
    assert found.columns[:2] == now
    assert found.schema == schema(a=BOOLEAN, new=DATE, gone=DATE)
    assert (len(found.differences), found.rewrites) == (3, False)
    assert plan_replacement(t.StructType(), now).differences == []


# Properties

leaves = st.sampled_from([*SCALARS.values()])


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(st.sampled_from(["a", "A", "b c", "_elt_d"]), inner, min_size=1)
    return inner.map(array) | objects.map(lambda properties: struct(**properties))


properties = st.dictionaries(
    st.sampled_from(["p", "q", "r s", "r-s"]), st.recursive(leaves, nested, max_leaves=4)
)


def joined(one: Any, other: Any) -> t.StructType | None:
    """The schema of a table that had the one, and gets the other."""
    was = t.StructType([column.field for column in columns({"properties": one})])
    try:
        return plan(was, columns({"properties": other}, read_names(was)), "evolve").schema
    except ConfigError:
        return None


def shape(kind: t.DataType) -> Any:
    """A schema whatever the order of its fields, and by the source's names, whatever their case."""
    if isinstance(kind, t.StructType):
        fields = (
            (
                source.lower(),
                shape(kind[name.name].dataType),
                column_of(kind[name.name]).kind is Scalar.JSON,
            )
            for source, name in read_names(kind).items()
        )
        return sorted(fields, key=repr)
    return [shape(kind.elementType)] if isinstance(kind, t.ArrayType) else kind.simpleString()


@given(properties)
def test_a_schema_merged_with_itself_is_unchanged(one: Any) -> None:
    was = t.StructType([column.field for column in columns({"properties": one})])
    found = plan(was, columns({"properties": one}, read_names(was)), "fail")
    assert (found.schema, found.differences, found.added) == (was, [], [])
    assert (found.widened, found.rewrites) == ([], False)


@given(properties, properties)
def test_joining_schemas_is_commutative_and_idempotent(one: Any, other: Any) -> None:
    there, back = joined(one, other), joined(other, one)
    assert (there is None) == (back is None)
    if there is None or back is None:
        return
    assert shape(there) == shape(back)
    for each in (one, other):  # nothing is left to do
        again = plan(there, columns({"properties": each}, read_names(there)), "evolve")
        assert again.schema == there
        assert (again.added, again.rewrites) == ([], False)


@given(properties, properties)
def test_a_union_holds_the_values_of_both_types(before: Any, after: Any) -> None:
    """The types are those of a field in two schemas of one sync."""
    was = t.StructType([column.field for column in columns({"properties": before})])
    written = {each.name: each.kind for each in map(column_of, was.fields)}
    for column in columns({"properties": after}, read_names(was)):
        if column.name in written:
            kind = to_stored(union(column.kind, written[column.name]))
            assert holds(kind, to_stored(column.kind)) and holds(kind, written[column.name])
            assert union(kind, kind) == kind


def holds(wide: LogicalType, kind: LogicalType) -> bool:
    if isinstance(wide, Struct) and isinstance(kind, Struct):
        fields = {field.name: field.kind for field in wide.fields}
        return all(holds(fields[field.name], field.kind) for field in kind.fields)
    if isinstance(wide, Array) and isinstance(kind, Array):
        return holds(wide.items, kind.items)
    return wide == kind or is_narrower(kind, wide)


@given(properties, properties)
def test_freeze_keeps_the_schema_and_reads_its_types(one: Any, other: Any) -> None:
    was = t.StructType([column.field for column in columns({"properties": one})])
    found = plan(was, columns({"properties": other}, read_names(was)), "freeze")
    assert found.schema == was
    read = [
        (c.name, c.type.simpleString()) for c in found.columns
    ]  # the metadata of a column says that it is JSON
    assert read == [(e.name, e.dataType.simpleString()) for e in was.fields]


@given(properties)
def test_a_column_is_read_back_from_its_table(one: Any) -> None:
    for column in columns({"properties": one}):
        assert column_of(column.field) == Column(column.source, column.name, to_stored(column.kind))


# Names that differ in case only

variants = st.lists(
    st.sampled_from(["aa", "aA", "Aa", "AA", "é", "É", "b c", "B c"]), unique=True, min_size=1
)


@given(st.lists(variants, min_size=1), st.booleans())
def test_any_sequence_of_schemas_that_differ_in_case_has_no_column_too_many(
    schemas: list[list[str]], is_nested: bool
) -> None:
    """A table has as many columns of names that differ in case only as a schema has at the same time."""
    present = t.StructType([])
    for names in schemas:
        fields = dict.fromkeys(names, INTEGER)
        properties = {"s": array(struct(**fields))} if is_nested else fields
        now = columns({"properties": properties}, read_names(present))
        found = plan(present, now, "evolve")
        read: list[Column] = found.columns
        before: Any = present
        after: Any = found.schema
        if is_nested:
            (outer,) = found.columns
            assert isinstance(outer.kind, Array) and isinstance(outer.kind.items, Struct)
            read, after = list(outer.kind.items.fields), after["s"].dataType.elementType
            before = before["s"].dataType.elementType if before.names else before
        assert after.fields[: len(before.fields)] == before.fields  # none is renamed, none goes
        filled = [column for column in read if not isinstance(column.kind, Unread)]
        assert {column.source for column in filled} == set(names)
        assert len({column.name for column in filled}) == len(names)
        assert plan(found.schema, now, "evolve").added == []
        present = found.schema
    most: Counter[str] = Counter()
    for names in schemas:
        most |= Counter(name.lower() for name in names)
    assert Counter(column_of(each).source.lower() for each in after.fields) == most


@pytest.mark.parametrize("mode", ["evolve", "freeze", "fail"])
def test_a_change_of_case_is_no_change_of_the_schema(mode: OnSchemaChange) -> None:
    was = schema(Email=STRING, part=struct(City=STRING))
    now = columns({"properties": {"email": STRING, "PART": struct(city=STRING)}}, read_names(was))
    found = plan(was, now, mode)
    assert (found.schema, found.differences) == (was, [])
    assert [column.source for column in found.columns] == ["email", "PART"]
