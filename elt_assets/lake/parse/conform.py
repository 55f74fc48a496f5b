"""Segments → a DataFrame of the table's shape.

Spark's JSON reader parses each line once, straight into the wanted types. A line with a value that
does not fit comes back with that value null and the whole line in a corrupt-record column; only
such lines are looked at again, value by value: what can be kept is kept (`5.0` is an integer), what
cannot is null and recorded in `_airbyte_meta.changes`. Clean lines pay nothing for it.

spec: AirbyteRecordMessage.meta.changes; the data types' rules for values that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.parse import cast, salvage
from elt_assets.lake.parse.changes import Place, changes, suspicions, within_bounds
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.schema.logical_types import JSONS, Column, Struct, described, scalars
from elt_assets.lake.spark.session import STRICT_READ
from elt_assets.sync import segments

Key = Sequence[Sequence[str]]
"""Paths of table columns."""

_CORRUPT = "_elt:corrupt"
_AGAIN = "_elt_again"
_TEXTS = "_elt_texts"
_LINE = "_elt_line"
_MENDED = "_elt_mended"
_VALUES = "_elt_values"
_RESULTS = "_elt_results"
_CHANGES = "_elt_changes"
_REFUSAL = "_elt_refusal"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    # Else the *strings* "NaN" and "Infinity" would pass as numbers, unreported.
    "allowNonNumericNumbers": "false",
}
_READ = {"lineSep": "\n", **STRICT_READ}
_OWN = (
    t.StructField(segments.EXTRACTED_AT, t.LongType()),
    t.StructField(segments.SEQUENCE, t.LongType()),
    t.StructField(
        segments.META, t.StructType([t.StructField("changes", metadata_columns.CHANGES)])
    ),
)
"""What a segment's line says beside the record's own fields."""


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
    partition: str | None = None,
) -> DataFrame:
    """The accepted rows of some segments, typed.

    Not accepted are lines that are no JSON objects, rows with a null in `key`, and those with a value
    that does not fit a strict column.

    Args:
        partition: what the rows' `_elt_partition` says; without one they have no such column.
    """
    reader = spark.read.schema(_read_schema(columns)).options(**_OPTIONS, **_READ)
    rows = _typed(reader.json(list(paths)), columns, stamp, partition)
    return rows.where(_accepted(columns, key)).drop(segments.SEQUENCE, _REFUSAL)


def rejected(
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[Column],
    stamp: Stamp,
    key: Key = (),
) -> DataFrame:
    """The lines that `conform` leaves out: `line` string, `reason` string."""
    text = spark.read.options(**_READ).text(list(paths))
    lines = text.select(f.col("value").alias(_LINE))
    row = f.from_json(_LINE, _read_schema(columns), _OPTIONS)
    parsed = lines.select(row.alias("row"), _LINE).select("row.*", _LINE)
    rows = _typed(parsed, columns, stamp, None, _LINE)
    # The JSON reader refuses what is not UTF-8; `from_json` does not.
    readable = f.is_valid_utf8(_LINE) & f.col(segments.SEQUENCE).isNotNull()
    refusal = f.col(_REFUSAL) if _is_strict(columns) else f.lit(None)
    misfits = [_misfit_key(columns, part) for part in key]
    reason = f.when(~readable, "not a readable JSON object").otherwise(
        f.coalesce(refusal, *misfits, f.lit("a field of the primary key is null"))
    )
    line = f.make_valid_utf8(_LINE).alias("line")
    left_out = ~(readable & _accepted(columns, key))
    return rows.where(left_out).select(line, reason.alias("reason"))


def _misfit_key(columns: Sequence[Column], part: Sequence[str]) -> Expression:
    """The reason to reject a record whose key field holds a value that does not fit; null for others."""
    found, fields = [], columns
    for name in part:
        column = next(each for each in fields if each.name == name)
        found.append(column)
        fields = column.kind.fields if isinstance(column.kind, Struct) else ()
    sources = [column.source for column in found]
    # What is nulled may be the field, or an object that it is in.
    nulled = [".".join(sources[: depth + 1]) for depth in range(len(sources))]
    is_misfit = f.exists(
        f.col(metadata_columns.META).getField("changes"),
        lambda change: (
            change.getField("field").isin(nulled)
            & change.getField("reason").startswith("DESTINATION_")
        ),
    )
    kind = described(found[-1].kind)
    reason = f"field {nulled[-1]!r} of the primary key does not fit its type, {kind}"
    return f.when(path(part).isNull() & is_misfit, reason)


def path(parts: Sequence[str]) -> Expression:
    """A column of the table, or a field nested in one."""
    first, *rest = parts
    return reduce(lambda value, name: value.getField(name), rest, _named(first))


def _read_schema(columns: Sequence[Column]) -> t.StructType:
    fields = [t.StructField(c.source, cast.parsed_as(c.kind)) for c in cast.read(columns)]
    return t.StructType([*fields, *_OWN, t.StructField(_CORRUPT, t.StringType())])


def _accepted(columns: Sequence[Column], key: Key) -> Expression:
    conditions = [f.col(segments.SEQUENCE).isNotNull(), *(path(part).isNotNull() for part in key)]
    if _is_strict(columns):
        conditions.append(f.col(_REFUSAL).isNull())
    return reduce(lambda a, b: a & b, conditions)


def _is_strict(columns: Sequence[Column]) -> bool:
    return any(column.strict for column in columns)


def _typed(
    parsed: DataFrame,
    columns: Sequence[Column],
    stamp: Stamp,
    partition: str | None,
    *keep: str,
) -> DataFrame:
    """The table's columns, SEQUENCE, REFUSAL where a column is strict, and those in `keep`.

    Two steps, after JSON became text: every column as if the line were good, with what is made of it if
    it is not; then the choice.
    """
    read = cast.read(columns)
    # By place: the source's names may be anything, our own included.
    names = (*map(_parsed, range(len(read))), *(own.name for own in _OWN), _CORRUPT, *keep)
    results = [cast.converted(f.col(_parsed(number)), c.kind) for number, c in enumerate(read)]
    found = _texted(parsed.toDF(*names), read).select(
        *(result.alias(_value(number)) for number, result in enumerate(results)),
        *map(_named, names[len(read) :]),
        _mended(read, results).alias(_MENDED),
    )
    is_good, mended = f.col(_MENDED).isNull(), f.col(_MENDED).getField(_RESULTS)
    outputs = {
        c.name: f.when(is_good, f.col(_value(number))).otherwise(mended.getField(c.name))
        for number, c in enumerate(read)
    }
    return found.select(
        *(outputs.get(c.name, f.lit(None)).cast(c.type).alias(c.name) for c in columns),
        *_stamped(stamp),
        *([] if partition is None else [f.lit(partition).alias(metadata_columns.PARTITION)]),
        _own(segments.SEQUENCE).alias(segments.SEQUENCE),
        *([f.col(_MENDED).getField(_REFUSAL).alias(_REFUSAL)] if _is_strict(read) else []),
        *keep,
    )


def _parsed(number: int) -> str:
    return f"_elt_parsed_{number}"


def _value(number: int) -> str:
    return f"_elt_value_{number}"


def _texted(frame: DataFrame, read: Sequence[Column]) -> DataFrame:
    """A step of its own, for JSON is written slowly, and its text looked at more than once."""
    if all(JSONS.isdisjoint(scalars(column.kind)) for column in read):
        return frame
    texts = {
        _parsed(number): cast.texted(f.col(_parsed(number)), column.kind)
        for number, column in enumerate(read)
    }
    return frame.withColumns(texts)


def _own(name: str) -> Expression:
    """What a segment's line says beside its record, even if the reader threw out the line whole.

    `from_json` also keeps Spark from compiling this step into one method with the next, which would be
    too long for the JVM to compile in turn: it took twice the time.
    """
    line = _named(_CORRUPT)
    is_lost = f.col(segments.SEQUENCE).isNull() & f.is_valid_utf8(line)
    again = f.from_json(line, t.StructType(list(_OWN)), _OPTIONS)
    return f.coalesce(f.col(name), f.when(is_lost, again.getField(name)))


def _stamped(stamp: Stamp) -> list[Expression]:
    """This project's own columns; of the changes, the source's come first."""
    order = f.lpad(f.lower(f.hex(_own(segments.SEQUENCE))), 12, "0")
    none = f.array().cast(metadata_columns.CHANGES)
    source = f.coalesce(_own(segments.META).getField("changes"), none)
    mended = f.concat(source, f.col(_MENDED).getField(_CHANGES))
    changes = f.when(f.col(_MENDED).isNull(), source).otherwise(mended)
    meta = f.struct(f.lit(stamp.sync_id).cast("long").alias("sync_id"), changes.alias("changes"))
    return [
        f.concat(f.lit(stamp.raw_id_prefix), order).alias(metadata_columns.RAW_ID),
        f.timestamp_millis(_own(segments.EXTRACTED_AT)).alias(metadata_columns.EXTRACTED_AT),
        f.lit(stamp.generation_id).cast("long").alias(metadata_columns.GENERATION_ID),
        meta.cast(metadata_columns.META_TYPE).alias(metadata_columns.META),
    ]


def _mended(read: Sequence[Column], results: Sequence[Expression]) -> Expression:
    """What is made of a line with a value that did not fit: `_RESULTS` by column name, `_CHANGES` and
    `_REFUSAL`. Null for all others.

    A corrupt line is read again. Step by step, in lambdas over an array of one, so that nothing is worked
    out twice.
    """
    line = _named(_CORRUPT)
    again = f.from_json(line, t.StructType(salvage.lenient(read)), _OPTIONS)
    texts = f.from_json(line, t.StructType(salvage.texts(read)), _OPTIONS)
    pairs = enumerate(zip(read, results, strict=True))
    suspected = [
        suspicion
        for number, (column, result) in pairs
        for suspicion in suspicions(f.col(_parsed(number)), result, column.kind)
    ]
    odd = cast.any_of([line.isNotNull() & f.is_valid_utf8(line), *suspected])
    lines = f.when(odd, f.array(f.struct(again.alias(_AGAIN), texts.alias(_TEXTS))))
    for step in (_with_values, _with_results, _with_changes):
        lines = f.transform(lines, partial(step, read))
    return f.get(lines, f.lit(0))


def _with_values(read: Sequence[Column], line: Expression) -> Expression:
    """As `cast.texted` gives them, of a corrupt line those that fit."""
    found, is_clean, sent = [], _named(_CORRUPT).isNull(), _sent(read, line)
    for number, column in enumerate(read):
        value = f.col(_parsed(number))
        repaired = salvage.repaired_column(value, *sent[number], column.kind)
        found.append(f.when(is_clean, value).otherwise(repaired).alias(column.name))
    return f.struct(*_kept(line, _AGAIN, _TEXTS), f.struct(*found).alias(_VALUES))


def _with_results(read: Sequence[Column], line: Expression) -> Expression:
    found, parsed = [], line.getField(_VALUES)
    for column in read:
        value = parsed.getField(column.name)
        result = within_bounds(cast.converted(value, column.kind), value, column.kind)
        found.append(result.alias(column.name))
    return f.struct(*_kept(line, _AGAIN, _TEXTS, _VALUES), f.struct(*found).alias(_RESULTS))


def _with_changes(read: Sequence[Column], line: Expression) -> Expression:
    found, refusals = [], []
    parsed, results = line.getField(_VALUES), line.getField(_RESULTS)
    for column, (again, text) in zip(read, _sent(read, line), strict=True):
        value, result = parsed.getField(column.name), results.getField(column.name)
        place = Place([column.source], column.kind, value, result, again, text.isNotNull())
        for change in changes(place):
            found.append(change.recorded())
            if column.strict:
                refusals.append(f.when(change.condition, _refusal(column)))
    told = f.array_compact(f.array(*found)) if found else f.array()
    refusal = f.coalesce(*refusals, f.lit(None).cast("string"))
    return f.struct(
        results.alias(_RESULTS),
        told.cast(metadata_columns.CHANGES).alias(_CHANGES),
        refusal.alias(_REFUSAL),
    )


def _refusal(column: Column) -> str:
    kind = described(column.kind)
    return f"field {column.source!r} holds no {kind}, which the table's column is"


def _sent(read: Sequence[Column], line: Expression) -> list[tuple[Expression, Expression]]:
    """The fields of a corrupt line, read again, and their texts; both null if it held nothing."""
    found, again, texts = [], line.getField(_AGAIN), line.getField(_TEXTS)
    for column in read:
        value = again.getField(column.source)
        is_text = salvage.is_text(column.kind)
        found.append((value, value if is_text else texts.getField(column.source)))
    return found


def _kept(line: Expression, *names: str) -> list[Expression]:
    return [line.getField(name).alias(name) for name in names]


def _named(name: str) -> Expression:
    """A column by a name that may hold dots and backticks."""
    return f.col("`" + name.replace("`", "``") + "`")
