"""Parse segments into a DataFrame with the table's columns.

Spark's JSON reader parses each line once, directly into the wanted types. If a value does not fit, the reader
makes it null and puts the whole line into a corrupt-record column. Only such lines are parsed again, value by
value: a value that can be kept is kept (`5.0` is an integer), any other becomes null and is recorded in
`_airbyte_meta.changes`. This costs nothing for other lines.

Spec: AirbyteRecordMessage.meta.changes; the data types' rules for values that do not fit.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import NamedTuple

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.parse import cast, salvage
from elt_assets.lake.parse.changes import (
    ParsedField,
    change_tests,
    changes,
    is_nulled,
    within_size_limit,
)
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.schema.logical_types import JSONS, Column, Struct, described, scalars
from elt_assets.lake.spark.session import STRICT_READ
from elt_assets.sync import segments

Lines = Sequence[str] | DataFrame
"""Lines of segments: paths of files or folders for Spark's readers, or the one column of a DataFrame."""
Key = Sequence[Sequence[str]]
"""Paths of table columns."""

_CORRUPT = "_elt:corrupt"
_VARIANTS = "_elt_variants"
_TEXTS = "_elt_texts"
_LINE = "_elt_line"
_REPAIR = "_elt_repair"
_VALUES = "_elt_values"
_RESULTS = "_elt_results"
_CHANGES = "_elt_changes"
_REJECTION = "_elt_rejection"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    # Otherwise the *strings* "NaN" and "Infinity" would become numbers, without a report.
    "allowNonNumericNumbers": "false",
}
_READ = {"lineSep": "\n", **STRICT_READ}
_PROPERTIES = (
    t.StructField(segments.EXTRACTED_AT, t.LongType()),
    t.StructField(segments.SEQUENCE, t.LongType()),
    t.StructField(
        segments.META, t.StructType([t.StructField("changes", metadata_columns.CHANGES)])
    ),
    t.StructField(segments.ROW_ID, t.StringType()),
)
"""The properties that a segment's line has besides the record's own fields."""


@dataclass(frozen=True)
class Stamp:
    """The values that all rows of one sync share.

    Attributes:
        raw_id_prefix: the first 24 characters of the rows' UUIDs, unique to the sync. The last 12 are the
            extraction order: the ids of one sync sort in the order of extraction.
        replays: the lines are of earlier syncs. Each has its row's id, in `segments.ROW_ID`.
    """

    raw_id_prefix: str
    generation_id: int
    sync_id: int
    replays: bool = False


def conform(
    spark: SparkSession,
    lines: Lines,
    columns: Sequence[Column],
    stamp: Stamp,
    key: Key = (),
    partition: str | None = None,
) -> DataFrame:
    """Return the accepted rows of some segments, in the types of the table's columns.

    Rejected are lines that are not JSON objects, rows whose key is null in all its parts, rows with a part
    that became null because its value does not fit or that is in no object, and rows with a value that does
    not fit a strict column.

    Args:
        partition: the value of the column `_elt_partition`. Without it, the rows do not have this column.
    """
    if isinstance(lines, DataFrame):
        parsed = (
            _parsed_texts(_texts(spark, lines), columns).where(f.is_valid_utf8(_LINE)).drop(_LINE)
        )
    else:
        reader = spark.read.schema(_read_schema(columns)).options(**_OPTIONS, **_READ)
        parsed = reader.json(list(lines))
    rows = _typed(parsed, columns, stamp, partition)
    return rows.where(_accepted(columns, key)).drop(segments.SEQUENCE, _REJECTION)


def rejected(
    spark: SparkSession,
    lines: Lines,
    columns: Sequence[Column],
    stamp: Stamp,
    key: Key = (),
) -> DataFrame:
    """Return the lines that `conform` rejects, in the columns `line` and `reason`, both strings."""
    parsed = _parsed_texts(_texts(spark, lines), columns)
    rows = _typed(parsed, columns, stamp, None, _LINE)
    # The JSON reader rejects a line that is not UTF-8; `from_json` does not.
    readable = f.is_valid_utf8(_LINE) & f.col(segments.SEQUENCE).isNotNull()
    rejection = f.col(_REJECTION) if _has_strict(columns) else f.lit(None)
    faults = [_key_fault(columns, part) for part in key]
    reason = f.when(~readable, "not a readable JSON object").otherwise(
        f.coalesce(rejection, *faults, f.lit("every field of the primary key is null"))
    )
    line = f.make_valid_utf8(_LINE).alias("line")
    is_rejected = ~(readable & _accepted(columns, key))
    return rows.where(is_rejected).select(line, reason.alias("reason"))


