"""`<table>_dead_letter`: records that could not be stored, as they came, with the reason.

They are counted as rejected. Once the catalog or the table can take them, `replay` moves them to the table,
each exactly once: what leaves the dead letter and what enters the table is one commit of the stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake import types
from elt_assets.lake.conform import path
from elt_assets.lake.files import HIDDEN, DataFile, Files
from elt_assets.lake.landing import Landing
from elt_assets.lake.table import Table
from elt_assets.sync import segments

MIXED = "mixed"
"""In place of the fingerprint of a selection of fields: records were rejected under several."""
_PLACE = rf'"(?:{segments.SEQUENCE}|{segments.PLACE})":(?P<place>\d+)}}$'
_PLACE_WIDTH = 40
"""Characters from a line's end within which that stands."""
_READ_AT_ONCE = 64
"""Records; each may be megabytes."""
_FIELDS = [
    t.StructField("record", t.StringType()),
    t.StructField("reason", t.StringType()),
    t.StructField("stream", t.StringType()),
    t.StructField("rejected_at", t.TimestampType()),
    t.StructField("run_id", t.StringType()),
]


def schema(landing: Landing) -> t.StructType:
    """`record`: the record's data as JSON text, with this project's properties at its end; `reason`;
    `stream`; `rejected_at`; `run_id`; and the partition, where the stream has partitions."""
    partition = [types.PARTITION_FIELD] if landing.partition is not None else []
    return t.StructType([*_FIELDS, *partition])


def write(table: Table, lines: DataFrame, landing: Landing, expected: int) -> list[DataFile]:
    """Rejected lines as files of the dead letter, not published.

    Args:
        lines: `record` string, `reason` string, as `conform.rejected` gives them.
        expected: how many there must be.

    Raises:
        SystemFailure: there are more or fewer.
    """
    columns = [
        f.col("record"),
        f.col("reason"),
        f.lit(str(landing.stream.id)).alias("stream"),
        f.current_timestamp().alias("rejected_at"),
        f.lit(landing.run_id).alias("run_id"),
    ]
    if landing.partition is not None:
        columns.append(f.lit(landing.partition).alias(types.PARTITION))
    files = table.write_files(lines.select(*columns))
    found = sum(file.records for file in files)
    if found != expected:
        table.discard_files(files)
        raise SystemFailure(
            f"stream {str(landing.stream.id)!r}: {expected} records were neither written nor "
            f"rejected as known ({found} were)",
            guidance="nothing was committed; please report this",
        )
    return files


def places(table: Table, files: Iterable[DataFile]) -> array[int]:
    """Where in their stream the records of some files of a dead letter stood (see `segments.SEQUENCE`),
    ascending; not in memory is more than a few records at once."""
    found = array("q")
    for file in files:
        with table.storage.open(file) as source:
            for batch in pq.ParquetFile(source).iter_batches(_READ_AT_ONCE, columns=["record"]):
                ends = pc.utf8_slice_codeunits(batch.column(0), -_PLACE_WIDTH)
                told = pc.extract_regex(ends, _PLACE).field("place")
                found.extend(told.cast(pa.int64()).drop_null().to_pylist())
    return array("q", sorted(found))


def files_of(table: Table, partition: str | None) -> list[DataFile]:
    """The files of a dead letter, or those that hold what one partition rejected."""
    bounds = table.bounds([types.PARTITION])
    exact = (partition, partition)
    return [file for file in table.files if partition is None or bounds.get(file.path) == exact]


def staged(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> tuple[str, int]:
    """The records of a dead letter as a folder of segments, numbered anew, for `conform` to read.

    Returns:
        the folder's path under the table's root, and the number of records.
    """
    rows = table.read_files(spark, files)
    number = (f.row_number().over(_order()) - 1).cast("string")
    line = path(["record"])
    body = f.expr("substring(record, 1, length(record) - 1)")
    tail = f.concat(f.lit(f',"{segments.SEQUENCE}":'), number, f.lit("}"))
    numbered = f.when(line.contains(f'"{segments.SEQUENCE}":'), f.concat(body, tail)).otherwise(
        line
    )
    folder = Files.new_folder(HIDDEN)
    rows.select(numbered.alias("value")).write.text(table.storage.for_spark(folder))
    return folder, sum(file.records for file in files)


def _order() -> WindowSpec:
    """Any that lasts: the one in which they were rejected."""
    return Window.orderBy("rejected_at", "record")
