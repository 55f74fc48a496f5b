"""The dead letter `<table>_dead_letter`: records that could not be stored, as received, with the reason.

First its columns, for `writer` and `commit`; then its records as a segment, for `lake.admin.replay`.

They are counted as rejected. When the catalog or the table can accept them, `replay` moves them to the table,
each exactly once: one commit of the stream removes them from the dead letter and adds them to the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.worker.parquet import read_keys
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.messages import Form
from elt_assets.sync.segments import Piece, Segment

MIXED = "mixed"
"""Value in place of the fingerprint of a field selection: records were rejected under several selections."""
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

    - `record`: the record's data as JSON text, as received.
    - `extracted_at`: the time when the source emitted it; null if it is not an object.
    - `meta`: the record's own metadata from the source, as JSON.
    - `place`: its place among the records of its sync.
    - `row_id`: the id that its row gets when it is replayed: that of its arrival.
    """
    partition = [metadata_columns.PARTITION_FIELD] if spec.partition is not None else []
    return t.StructType([*_FIELDS, *partition])


def same_values(spec: WriteSpec) -> Mapping[str, Any]:
    """Return the values that the rows of a run share."""
    values: dict[str, Any] = {
        "stream": str(spec.stream.id),
        "run_id": spec.run_id,
    }
    return (
        values if spec.partition is None else {**values, metadata_columns.PARTITION: spec.partition}
    )


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


def stage(table: Table, files: Sequence[DataFile], path: Path) -> Segment:
    """Write the records of some dead letter files as a segment.

    Each has the place and the id of its row, in the order in which records were rejected.
    """
    rows = _sort_rows(table, files)
    with path.open("wb") as out:
        out.writelines(map(_line, rows.to_pylist()))
    size = path.stat().st_size
    return Segment(path, len(rows), size, [Piece(Form.ROWS, 0, size, 0, len(rows))])


def _sort_rows(table: Table, files: Sequence[DataFile]) -> pa.Table:
    names = [field.name for field in _FIELDS if field.name not in ("reason", "stream", "run_id")]
    kinds = pa.schema(delta_schema(t.StructType(_FIELDS)).to_arrow())
    parts = []
    for file in files:
        path = f"{table.storage.root}/{file.path}"
        columns = read_keys(table.storage.system, path, [[name] for name in names], kinds)
        parts.append(pa.table(columns, names=names))
    return pa.concat_tables(parts).sort_by(
        [(name, "ascending") for name in ("rejected_at", "place", "record")]
    )


def _line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of a segment."""
    extracted_at, meta = row["extracted_at"], row["meta"]
    own = {
        "emitted_at": int(extracted_at.timestamp() * 1000) if extracted_at is not None else 0,
        "row_id": row["row_id"],
        "place": row["place"],
    }
    text = msgspec.json.encode(own)[1:]
    meta_text = b"" if meta is None else b'"meta":%b,' % meta.encode()
    return b'{"data":%b,%b%b\n' % (row["record"].encode(), meta_text, text)
