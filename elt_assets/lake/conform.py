"""Segments → a DataFrame of the table's shape.

Spark's JSON reader parses each line once, straight into the wanted types. A line with a value that
does not fit comes back with that value null and the whole line in a corrupt-record column; only
such lines are looked at again, value by value: what can be kept is kept (`5.0` is an integer), what
cannot is null and recorded in `_airbyte_meta.changes`. Clean lines pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake import types, values
from elt_assets.lake.types import Column
from elt_assets.sync import segments

_CORRUPT = "_airbyte_corrupt"
_TEXTS = "_airbyte_texts"
_NUMBERS = "_airbyte_numbers"
_LINE = "_airbyte_line"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    # Else the *strings* "NaN" and "Infinity" would pass as numbers, unreported.
    "allowNonNumericNumbers": "false",
}
_NULLED = "NULLED"
_TYPECAST = "DESTINATION_TYPECAST_ERROR"
Key = Sequence[Sequence[str]]
"""Paths of table columns."""
_SAFE_INTEGER = float(2**53)
_LONGS = t.ArrayType(t.LongType())


@dataclass(frozen=True)
class Stamp:
    """What every row of one sync carries.

    `raw_id_prefix`: the first 24 characters of the rows' UUIDs, unique to the sync; the last 12
    are the extraction order, so that ids of one sync sort as they were extracted.
    """

    raw_id_prefix: str
    generation_id: int
    sync_id: int


def conform(
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[Column],
    stamp: Stamp,
    key: Key = (),
) -> DataFrame:
    """The accepted rows of some segments, typed. A null in `key` is what is not accepted."""
    reader = spark.read.schema(_read_schema(columns)).options(**_OPTIONS, lineSep="\n")
    rows = _typed(reader.json(list(paths)), columns, stamp, segments.SEQUENCE)
    return rows.where(_accepted(key)).drop(segments.SEQUENCE)


def rejected(
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[Column],
    stamp: Stamp,
    key: Key = (),
) -> DataFrame:
    """The lines that `conform` leaves out: `record` string, `reason` string."""
    lines = spark.read.text(list(paths), lineSep="\n").select(f.col("value").alias(_LINE))
    row = f.from_json(_LINE, _read_schema(columns), _OPTIONS)
    parsed = lines.select(_LINE, row.alias("row")).select(_LINE, "row.*")
    rows = _typed(parsed, columns, stamp, segments.SEQUENCE, _LINE)
    # The JSON reader refuses what is not UTF-8; `from_json` does not.
    readable = f.is_valid_utf8(_LINE) & f.col(segments.SEQUENCE).isNotNull()
    reason = f.when(~readable, "not a readable JSON object").otherwise(
        "a field of the primary key is null"
    )
    record = f.make_valid_utf8(_LINE).alias("record")
    return rows.where(~(readable & _accepted(key))).select(record, reason.alias("reason"))


def path(parts: Sequence[str]) -> Expression:
    """A column of the table, or a field nested in one."""
    first, *rest = parts
    return reduce(lambda value, name: value.getField(name), rest, _named(first))


def _read_schema(columns: Sequence[Column]) -> t.StructType:
    meta = t.StructType([t.StructField("changes", types.CHANGES)])
    return t.StructType(
        [
            *(
                t.StructField(column.source, values.parsed_as(column.read_type))
                for column in columns
            ),
            t.StructField(segments.EXTRACTED_AT, t.LongType()),
            t.StructField(segments.SEQUENCE, t.LongType()),
            t.StructField(segments.META, meta),
            t.StructField(_CORRUPT, t.StringType()),
        ]
    )


def _typed(parsed: DataFrame, columns: Sequence[Column], stamp: Stamp, *keep: str) -> DataFrame:
    """The table's columns, and those in `keep`.

    Corrupt lines get a second, lenient reading first, in columns that are null for all others.
    """
    fields = [t.StructField(column.source, column.read_type) for column in columns]
    corrupt = f.col(_CORRUPT)
    twice = parsed.withColumn(
        _TEXTS, f.when(corrupt.isNotNull(), _texts(corrupt, fields))
    ).withColumn(_NUMBERS, f.when(corrupt.isNotNull(), _numbers(corrupt, fields)))
    return twice.select(*_outputs(columns, stamp), *keep)


def _texts(line: Expression, fields: Sequence[t.StructField]) -> Expression:
    """Each value as its JSON text, strings without their quotes."""
    kind = t.StructType([t.StructField(field.name, t.StringType()) for field in fields])
    return f.from_json(line, kind, _OPTIONS)


def _numbers(line: Expression, fields: Sequence[t.StructField]) -> Expression:
    """The values that should be integers, and arrays of them, as doubles; null where they are no
    JSON numbers."""
    doubles: dict[t.DataType, t.DataType] = {
        t.LongType(): t.DoubleType(),
        _LONGS: t.ArrayType(t.DoubleType()),
    }
    integers = [field for field in fields if field.dataType in doubles]
    kind = t.StructType([t.StructField(e.name, doubles[e.dataType]) for e in integers])
    return f.from_json(line, kind, _OPTIONS) if integers else f.struct()


def _accepted(key: Key) -> Expression:
    present = [f.col(segments.SEQUENCE).isNotNull(), *(path(part).isNotNull() for part in key)]
    return reduce(lambda a, b: a & b, present)


def _outputs(columns: Sequence[Column], stamp: Stamp) -> list[Expression]:
    corrupt = f.col(_CORRUPT).isNotNull()
    outputs, changes, odd = [], [], corrupt | f.col(segments.META).isNotNull()
    for column in columns:
        value, change, suspicious = _value(column)
        outputs.append(value.cast(column.type).alias(column.name))
        changes += change
        odd = odd if suspicious is None else odd | suspicious
    own = f.coalesce(f.col(segments.META).getField("changes"), f.array().cast(types.CHANGES))
    found = f.concat(own, f.array_compact(f.array(*changes))) if changes else own
    all_changes = f.when(odd, found).otherwise(f.array().cast(types.CHANGES))
    meta = f.struct(
        f.lit(stamp.sync_id).cast("long").alias("sync_id"), all_changes.alias("changes")
    )
    order = f.lpad(f.lower(f.hex(segments.SEQUENCE)), 12, "0")
    return [
        *outputs,
        f.concat(f.lit(stamp.raw_id_prefix), order).alias(types.RAW_ID),
        f.timestamp_millis(f.col(segments.EXTRACTED_AT)).alias(types.EXTRACTED_AT),
        f.lit(stamp.generation_id).cast("long").alias(types.GENERATION_ID),
        meta.cast(types.META_TYPE).alias(types.META),
    ]


def _value(column: Column) -> tuple[Expression, list[Expression], Expression | None]:
    """A column's value, the changes that may apply to it, and when a *clean* line needs a look."""
    typed, kind = _named(column.source), column.read_type
    if isinstance(kind, t.StringType):
        return typed, [], None
    text = f.col(_TEXTS).getField(column.source)
    repaired, changes = _repair(typed, text, f.col(_NUMBERS), column.source, kind, [column.source])
    value = f.when(f.col(_CORRUPT).isNull(), values.converted(typed, kind)).otherwise(repaired)
    return value, changes, values.loses(typed, kind) if values.is_checked(kind) else None


