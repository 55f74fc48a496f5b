"""Entries in a Hive Metastore: what Spark finds in them, and what a metastore refuses or cannot store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.publish.hive import HiveCatalog
from elt_assets.lake.publish.hive_form import UNKNOWN_COLUMNS
from elt_assets.lake.publish.registration import Registration, register
from tests.lake.publishing.catalogs import Server
from tests.lake.publishing.test_registration import assert_entry
from tests.support.hive_metastore import metastore_process

pytestmark = pytest.mark.process

NAMES = st.from_regex(r"[A-Za-zÄé_][A-Za-z0-9Äé_]{0,20}", fullmatch=True)
ATOMS = st.sampled_from(
    [
        *(t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType()),
        *(t.FloatType(), t.DoubleType(), t.DecimalType(38, 9), t.DecimalType(5, 0)),
        *(t.StringType(), t.BinaryType(), t.DateType(), t.TimestampType(), t.TimestampNTZType()),
        *(t.VariantType(), t.DayTimeIntervalType()),
    ]
)


def _nest(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.DataType]:
    return st.one_of(
        st.builds(t.ArrayType, inner),
        st.builds(t.MapType, st.just(t.StringType()), inner),
        st.lists(st.tuples(NAMES, inner), max_size=3, unique_by=lambda x: x[0].lower()).map(
            lambda fields: t.StructType([t.StructField(*field) for field in fields])
        ),
    )


COMMENTS = st.text(max_size=400).map(lambda text: {"comment": text})
FIELDS = st.tuples(NAMES, st.recursive(ATOMS, _nest, max_leaves=5), COMMENTS)
SCHEMAS = st.lists(FIELDS, min_size=1, max_size=4, unique_by=lambda x: x[0].lower()).map(
    lambda fields: t.StructType(
        [t.StructField(name, kind, metadata=comment) for name, kind, comment in fields]
    )
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(schema=SCHEMAS)
def test_any_columns_replace_any_others(hive: Server, schema: t.StructType) -> None:
    """Positions, types that do not convert, types that Hive lacks, long and odd comments."""
    registration = hive.registration("users", schema)
    register(hive.direct, registration)
    assert_entry(hive.direct, registration)


def test_a_type_that_is_too_long_for_hive_leaves_the_list_to_the_properties(hive: Server) -> None:
    fields = [t.StructField(f"field_{number}", t.StringType()) for number in range(400)]
    registration = hive.registration(
        "users", t.StructType([t.StructField("s", t.StructType(fields))])
    )
    register(hive.direct, registration)
    entry = hive.direct.find(registration.name)
    assert entry is not None
    assert entry.facts["columns"] == UNKNOWN_COLUMNS
    assert int(entry.facts["spark.sql.sources.schema.numParts"]) > 1


@pytest.mark.long
def test_a_metastore_that_was_down_is_caught_up_with(tmp_path: Path) -> None:
    with metastore_process(tmp_path) as (uri, _):
        catalog = HiveCatalog(f"thrift://127.0.0.1:1,{uri}")
        server = Server("hive", catalog, catalog, None, f"file://{tmp_path}/lake", uri)  # type: ignore[arg-type]
        registration = server.registration("users")
        register(catalog, registration)
    with pytest.raises(TransientError, match="cannot be reached"):
        register(catalog, registration)
    other = server.registration("users", t.StructType([t.StructField("x", t.DateType())]))
    with metastore_process(tmp_path, int(uri.rpartition(":")[2])):
        register(catalog, other)
        assert_entry(catalog, other)


@pytest.mark.parametrize("name", ["a-b", "a b", "ä"])
def test_a_name_that_a_metastore_refuses_is_an_error_with_its_reason(
    hive: Server, name: str
) -> None:
    """`names` refuses these names before; a metastore's own refusal is clear too, and nothing hangs."""
    with pytest.raises(EltError) as caught:
        register(hive.direct, hive.registration(name))
    assert name in caught.value.message


def test_an_address_of_another_form_is_refused() -> None:
    for uri in ("http://hive:9083", "hive:9083", "thrift://", "thrift://hive:port"):
        with pytest.raises(ConfigError, match="no address of a Hive Metastore") as caught:
            HiveCatalog(uri)
        assert "thrift://HOST:9083" in str(caught.value.guidance)


READER = """
import json, sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.sql.catalogImplementation", "hive")
    .config("spark.hadoop.hive.metastore.uris", sys.argv[1])
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
rows = spark.sql(f"SHOW TABLE EXTENDED IN {sys.argv[2]} LIKE '*'").collect()
print(json.dumps({row.tableName: row.information for row in rows}))
"""


@pytest.mark.spark
def test_spark_finds_a_delta_table_with_its_columns_and_its_place(hive: Server) -> None:
    """A Spark without Delta's reader, which could not be had, shows what it would pass to the reader."""
    schema = t.StructType(
        [t.StructField("Id", t.LongType()), t.StructField("day", t.TimestampNTZType())]
    )
    registration = hive.registration("users", schema)
    registration = Registration(**{**vars(registration), "partition_by": ("day",)})
    register(hive.direct, registration)
    finished = subprocess.run(
        [sys.executable, "-c", READER, hive.place, hive.database],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    text = json.loads(finished.stdout.splitlines()[-1])["users"]
    assert "Provider: delta" in text
    assert "Type: EXTERNAL" in text
    assert f"Location: {registration.location.replace('file://', 'file:')}" in text
    assert "Partition Columns: [`day`]" in text
    assert " |-- Id: long (nullable = true)\n |-- day: timestamp_ntz (nullable = true)" in text
