"""The dead letter `<table>_dead_letter`: records that could not be stored, as received, with the reason.

They are counted as rejected. When the catalog or the table can accept them, `replay` moves them to the table,
each exactly once: one commit of the stream removes them from the dead letter and adds them to the table.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache

import pyarrow.compute as pc
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.dedup import Arrival
from elt_assets.lake.merge.file_splitting import lacks_nulls
from elt_assets.lake.parse.conform import Stamp
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark.parsing.undeclared import Declared, rename_lines
from elt_assets.lake.spark.tasks import read_keys
from elt_assets.lake.spark.worker_code import with_code
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.sync import segments

MIXED = "mixed"
"""Value in place of the fingerprint of a field selection: records were rejected under several selections."""
_ID = rf'"{segments.ROW_ID}":"(?<id>[^"]*)",'
"""The property of a line of a replay. In another line, it would be the source's."""
_NO_ID = "(?<id>)"
_TAIL = (
    rf',?%s"{segments.EXTRACTED_AT}":(?<at>\d+),"{segments.SEQUENCE}":(?<place>\d+)}}\z'
    rf'|,"{segments.PLACE}":(?<odd>\d+)}}\z'
)
"""The end of a staged line: the properties that this project adds. `%s`: `_ID` or `_NO_ID`."""
_TAIL_WIDTH = 160
"""Number of characters at a line's end that contain these properties."""
_OTHER_HEAD = f'{{"{segments.NOT_AN_OBJECT}":'
"""The start of a staged line whose data is not a JSON object."""
_META = f'"{segments.META}":'
_FIELDS = [
    t.StructField("record", t.StringType()),
    t.StructField("reason", t.StringType()),
    t.StructField("stream", t.StringType()),
    t.StructField("rejected_at", t.TimestampType()),
    t.StructField("run_id", t.StringType()),
    t.StructField("extracted_at", t.TimestampType()),
    t.StructField("meta", t.StringType()),
    t.StructField("place", t.LongType()),
    t.StructField("row_id", t.StringType()),
]


def schema(spec: WriteSpec) -> t.StructType:
    """Return the columns of a stream's dead letter; its partition column if the stream has partitions.

    The columns `extracted_at`, `meta` and `place` are null in rows of an earlier release; there, they are
    parts of `record`. Later releases lack only `row_id`.

    - `record`: the record's data as JSON text, as received.
    - `extracted_at`: the time when the source emitted it; null if it is not an object.
    - `meta`: the record's own metadata from the source, as JSON.
    - `place`: its place among the records of its sync.
    - `row_id`: the id that its row gets when it is replayed: that of its arrival.
    """
    partition = [metadata_columns.PARTITION_FIELD] if spec.partition is not None else []
    return t.StructType([*_FIELDS, *partition])


def write(
    table: Table, lines: DataFrame, spec: WriteSpec, stamp: Stamp, expected: int
) -> list[DataFile]:
    """Write rejected lines as files of the dead letter, without publishing them.

    Args:
        lines: the columns `line` and `reason`, both strings, as `conform.rejected` returns them.
        expected: the number of lines.

    Raises:
        SystemFailure: more or fewer rows were written.
    """
    record, extracted_at, meta, place, known_id = _split_line(
        lines.sparkSession, replays=stamp.replays
    )
    own_id = f.concat(f.lit(stamp.raw_id_prefix), f.lpad(f.lower(f.hex(place)), 12, "0"))
    columns = [
        record.alias("record"),
        f.col("reason"),
        f.lit(str(spec.stream.id)).alias("stream"),
        f.current_timestamp().alias("rejected_at"),
        f.lit(spec.run_id).alias("run_id"),
        extracted_at.alias("extracted_at"),
        meta.alias("meta"),
        place.alias("place"),
        f.nullif(f.coalesce(known_id, own_id), f.lit("")).alias("row_id"),
    ]
    if spec.partition is not None:
        columns.append(f.lit(spec.partition).alias(metadata_columns.PARTITION))
    files = table.write_files(lines.select(*columns))
    found = sum(file.records for file in files)
    if found != expected:
        table.discard_files(files)
        raise SystemFailure(
            f"stream {str(spec.stream.id)!r}: expected {expected} rejected records, wrote {found}",
            guidance="nothing was committed; report this as a bug",
        )
    return files