def _texts(spark: SparkSession, lines: Lines) -> DataFrame:
    """Return lines as text, in the one column `_LINE`. A line that is not UTF-8 keeps its bytes."""
    if not isinstance(lines, DataFrame):
        lines = spark.read.options(**_READ).text(list(lines))
    return lines.select(f.col(lines.columns[0]).cast("string").alias(_LINE))


def _parsed_texts(texts: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return the columns of lines, as Spark's JSON reader does, and the lines.

    The reader makes a line that is not UTF-8 a corrupt one; this parse does not.
    """
    row = f.from_json(_LINE, _read_schema(columns), _OPTIONS)
    return texts.select(row.alias("row"), _LINE).select("row.*", _LINE)


def _key_fault(columns: Sequence[Column], part: Sequence[str]) -> Expression:
    """Return the reason to reject a record for one part of its key; null for others.

    The value does not fit its type, or the object that has the field is null or missing: such a record does
    not have the key's fields.
    """
    found, fields = [], columns
    for name in part:
        column = next(each for each in fields if each.name == name)
        found.append(column)
        fields = column.kind.fields if isinstance(column.kind, Struct) else ()
    sources = [column.source for column in found]
    # Either the field became null, or an object that contains it.
    nulled = [".".join(sources[: depth + 1]) for depth in range(len(sources))]
    kind = described(found[-1].kind)
    field = f"field {nulled[-1]!r} of the primary key"
    misfit = f"{field} does not fit its type, {kind}"
    fault = f.when(value_at(part).isNull() & is_nulled(nulled), misfit)
    if len(part) == 1:
        return fault
    return fault.when(value_at(part[:-1]).isNull(), f"the object with {field} is null or missing")


def value_at(parts: Sequence[str]) -> Expression:
    """Return a column of the table, or a field nested in one."""
    first, *rest = parts
    return reduce(lambda value, name: value.getField(name), rest, _column(first))


def _read_schema(columns: Sequence[Column]) -> t.StructType:
    fields = [t.StructField(c.source, cast.reader_type(c.kind)) for c in cast.read_columns(columns)]
    return t.StructType([*fields, *_PROPERTIES, t.StructField(_CORRUPT, t.StringType())])


def _accepted(columns: Sequence[Column], key: Key) -> Expression:
    """Return the condition that a row is accepted, see `conform`."""
    conditions = [f.col(segments.SEQUENCE).isNotNull()]
    if key:
        conditions.append(reduce(operator.or_, (value_at(part).isNotNull() for part in key)))
    if len(key) > 1:
        conditions += [_key_fault(columns, part).isNull() for part in key]
    if _has_strict(columns):
        conditions.append(f.col(_REJECTION).isNull())
    return reduce(lambda a, b: a & b, conditions)


def _has_strict(columns: Sequence[Column]) -> bool:
    """Return whether a column is strict: a value that does not fit it rejects the record."""
    return any(column.strict for column in columns)


def _typed(
    parsed: DataFrame,
    columns: Sequence[Column],
    stamp: Stamp,
    partition: str | None,
    *keep: str,
) -> DataFrame:
    """Return the table's columns, SEQUENCE, the columns in `keep`, and REJECTION if a column is strict.

    There are two steps, once JSON is text. The first casts every column as if the line were good, and repairs
    the line if it is not. The second selects between the two results.
    """
    steps = _steps(parsed.sparkSession, tuple(columns))
    own = tuple(field.name for field in _PROPERTIES)
    found = parsed.toDF(*steps.parsed, *own, _CORRUPT, *keep)
    if steps.texts:
        found = found.withColumns(dict(steps.texts))
    found = found.select(*steps.values, *map(_column, (*own, _CORRUPT, *keep)), steps.repair)
    strict = [f.col(_REPAIR).getField(_REJECTION).alias(_REJECTION)] if _has_strict(columns) else []
    return found.select(
        *steps.outputs,
        *_stamped(parsed.sparkSession, stamp),
        *([] if partition is None else [f.lit(partition).alias(metadata_columns.PARTITION)]),
        *strict,
        *keep,
    )


@dataclass(frozen=True)
class _Steps:
    """The expressions of `_typed` for some columns.

    Attributes:
        parsed: the names of the temporary columns with the parsed values: by position, because the
            source may use any names, even this project's own.
        texts: the parsed values with JSON as text, where they contain JSON. This is a step of its own: it is
            slow, and its result is used more than once.
        values: the parsed values, cast as if the line were good.
        repair: see `_repaired`.
        outputs: the columns of the table.
    """

    parsed: Sequence[str]
    texts: Mapping[str, Expression]
    values: Sequence[Expression]
    repair: Expression
    outputs: Sequence[Expression]


@lru_cache(maxsize=32)
def _steps(_session: SparkSession, columns: tuple[Column, ...]) -> _Steps:
    """Return the expressions for some columns. To build them takes longer than to parse a few lines, and each
    expression belongs to a session."""
    read = cast.read_columns(columns)
    parsed = list(map(_parsed_name, range(len(read))))
    results = [cast.converted(f.col(name), c.kind) for name, c in zip(parsed, read, strict=True)]
    is_good, repair = f.col(_REPAIR).isNull(), f.col(_REPAIR).getField(_RESULTS)
    outputs = {
        c.name: f.when(is_good, f.col(_value_name(number))).otherwise(repair.getField(c.name))
        for number, c in enumerate(read)
    }
    return _Steps(
        parsed,
        {
            name: cast.json_as_text(f.col(name), column.kind)
            for name, column in zip(parsed, read, strict=True)
            if not JSONS.isdisjoint(scalars(column.kind))
        },
        [result.alias(_value_name(number)) for number, result in enumerate(results)],
        _repaired(read, results).alias(_REPAIR),
        [outputs.get(c.name, f.lit(None)).cast(c.type).alias(c.name) for c in columns],
    )


def _parsed_name(number: int) -> str:
    """Return the name of the temporary column with the parsed value of a column."""
    return f"_elt_parsed_{number}"


def _value_name(number: int) -> str:
    """Return the name of the temporary column with the cast value of a column."""
    return f"_elt_value_{number}"


def _property(name: str) -> Expression:
    """Return a property of a segment's line, even if the reader made all columns of the line null.

    `from_json` also keeps Spark from compiling this step and the next into one method. The JVM would not
    compile a method of that length, and the two steps would take twice the time.
    """
    line = _column(_CORRUPT)
    is_lost = f.col(segments.SEQUENCE).isNull() & f.is_valid_utf8(line)
    again = f.from_json(line, t.StructType(list(_PROPERTIES)), _OPTIONS)
    return f.coalesce(f.col(name), f.when(is_lost, again.getField(name)))


def _stamped(session: SparkSession, stamp: Stamp) -> list[Expression]:
    """Return this project's own columns, and SEQUENCE."""
    own = _own_values(session)
    meta = f.struct(f.lit(stamp.sync_id).cast("long").alias("sync_id"), own.changes)
    return [
        (
            _replayed_id(stamp, own)
            if stamp.replays
            else f.concat(f.lit(stamp.raw_id_prefix), own.order)
        ).alias(metadata_columns.RAW_ID),
        own.extracted_at,
        f.lit(stamp.generation_id).cast("long").alias(metadata_columns.GENERATION_ID),
        meta.cast(metadata_columns.META_TYPE).alias(metadata_columns.META),
        own.sequence,
    ]


def _replayed_id(stamp: Stamp, own: _OwnValues) -> Expression:
    """Return the id of a replayed row: its own, or one as if its sync had started when it was extracted."""
    time = f.lpad(f.lower(f.hex(f.unix_millis(own.extracted_at))), 12, "0")
    start = f.concat(f.substring(time, 1, 8), f.lit("-"), f.substring(time, 9, 4))
    made = f.concat(start, f.lit(stamp.raw_id_prefix[13:]), own.order)
    return f.coalesce(f.nullif(own.row_id, f.lit("")), made)


class _OwnValues(NamedTuple):
    """The parts of this project's own columns that come from the properties of a line.

    `order`: the end of the row's id. `changes`: those that the source reported come first. `row_id`: the id
    of a replayed row.
    """

    order: Expression
    extracted_at: Expression
    changes: Expression
    sequence: Expression
    row_id: Expression


@lru_cache(maxsize=4)
def _own_values(_session: SparkSession) -> _OwnValues:
    sequence = _property(segments.SEQUENCE)
    none = f.array().cast(metadata_columns.CHANGES)
    source = f.coalesce(_property(segments.META).getField("changes"), none)
    both = f.concat(source, f.col(_REPAIR).getField(_CHANGES))
    extracted_at = f.timestamp_millis(_property(segments.EXTRACTED_AT))
    return _OwnValues(
        f.lpad(f.lower(f.hex(sequence)), 12, "0"),
        extracted_at.alias(metadata_columns.EXTRACTED_AT),
        f.when(f.col(_REPAIR).isNull(), source).otherwise(both).alias("changes"),
        sequence.alias(segments.SEQUENCE),
        _property(segments.ROW_ID),
    )


def _repaired(read: Sequence[Column], results: Sequence[Expression]) -> Expression:
    """Return the repair of a line with a value that does not fit; null for all other lines.

    A corrupt line is parsed again. The steps are lambdas over an array of one element: Spark computes nothing
    twice.

    Returns:
        a struct of `_RESULTS` (by column name), `_CHANGES` and `_REJECTION`.
    """
    line = _column(_CORRUPT)
    variants = f.from_json(line, t.StructType(salvage.variant_fields(read)), _OPTIONS)
    texts = f.from_json(line, t.StructType(salvage.text_fields(read)), _OPTIONS)
    pairs = enumerate(zip(read, results, strict=True))
    tests = [
        test
        for number, (column, result) in pairs
        for test in change_tests(f.col(_parsed_name(number)), result, column.kind)
    ]
    is_suspect = cast.any_of([line.isNotNull() & f.is_valid_utf8(line), *tests])
    lines = f.when(is_suspect, f.array(f.struct(variants.alias(_VARIANTS), texts.alias(_TEXTS))))
    for step in (_with_values, _with_results, _with_changes):
        lines = f.transform(lines, partial(step, read))
    return f.get(lines, f.lit(0))


def _with_values(read: Sequence[Column], line: Expression) -> Expression:
    """Add the values in the form of `cast.json_as_text`: for a corrupt line, only those that fit."""
    found, is_clean, second = [], _column(_CORRUPT).isNull(), _second_parse(read, line)
    for number, column in enumerate(read):
        value = f.col(_parsed_name(number))
        repaired = salvage.repaired_column(value, *second[number], column.kind)
        found.append(f.when(is_clean, value).otherwise(repaired).alias(column.name))
    return f.struct(*_fields_of(line, _VARIANTS, _TEXTS), f.struct(*found).alias(_VALUES))


def _with_results(read: Sequence[Column], line: Expression) -> Expression:
    found, parsed = [], line.getField(_VALUES)
    for column in read:
        value = parsed.getField(column.name)
        result = within_size_limit(cast.converted(value, column.kind), value, column.kind)
        found.append(result.alias(column.name))
    return f.struct(*_fields_of(line, _VARIANTS, _TEXTS, _VALUES), f.struct(*found).alias(_RESULTS))


def _with_changes(read: Sequence[Column], line: Expression) -> Expression:
    found, reasons = [], []
    parsed, results = line.getField(_VALUES), line.getField(_RESULTS)
    for column, (variants, text) in zip(read, _second_parse(read, line), strict=True):
        value, result = parsed.getField(column.name), results.getField(column.name)
        field = ParsedField([column.source], column.kind, value, result, variants, text.isNotNull())
        for change in changes(field):
            found.append(change.recorded())
            if column.strict:
                reasons.append(f.when(change.condition, _reason(column)))
    entries = f.array_compact(f.array(*found)) if found else f.array()
    rejection = f.coalesce(*reasons, f.lit(None).cast("string"))
    return f.struct(
        results.alias(_RESULTS),
        entries.cast(metadata_columns.CHANGES).alias(_CHANGES),
        rejection.alias(_REJECTION),
    )


def _reason(column: Column) -> str:
    kind = described(column.kind)
    return f"field {column.source!r} does not fit its column's type, {kind}"


def _second_parse(read: Sequence[Column], line: Expression) -> list[tuple[Expression, Expression]]:
    """Return the fields of a corrupt line, parsed again, and their texts; both null if it has no value."""
    found, variants, texts = [], line.getField(_VARIANTS), line.getField(_TEXTS)
    for column in read:
        value = variants.getField(column.source)
        is_string = salvage.is_string(column.kind)
        found.append((value, value if is_string else texts.getField(column.source)))
    return found


def _fields_of(line: Expression, *names: str) -> list[Expression]:
    return [line.getField(name).alias(name) for name in names]


def _column(name: str) -> Expression:
    """Return a column by a name that may contain dots and backticks."""
    return f.col("`" + name.replace("`", "``") + "`")
