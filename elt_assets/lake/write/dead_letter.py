"""`<table>_dead_letter`: records that could not be stored, as they came, with the reason.

They are counted as rejected. Once the catalog or the table can take them, `replay` moves them to the table,
each exactly once: what leaves the dead letter and what enters the table is one commit of the stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import pyarrow.compute as pc
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.files import HIDDEN, DataFile, Files
from elt_assets.lake.delta.table import Table
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.spark.tasks import read_keys
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.sync import segments

MIXED = "mixed"
"""In place of the fingerprint of a selection of fields: records were rejected under several."""
_TAIL = (
    rf',?"{segments.EXTRACTED_AT}":(?<at>\d+),"{segments.SEQUENCE}":(?<place>\d+)}}\z'
    rf'|,"{segments.PLACE}":(?<odd>\d+)}}\z'
)
"""How a staged line ends: what is this project's own."""
_TAIL_WIDTH = 80
"""Characters from a line's end within which that stands."""
_ODD_HEAD = f'{{"{segments.NOT_AN_OBJECT}":'
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
]


def schema(spec: WriteSpec) -> t.StructType:
    """The columns of a stream's dead letter.

    `record`: the record's data as JSON text, as received; `extracted_at`: when the source emitted it (null
    for what is no object); `meta`: what the source says of it, as JSON; `place`: where it stood among its
    sync's records. In rows of an earlier release these three are null, and parts of the record's text. The
    partition, where the stream has partitions.
    """
    partition = [metadata_columns.PARTITION_FIELD] if spec.partition is not None else []
    return t.StructType([*_FIELDS, *partition])


def write(table: Table, lines: DataFrame, spec: WriteSpec, expected: int) -> list[DataFile]:
    """Rejected lines as files of the dead letter, not published.

    Args:
        lines: `line` string, `reason` string, as `conform.rejected` gives them.
        expected: how many there must be.

    Raises:
        SystemFailure: there are more or fewer.
    """
    record, extracted_at, meta, place = _received(f.col("line"))
    columns = [
        record.alias("record"),
        f.col("reason"),
        f.lit(str(spec.stream.id)).alias("stream"),
        f.current_timestamp().alias("rejected_at"),
        f.lit(spec.run_id).alias("run_id"),
        extracted_at.alias("extracted_at"),
        meta.alias("meta"),
        place.alias("place"),
    ]
    if spec.partition is not None:
        columns.append(f.lit(spec.partition).alias(metadata_columns.PARTITION))
    files = table.write_files(lines.select(*columns))
    found = sum(file.records for file in files)
    if found != expected:
        table.discard_files(files)
        raise SystemFailure(
            f"stream {str(spec.stream.id)!r}: {expected} records were neither written nor "
            f"rejected as known ({found} were)",
            guidance="nothing was committed; please report this",
        )
    return files


def _received(line: Expression) -> tuple[Expression, Expression, Expression, Expression]:
    """Split a staged line into the record's data, its time of extraction, its meta and its place."""
    end = f.substring(line, -_TAIL_WIDTH, _TAIL_WIDTH)
    tail, at, place, odd = (f.regexp_extract(end, _TAIL, group) for group in range(4))
    front = _without(line, tail)
    said = f.substring_index(front, _META, -1)
    data = f.rtrim(_without(front, f.concat(f.lit(_META), said)), f.lit(","))
    # A field of the source's own may have that name; what is before it is no whole object then.
    is_whole = f.try_parse_json(f.concat(data, f.lit("}"))).isNotNull()
    has_meta = front.contains(_META) & is_whole
    is_odd = line.startswith(_ODD_HEAD) & (odd != "")
    return (
        f.when(is_odd, f.substring(front, len(_ODD_HEAD) + 1, f.length(front)))
        .when(at != "", f.concat(f.when(has_meta, data).otherwise(front), f.lit("}")))
        .otherwise(line),
        f.timestamp_millis(f.nullif(at, f.lit("")).cast("long")),
        f.when(~is_odd & has_meta, said),
        f.when(is_odd, odd).otherwise(f.nullif(place, f.lit(""))).cast("long"),
    )


def _without(text: Expression, end: Expression) -> Expression:
    """A text up to the end that it is known to have."""
    return f.substring(text, f.lit(1), f.length(text) - f.length(end))


def places(table: Table, files: Iterable[DataFile]) -> array[int]:
    """Where in their stream the records of some files of a dead letter stood (see `segments.SEQUENCE`),
    ascending."""
    found = array("q")
    for file in files:
        (values,) = read_keys(
            table.storage.system, f"{table.storage.root}/{file.path}", [["place"]]
        )
        found.extend(values.drop_null().to_pylist())
    return array("q", sorted(found))


def files_of(table: Table, partition: str | None) -> list[DataFile]:
    """The files of a dead letter, or those that hold what one partition rejected."""
    if partition is None:
        return table.files
    bounds = table.bounds([metadata_columns.PARTITION])
    exact = (partition, partition)
    return [
        file
        for file in table.files
        if (bounds[file.path] == exact if file.path in bounds else _is_of(table, file, partition))
    ]


def _is_of(table: Table, file: DataFile, partition: str) -> bool:
    """Whether a file holds one partition alone; read from it where its bounds are not in the log."""
    path = f"{table.storage.root}/{file.path}"
    (values,) = read_keys(table.storage.system, path, [[metadata_columns.PARTITION]])
    return bool(pc.unique(values).to_pylist() == [partition])


def staged(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> tuple[str, int]:
    """The records of a dead letter as a folder of segments, numbered anew, for `conform` to read.

    Returns:
        the folder's path under the table's root, and the number of records.
    """
    rows = table.read_files(spark, files, t.StructType(_FIELDS))
    number = (f.row_number().over(_order()) - 1).cast("string")
    line = f.when(f.col("place").isNull(), _line_of_old(number)).otherwise(_line(number))
    folder = Files.new_folder(HIDDEN)
    rows.select(line.alias("value")).write.text(table.storage.place.child(folder).for_spark)
    return folder, sum(file.records for file in files)


def _line(number: Expression) -> Expression:
    """A row as a line of a segment (see `segments`)."""
    record, meta = f.col("record"), f.col("meta")
    data = _without(record, f.lit("}"))
    comma = f.when(f.trim(data) != "{", ",").otherwise("")
    at = f.unix_millis("extracted_at").cast("string")
    own = f.concat(f.lit(f'"{segments.EXTRACTED_AT}":'), at, f.lit(f',"{segments.SEQUENCE}":'))
    said = f.coalesce(f.concat(f.lit(_META), meta, f.lit(",")), f.lit(""))
    odd = f.concat(f.lit(_ODD_HEAD), record, f.lit(f',"{segments.PLACE}":'), number, f.lit("}"))
    whole = f.concat(data, comma, said, own, number, f.lit("}"))
    return f.when(at.isNull(), odd).otherwise(whole)


def _line_of_old(number: Expression) -> Expression:
    """A row of an earlier release, whose record is a line of a segment, with its place replaced."""
    record = f.col("record")
    body = _without(record, f.lit("}"))
    tail = f.concat(f.lit(f',"{segments.SEQUENCE}":'), number, f.lit("}"))
    has_place = record.contains(f'"{segments.SEQUENCE}":')
    return f.when(has_place, f.concat(body, tail)).otherwise(record)


def _order() -> WindowSpec:
    """The order in which records were rejected."""
    return Window.orderBy("rejected_at", "place", "record")
