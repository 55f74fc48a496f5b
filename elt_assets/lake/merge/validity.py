"""The versions of a history: their order, when each was valid, and which rows are no version.

The versions of a key are in the order of `lake.merge.dedup`. `_valid_from` is the cursor if that is a time,
else the time of extraction; it is never later than that of a later version. A version is valid until the
next version or a delete. A delete without a cursor value takes effect at the time in its marker, if cursor
and marker are times, else when it was extracted; no version of a later era is valid before that. A row that
arrives again unchanged is not a version, nor is one that another replaces which has its cursor and start.

**What the history once answered for a key and a moment (`_valid_from <= moment < _valid_to`), it answers for
ever.** A commit changes only answers for moments since the effective time of one of its records:

- The effective time of a record whose cursor is a time is that time. Late versions and deletes are inserted
  in the past, and a record replaces the version that has its cursor. Nothing before the cursor changes, and
  nothing since the next version. That of a delete whose marker stands for the cursor is the time in the
  marker; it ends all that arrived before it, so it changes answers up to now.
- That of any other record (no cursor, a number, a null) is the time of its extraction. The cursor orders it
  among the versions, but does not change when the others were valid: of equal cursors, each version keeps its
  time.
- That of a refresh that replaces the table is the time of its commit, whatever the cursors of its rows: it
  says which rows there are now, not since when. It begins an *epoch* of each key that it changes (another
  row, no row, a row again); the versions of earlier epochs stay as they are. What the refresh brings, and all
  that comes later, belongs to the new epoch. There, an earlier time is a cursor like a number: it orders, and
  the effective time is that of the extraction, but not before the epoch. So no version moves, and a gap stays
  a gap. The first rows of a history begin no epoch: there were no answers before.
- A history that is turned on again is refreshed from its table: it does not learn what was lost meanwhile.
- A refresh that retains rows only reads again: its records take effect like those of any sync.

Each record is merged once, so it is one version. Tests: `tests/lake/test_history_time.py`.
"""

from __future__ import annotations

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.merge import dedup, key_merge
from elt_assets.lake.merge.dedup import ARRIVAL, ERA, Ordering
from elt_assets.lake.merge.key_merge import kind_of
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark.expressions import value_at

VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
VALIDITY = [
    t.StructField(VALID_FROM, t.TimestampType()),
    t.StructField(VALID_TO, t.TimestampType()),
    t.StructField(IS_CURRENT, t.BooleanType()),
]
CLOSED_AT = "_elt_closed_at"
"""Column of hidden files: the time when a full refresh no longer contained the key. Its row is a copy of the
key's last version."""
EPOCH = "_elt_epoch"
"""Column of the files that is in no schema: when the refresh was that a version counts from, in epoch
microseconds; 0 if there was none. The versions of an epoch come after all earlier ones, whatever the
cursor."""
HIDDEN_FIELDS = [
    t.StructField(CLOSED_AT, t.TimestampType()),
    t.StructField(EPOCH, t.LongType()),
]
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""The JSON of two values is the same only if they are equal."""
_TIMES = (t.TimestampType, t.TimestampNTZType, t.DateType)
_SAME, _NEXT, _DELETED = "_elt_same", "_elt_next", "_elt_deleted"


def history_schema(schema: t.StructType) -> t.StructType:
    """Return the columns of the history of a table with this schema."""
    return t.StructType([*schema.fields, *VALIDITY])


def wide_schema(schema: t.StructType) -> t.StructType:
    """Return the columns of a history's files, visible and hidden."""
    return t.StructType([*history_schema(schema), *HIDDEN_FIELDS])


def is_end(schema: t.StructType, *, may_close: bool) -> Expression | None:
    """Return whether a row ends a key; None if no row can."""
    deleted, closed = dedup.is_delete(schema), f.col(CLOSED_AT).isNotNull()
    if deleted is None:
        return closed if may_close else None
    return deleted | closed


