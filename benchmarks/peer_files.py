"""Copies files by pyarrow alone into files of Parquet: `peer_files.py METHOD FILES FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

TYPES = {
    "id": pa.int64(),
    "amount": pa.int64(),
    "price": pa.decimal128(38, 9),
    "ratio": pa.float64(),
    "name": pa.string(),
    "customer": pa.string(),
    "at": pa.timestamp("us"),
    "day": pa.date32(),
    "flag": pa.bool_(),
    "body": pa.string(),
}
BATCH_ROWS = 65_536


def read_csv(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, cast to `TYPES`."""
    options = pyarrow.csv.ConvertOptions(column_types=TYPES)
    yield from pyarrow.csv.open_csv(path, convert_options=options)


def read_parquet(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file."""
    yield from pyarrow.parquet.ParquetFile(path).iter_batches(BATCH_ROWS)


def write_parquet(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches into a file, compressed as the lake's files are."""
    with pyarrow.parquet.ParquetWriter(path, pa.schema(TYPES), compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


METHODS = {"csv": read_csv, "parquet": read_parquet}

if __name__ == "__main__":
    for file in Path(sys.argv[2]).iterdir():
        write_parquet(Path(sys.argv[3]) / f"{file.stem}.parquet", METHODS[sys.argv[1]](file))
