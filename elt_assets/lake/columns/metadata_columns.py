"""The metadata columns that this project adds to every table, and the whole schema of a table.

Used in all of `lake`, by `pipeline.rules`, and by `orchestration`, which shows the columns in Dagster.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as t

from elt_assets.lake.columns.logical_types import Column

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
NULLED = "NULLED"
"""`change` of an entry in `CHANGES`: the value was not null, and the row has a null."""
OWN_REASON = "DESTINATION_"
"""Start of the `reason` of a change that this project made; others come from the source."""
PARTITION_FIELD = t.StructField(PARTITION, t.StringType())
OWN = {
    RAW_ID: "id of the row; the ids of one sync sort in the order in which its records were extracted",
    EXTRACTED_AT: "time at which the source extracted the record",
    GENERATION_ID: "generation of the stream in which the row was written",
    META: "id of the sync that wrote the row, and the list of values that it changed; "
    "a value that did not fit its column is null",
    PARTITION: "Dagster partition of the row",
}
"""Descriptions of the metadata columns."""


def table_schema(columns: Sequence[Column], *, partitioned: bool = False) -> t.StructType:
    """Return the whole schema of a table: the columns of the stream, then the metadata columns."""
    metadata = [*METADATA_FIELDS, PARTITION_FIELD] if partitioned else METADATA_FIELDS
    return t.StructType([*(column.field for column in columns), *metadata])
