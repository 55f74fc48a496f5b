"""Columns that are added, widened, retyped, removed and come back: each published version has them right."""

from __future__ import annotations

import datetime as dt
import json
import re
import tempfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.columns.names import column_names
from elt_assets.lake.publish.followers import TableTexts
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.lake.publish.schemas import make_schema, make_spec
from tests.lake.publishing import oracle

pytestmark = pytest.mark.unit

VALUES: Mapping[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int32(), 7),
    "long": (pa.int64(), 2**40),
    "float": (pa.float32(), 1.5),
    "double": (pa.float64(), -0.0),
    "text": (pa.string(), "zoë"),
    "boolean": (pa.bool_(), True),
    "date": (pa.date32(), dt.date(1969, 12, 31)),
    "time": (pa.timestamp("us", "UTC"), dt.datetime(1965, 1, 1, 1, 1, 1, 1, dt.timezone.utc)),
    "local": (pa.timestamp("us"), dt.datetime.fromisoformat("2026-01-01T01:01:01.000001")),
    "small": (pa.decimal128(10, 2), Decimal("-1.25")),
    "large": (pa.decimal128(38, 2), Decimal("12345678901234567890.25")),
    "binary": (pa.binary(), b"\x00\xff"),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": "x"}),
    "wider": (pa.struct([("a", pa.int64()), ("c", pa.string())]), {"a": 2, "c": "y"}),
    "list": (pa.list_(pa.int32()), [1, 2]),
    "texts": (pa.list_(pa.string()), ["a", None]),
    "map": (pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    "structs": (pa.list_(pa.struct([("a", pa.int32())])), [{"a": 1}]),
}
COLUMNS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from(sorted(VALUES)), min_size=1, max_size=3
)


def rows(columns: Mapping[str, str], number: int) -> pa.Table:
    """A row with values and one with nulls."""
    types = {name: VALUES[kind][0] for name, kind in columns.items()}
    values = {name: [VALUES[kind][1], None] for name, kind in columns.items()}
    arrays = {name: pa.array(values[name], types[name]) for name in columns}
    return pa.table({"number": pa.array([number, number], pa.int32()), **arrays})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), COLUMNS, st.booleans()), min_size=2, max_size=5))
def test_whatever_becomes_of_the_columns_each_version_is_read_as_it_is(
    steps: list[tuple[bool, dict[str, str], bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        publisher = Publisher(oracle.sqlite_settings(Path(folder, "catalog")))
        table = oracle.lake_table(Path(folder, "lake", "shop", "things"))
        for number, (replaces, columns, is_published) in enumerate(steps):
            write(table.location.uri, rows(columns, number), replaces=replaces)
            if is_published or number == len(steps) - 1:
                publisher.publish(table)
                oracle.check_current(publisher, table)
        iceberg = oracle.load(publisher, table)
        assert iceberg is not None
        for snapshot in iceberg.snapshots():  # what is kept is read as it was
            assert snapshot.summary is not None
            version = int(snapshot.summary["elt.delta-version"] or "")
            published = iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
            delta = DeltaTable(table.location.uri, version=version)
            expected = pa.table(delta.to_pyarrow_table())
            names = sorted(expected.column_names)
            assert sorted(published.column_names) == names
            assert oracle.rows(published, names) == oracle.rows(expected, names)


def write(uri: str, data: pa.Table, *, replaces: bool) -> None:
    """Replace the table with other columns, or add rows, with columns of their own if the types allow it."""
    if replaces or not DeltaTable.is_deltatable(uri):
        write_deltalake(uri, data, mode="overwrite", schema_mode="overwrite")
        return
    present = pa.schema(DeltaTable(uri).schema().to_arrow())
    same = [
        name
        for name in data.column_names
        if name not in present.names or present.field(name).type == data.schema.field(name).type
    ]
    write_deltalake(uri, data.select(same), mode="append", schema_mode="merge")


def test_descriptions_key_and_properties_are_published(tmp_path: Path) -> None:
    publisher = Publisher(oracle.sqlite_settings(tmp_path / "catalog"))
    texts = TableTexts("People", {"number": "Counts"}, ("number",))
    table = oracle.lake_table(tmp_path / "lake" / "shop" / "people", texts=texts)
    write(table.location.uri, rows({"a": "text"}, 1), replaces=True)
    publisher.publish(table)
    later = oracle.lake_table(tmp_path / "lake" / "shop" / "people")
    write(table.location.uri, rows({"a": "text", "b": "long"}, 2), replaces=False)
    publisher.publish(later)  # without descriptions: those that are there stay
    iceberg = oracle.load(publisher, later)
    assert iceberg is not None
    assert iceberg.properties["comment"] == "People"
    assert json.loads(iceberg.properties["elt.primary-key"]) == ["number"]
    assert iceberg.schema().find_field("number").doc == "Counts"
    assert iceberg.format_version == 2
    assert iceberg.properties["gc.enabled"] == "false"


def test_columns_that_are_never_null_are_identifier_fields() -> None:
    columns = t.StructType([t.StructField("id", t.LongType(), nullable=False)])
    schema = make_schema(columns, None, TableTexts(key=("id",)))
    assert schema.identifier_field_names() == {"id"}
    nullable = t.StructType([t.StructField("id", t.LongType())])
    assert not make_schema(nullable, None, TableTexts(key=("id",))).identifier_field_ids
    # A part of a key identifies nothing.
    assert not make_schema(columns, None, TableTexts(key=("id", "gone"))).identifier_field_ids


@given(st.lists(st.text(max_size=4), min_size=1, max_size=6, unique=True), st.data())
def test_partition_fields_have_names_of_avro_that_no_other_column_has(
    names: list[str], data: st.DataObject
) -> None:
    columns = list(column_names(names).values())
    struct = t.StructType([t.StructField(name, t.StringType()) for name in columns])
    schema = make_schema(struct, None, None)
    chosen = data.draw(st.lists(st.sampled_from(columns), unique=True))
    fields = make_spec(schema, chosen, None).fields
    assert [schema.find_column_name(field.source_id) for field in fields] == chosen
    for column, field in zip(chosen, fields, strict=True):
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field.name)
        is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column)
        assert (field.name == column) if is_name else (field.name not in columns)
    assert len({field.name.casefold() for field in fields}) == len(chosen)


def test_a_type_that_iceberg_lacks_is_refused_by_name() -> None:
    inner = t.StructType([t.StructField("v", t.VariantType())])
    columns = t.StructType([t.StructField("deep", t.ArrayType(inner))])
    with pytest.raises(ConfigError, match=r"the column deep\[\]\.v has the type variant") as caught:
        make_schema(columns, None, None)
    assert "iceberg: false" in (caught.value.guidance or "")