def _repair(
    typed: Expression,
    text: Expression,
    numbers: Expression,
    name: str,
    kind: t.DataType,
    path: Sequence[str],
) -> tuple[Expression, list[Expression]]:
    """What can be kept of a value in a suspicious line, and the changes where something cannot."""
    if isinstance(kind, t.StringType):
        return typed, []
    if isinstance(kind, t.StructType):
        return _repair_struct(typed, text, kind, path)
    value = typed
    if isinstance(kind, t.LongType):
        value = f.coalesce(typed, _integral(numbers.getField(name)))
    elif kind == _LONGS:
        value = f.coalesce(typed, _integrals(numbers.getField(name)))
    lost = text.isNotNull() & value.isNull()
    if isinstance(kind, t.ArrayType) and kind != _LONGS:
        lost = lost | (text.isNotNull() & _does_not_fit(text, kind))
    if values.is_checked(kind):
        lost = lost | values.loses(value, kind)
    return values.converted(value, kind), [_change(".".join(path), lost)]


def _repair_struct(
    typed: Expression, text: Expression, kind: t.StructType, path: Sequence[str]
) -> tuple[Expression, list[Expression]]:
    texts, numbers = _texts(text, kind.fields), _numbers(text, kind.fields)
    inner = []
    changes = [_change(".".join(path), text.isNotNull() & typed.isNull())]
    for field in kind.fields:
        value, found = _repair(
            typed.getField(field.name),
            f.when(typed.isNotNull(), texts.getField(field.name)),
            numbers,
            field.name,
            field.dataType,
            [*path, field.name],
        )
        inner.append(value.alias(field.name))
        changes += found
    return f.when(typed.isNotNull(), f.struct(*inner)), changes


def _integral(number: Expression) -> Expression:
    """`5.0` and `1e3` as integers, as far as a double tells them exactly."""
    whole = (number == f.floor(number)) & (f.abs(number) < f.lit(_SAFE_INTEGER))
    return f.when(whole, number.cast("long"))


def _integrals(numbers: Expression) -> Expression:
    """An array of doubles as integers; null where one of them is none."""
    odd = f.exists(numbers, lambda number: number.isNotNull() & _integral(number).isNull())
    return f.when(~odd, f.transform(numbers, _integral))


def _does_not_fit(text: Expression, kind: t.DataType) -> Expression:
    wrapped = f.concat(f.lit('{"v":'), text, f.lit("}"))
    parsed = t.StructField("v", values.parsed_as(kind))
    schema = t.StructType([parsed, t.StructField(_CORRUPT, t.StringType())])
    return f.from_json(wrapped, schema, _OPTIONS).getField(_CORRUPT).isNotNull()


def _change(path: str, lost: Expression) -> Expression:
    change = f.struct(
        f.lit(path).alias("field"), f.lit(_NULLED).alias("change"), f.lit(_TYPECAST).alias("reason")
    )
    return f.when(lost, change)


def _named(name: str) -> Expression:
    """A column by a name that may hold dots and backticks."""
    return f.col("`" + name.replace("`", "``") + "`")
