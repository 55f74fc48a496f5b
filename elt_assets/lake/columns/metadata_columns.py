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
ROW_DELETED_AT = "_deleted_at"
"""Column of tables that keep the rows which their source has deleted. Sources may have a field of this name:
`find_deleted_at` tells whose column it is."""
SYNC_ID = "sync_id"
"""Field of `META`."""

CHANGES = t.ArrayType(
    t.StructType([t.StructField(name, t.StringType()) for name in ("field", "change", "reason")])
)
META_TYPE = t.StructType([t.StructField(SYNC_ID, t.LongType()), t.StructField("changes", CHANGES)])
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
_OWN_MARK = "elt.own"
DELETED_FIELD = t.StructField(ROW_DELETED_AT, t.TimestampType(), True, {_OWN_MARK: True})
OWN = {
    RAW_ID: "id of the row; the ids of one sync sort in the order in which its records were extracted",
    EXTRACTED_AT: "time at which the source extracted the record",
    GENERATION_ID: "generation of the stream in which the row was written",
    META: "id of the sync that wrote the row, and the list of values that it changed; "
    "a value that did not fit its column is null",
    PARTITION: "Dagster partition of the row",
    ROW_DELETED_AT: "time at which the source deleted the row; null if it has the row",
}
"""Descriptions of the metadata columns."""


def table_schema(
    columns: Sequence[Column], *, partitioned: bool = False, keeps_deleted: bool = False
) -> t.StructType:
    """Return the whole schema of a table: the columns of the stream, then the metadata columns.

    Args:
        keeps_deleted: rows stay that the source has deleted.
    """
    metadata = [
        *METADATA_FIELDS,
        *([PARTITION_FIELD] if partitioned else []),
        *([DELETED_FIELD] if keeps_deleted else []),
    ]
    return t.StructType([*(column.field for column in columns), *metadata])


def find_deleted_at(schema: t.StructType) -> str | None:
    """Return the column that says that a row is deleted; None if the table does not keep such rows."""
    is_own = ROW_DELETED_AT in schema.names and _OWN_MARK in schema[ROW_DELETED_AT].metadata
    return ROW_DELETED_AT if is_own else None


def remove_deleted_at(schema: t.StructType) -> t.StructType:
    """Return a schema without the column of `find_deleted_at`."""
    deleted_at = find_deleted_at(schema)
    return t.StructType([field for field in schema.fields if field.name != deleted_at])