def add_validity(
    rows: DataFrame, by: Ordering, schema: t.StructType, begins: Expression | None
) -> DataFrame:
    """Return each key's versions and ends in order, with their validity.

    Args:
        begins: whether a row begins an era, see `dedup.begins_era`.
    """
    keys = [value_at(part) for part in by.key]
    since = f.max(EPOCH).over(Window.partitionBy(*keys))
    rows = rows.withColumn(EPOCH, f.coalesce(EPOCH, since, f.lit(0).cast("long")))
    era = [] if begins is None else [f.col(ERA)]
    cursor = [value_at(by.cursor)] if by.cursor else []
    # An end closes the versions from before its refresh.
    order = [f.col(EPOCH), f.col(CLOSED_AT).isNull(), *era, *cursor]
    order += [f.col(ARRIVAL), f.col(metadata_columns.RAW_ID)]
    chain = Window.partitionBy(*keys).orderBy(*(column.asc_nulls_first() for column in order))
    back = Window.partitionBy(*keys).orderBy(*(column.desc_nulls_last() for column in order))
    last = _keep_last_of_each_start(
        rows.withColumn(_SAME, _repeats_previous(schema, chain)).where(~f.col(_SAME)),
        chain,
        by,
        schema,
        begins,
    )
    start = _start(by, schema)
    if begins is not None:
        # A refresh takes effect at its commit, also if a delete before it is said to be later.
        in_epoch = Window.partitionBy(*keys, EPOCH).orderBy(
            *(column.asc_nulls_first() for column in order[1:])
        )
        last = last.withColumn(_DELETED, f.last(f.when(begins, start), True).over(in_epoch))
        start = f.greatest(start, f.col(_DELETED))
    # From the last version back: Spark would look at all later versions again for each version of a key.
    so_far = back.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    with_start = last.withColumn(VALID_FROM, f.min(start).over(so_far))
    next_start = f.lag(VALID_FROM).over(back)
    return with_start.withColumn(VALID_TO, next_start).withColumn(IS_CURRENT, next_start.isNull())


def _repeats_previous(schema: t.StructType, chain: WindowSpec) -> Expression:
    """Return whether a version has the same content as the one before."""
    columns = content(schema)
    is_open = f.col(CLOSED_AT).isNull()
    before = f.lag(f.when(is_open, columns)).over(chain)
    return f.coalesce(is_open & before.isNotNull() & columns.eqNullSafe(before), f.lit(False))


def content(schema: t.StructType) -> Expression:
    """Return the content of a version: the stream's own columns, and whether it is a delete."""
    columns = [_comparable(schema[name]) for name in content_names(schema)]
    deleted = dedup.is_delete(schema)
    return f.struct(*columns, *([] if deleted is None else [deleted.alias(_DELETED)]))


def _comparable(column: t.StructField) -> Expression:
    """Return the value of a column; as JSON text if it has a map, because Spark compares no maps."""
    value = value_at([column.name])
    return f.to_json(f.struct(value), _JSON_OPTIONS) if _has_map(column.dataType) else value


def _has_map(kind: t.DataType) -> bool:
    if isinstance(kind, t.StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    if isinstance(kind, t.ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, t.MapType)


def content_names(schema: t.StructType) -> list[str]:
    ours = {field.name for field in metadata_columns.METADATA_FIELDS}
    return [name for name in schema.names if name not in ours]


def _keep_last_of_each_start(
    rows: DataFrame,
    chain: WindowSpec,
    by: Ordering,
    schema: t.StructType,
    begins: Expression | None,
) -> DataFrame:
    """Return the last of consecutive versions with the same cursor and start in an era, and all ends."""
    if not by.cursor:
        return rows
    era = [] if begins is None else [f.col(ERA)]
    is_open = f.col(CLOSED_AT).isNull()
    order = f.struct(EPOCH, is_open, *era, value_at(by.cursor), _start(by, schema))
    rows_with_next = rows.withColumn(_NEXT, f.lead(order).over(chain))
    is_end = ~is_open if begins is None else ~is_open | begins
    return rows_with_next.where(is_end | ~f.col(_NEXT).eqNullSafe(order))


def _start(by: Ordering, schema: t.StructType) -> Expression:
    """Return the start of a version's validity, before it is limited by later versions."""
    start = f.col(metadata_columns.EXTRACTED_AT)
    begin = f.when(f.col(EPOCH) > 0, f.timestamp_micros(EPOCH))
    if by.cursor and isinstance(kind_of(schema, by.cursor), _TIMES):
        times = [by.cursor, *([name] for name in deletion_times(schema))]
        time = f.coalesce(*(value_at(time).cast(t.TimestampType()) for time in times))
        start = f.when(time < begin, start).otherwise(f.coalesce(time, start))
    return f.coalesce(f.col(CLOSED_AT), f.greatest(start, begin))


def deletion_times(schema: t.StructType) -> list[str]:
    """Return the delete markers whose type is a time."""
    names = key_merge.delete_markers(schema)
    return [name for name in names if isinstance(schema[name].dataType, _TIMES)]
