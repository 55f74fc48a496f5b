"""The columns that this project adds to every table, and the schema of a whole table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as t

from elt_assets.lake.schema.logical_types import Column

TableSchema = t.StructType

RAW_ID = "_airbyte_raw_id"
EXTRACTED_AT = "_airbyte_extracted_at"
GENERATION_ID = "_airbyte_generation_id"
META = "_airbyte_meta"
PARTITION = "_elt_partition"

CHANGES = t.ArrayType(
    t.StructType([t.StructField(name, t.StringType()) for name in ("field", "change", "reason")])
)
META_TYPE = t.StructType(
    [t.StructField("sync_id", t.LongType()), t.StructField("changes", CHANGES)]
)
METADATA_FIELDS = [
    t.StructField(RAW_ID, t.StringType()),
    t.StructField(EXTRACTED_AT, t.TimestampType()),
    t.StructField(GENERATION_ID, t.LongType()),
    t.StructField(META, META_TYPE),
]
PARTITION_FIELD = t.StructField(PARTITION, t.StringType())
OWN = {
    RAW_ID: "the row's id; those of one sync sort as its records were extracted",
    EXTRACTED_AT: "when the source's record was extracted",
    GENERATION_ID: "the generation that the row was written in",
    META: "the sync that wrote the row, and the values that it changed: null for those that did not fit",
    PARTITION: "the Dagster partition that the row belongs to",
}
"""What this project's own columns say."""


def table_schema(found: Sequence[Column], *, partitioned: bool = False) -> t.StructType:
    """The table's whole schema: the stream's columns, then this project's."""
    own = [*METADATA_FIELDS, PARTITION_FIELD] if partitioned else METADATA_FIELDS
    return t.StructType([*(column.field for column in found), *own])