@lru_cache(maxsize=4)
def _split_line(_session: SparkSession, *, replays: bool) -> tuple[Expression, ...]:
    """Split a line into the record's data, its time of extraction, its meta, its place and its row's id.

    The id is null if the line is not of a replay, and empty if it is unknown.
    """
    line = f.col("line")
    end = f.substring(line, -_TAIL_WIDTH, _TAIL_WIDTH)
    pattern = _TAIL % (_ID if replays else _NO_ID)
    groups = (f.regexp_extract(end, pattern, group) for group in range(5))
    tail, row_id, at, place, other_place = groups
    front = _without(line, tail)
    meta_text = f.substring_index(front, _META, -1)
    data = f.rtrim(_without(front, f.concat(f.lit(_META), meta_text)), f.lit(","))
    # The source may have a field of that name; then the text before it is not a complete object.
    is_whole = f.try_parse_json(f.concat(data, f.lit("}"))).isNotNull()
    has_meta = front.contains(_META) & is_whole
    is_other = line.startswith(_OTHER_HEAD) & (other_place != "")
    return (
        f.when(is_other, f.substring(front, len(_OTHER_HEAD) + 1, f.length(front)))
        .when(at != "", f.concat(f.when(has_meta, data).otherwise(front), f.lit("}")))
        .otherwise(line),
        f.timestamp_millis(f.nullif(at, f.lit("")).cast("long")),
        f.when(~is_other & has_meta, meta_text),
        f.when(is_other, other_place).otherwise(f.nullif(place, f.lit(""))).cast("long"),
        f.when(~is_other & f.lit(replays), row_id),
    )


def _without(text: Expression, end: Expression) -> Expression:
    """Return a text without its end, which is known."""
    return f.substring(text, f.lit(1), f.length(text) - f.length(end))


def places(table: Table, files: Iterable[DataFile]) -> array[int]:
    """Return the places (see `segments.SEQUENCE`) of the records of some dead letter files, ascending."""
    found = array("q")
    for file in files:
        (values,) = read_keys(
            table.storage.system, f"{table.storage.root}/{file.path}", [["place"]]
        )
        found.extend(values.drop_null().to_pylist())
    return array("q", sorted(found))


def files_of(table: Table, partition: str | None) -> list[DataFile]:
    """Return the files of a dead letter; for a partition, only those with records that it rejected."""
    if partition is None:
        return table.files
    exact = (partition, partition)
    return [
        file
        for file, bounds in table.files_overlapping([metadata_columns.PARTITION], *exact)
        if (_is_of(table, file, partition) if bounds is None else bounds == exact)
    ]


def _is_of(table: Table, file: DataFile, partition: str) -> bool:
    """Return whether a file has rows of one partition only. It reads the file: the log lacks its bounds."""
    path = f"{table.storage.root}/{file.path}"
    (values,) = read_keys(table.storage.system, path, [[metadata_columns.PARTITION]])
    return bool(pc.unique(values).to_pylist() == [partition])


def arrival(table: Table, files: Sequence[DataFile]) -> Arrival:
    """Return the order in which the records of some dead letter files stand among the rows of their table."""
    return "by_id" if lacks_nulls(table, files, ["row_id"]) else "by_time"


def staged_lines(
    spark: SparkSession, table: Table, files: Sequence[DataFile], declared: Declared
) -> DataFrame:
    """Return the records of a dead letter as lines of segments, for `conform` to parse.

    A record has its place and the id of its row. It has a new place if an earlier release rejected it. Its
    fields have their declared names.
    """
    rows = table.read_files(spark, files, t.StructType(_FIELDS))
    number = (f.row_number().over(_order()) - 1).cast("string")
    line = f.when(f.col("place").isNull(), _legacy_line(number)).otherwise(_line(number))
    lines = rows.select(line.alias("value"))
    return lines.mapInArrow(with_code(rename_lines, declared), lines.schema)


def _line(number: Expression) -> Expression:
    """Return a row as a line of a segment (see `segments`)."""
    record, meta = f.col("record"), f.col("meta")
    data = _without(record, f.lit("}"))
    comma = f.when(f.trim(data) != "{", ",").otherwise("")
    at = f.unix_millis("extracted_at").cast("string")
    row_id = f.coalesce("row_id", f.lit(""))
    place = f.when(row_id == "", number).otherwise(f.col("place").cast("string"))
    own = f.concat(
        *(f.lit(f'"{segments.ROW_ID}":"'), row_id, f.lit(f'","{segments.EXTRACTED_AT}":'), at),
        f.lit(f',"{segments.SEQUENCE}":'),
    )
    meta_text = f.coalesce(f.concat(f.lit(_META), meta, f.lit(",")), f.lit(""))
    other = f.concat(f.lit(_OTHER_HEAD), record, f.lit(f',"{segments.PLACE}":'), number, f.lit("}"))
    complete = f.concat(data, comma, meta_text, own, place, f.lit("}"))
    return f.when(at.isNull(), other).otherwise(complete)


def _legacy_line(number: Expression) -> Expression:
    """Return a row of an earlier release, whose record is a line of a segment, with a new place."""
    record = f.col("record")
    body = _without(record, f.lit("}"))
    tail = f.concat(f.lit(f',"{segments.SEQUENCE}":'), number, f.lit("}"))
    has_place = record.contains(f'"{segments.SEQUENCE}":')
    return f.when(has_place, f.concat(body, tail)).otherwise(record)


def _order() -> WindowSpec:
    """Return the order in which records were rejected."""
    return Window.orderBy("rejected_at", "place", "record")
