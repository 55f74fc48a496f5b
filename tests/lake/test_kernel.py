"""Files taken apart by key within bounded memory, and whatever their columns are."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from elt_assets.lake.worker.file_tasks import SplitJob, make_split
from elt_assets.lake.worker.parquet import Output

ROW_BYTES = 100_000
ROWS = 4_000
"""400 MB in memory, if all of it were held at once."""
MOST_BYTES = 700 << 20
"""Memory of a process that takes the values apart, pyarrow and the interpreter included."""
REST, MATCHING = "rest", "matching"
_MEASURE = """
import pathlib, pickle, re, sys
from elt_assets.lake.worker.file_tasks import make_split
make_split(pickle.load(sys.stdin.buffer))(0)
status = pathlib.Path("/proc/self/status").read_text()
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) << 10)
"""
"""Prints the peak of the process's own memory; `ru_maxrss` counts that of the process that started it too."""


def job(
    root: Path,
    files: list[str],
    batch: list[str],
    rows_per_file: int = 1_000_000,
    bytes_per_file: int = 1 << 30,
) -> SplitJob:
    names = [str(root / name) for name in batch]
    place = (LocalFileSystem(), str(root))
    schema = pa.schema({"id": pa.int64(), "body": pa.string()})
    rest, matching = (
        Output(place, folder, (), rows_per_file, bytes_per_file) for folder in ("kept", "matching")
    )
    return SplitJob([files], frozenset([0]), [["id"]], names, rest, matching, schema)


def large_rows(path: Path) -> None:
    """Different rows, of which a file on disk is small."""
    body = "x" * ROW_BYTES
    schema = pa.schema({"id": pa.int64(), "body": pa.string()})
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for at in range(0, ROWS, 500):
            ids = list(range(at, at + 500))
            writer.write_table(pa.table({"id": ids, "body": [f"{n}{body}" for n in ids]}))


def parts(root: Path, job: SplitJob) -> Iterator[tuple[str, pq.FileMetaData]]:
    _, rest, matching = make_split(job)(0)
    for role, files in ((REST, rest), (MATCHING, matching)):
        for name, *_ in files:
            yield role, pq.read_metadata(root / name)


@pytest.mark.process
def test_rows_of_100_kilobytes_are_split_in_limited_memory(tmp_path: Path) -> None:
    large_rows(tmp_path / "big.parquet")
    pq.write_table(pa.table({"id": list(range(0, ROWS, 2))}), tmp_path / "batch.parquet")
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE],
        input=pickle.dumps(job(tmp_path, ["big.parquet"], ["batch.parquet"])),
        capture_output=True,
        check=True,
    )
    assert int(done.stdout) < MOST_BYTES
    made = [pq.read_metadata(path) for path in tmp_path.glob("*/*.parquet")]
    assert sorted(each.num_rows for each in made) == [ROWS // 2] * 2


def test_a_file_has_a_maximum_size(tmp_path: Path) -> None:
    rows = pa.table({"id": list(range(60)), "body": [f"{n:09}" * 100_000 for n in range(60)]})
    pq.write_table(rows, tmp_path / "one.parquet", row_group_size=10)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "batch.parquet")
    found = list(
        parts(tmp_path, job(tmp_path, ["one.parquet"], ["batch.parquet"], bytes_per_file=1))
    )
    assert [meta.num_rows for role, meta in found if role == MATCHING] == [1]
    kept = [meta.num_rows for role, meta in found if role == REST]
    assert len(kept) > 1 and sum(kept) == 59


def rows_of_roles(found: Iterator[tuple[str, pq.FileMetaData]]) -> dict[str, int]:
    rows = {MATCHING: 0, REST: 0}
    for role, meta in found:
        rows[role] += meta.num_rows
    return rows


def test_a_column_that_a_file_lacks_is_a_null_in_its_key(tmp_path: Path) -> None:
    """The file is one of the batch or of the table. A null is equal to a null."""
    pq.write_table(pa.table({"other": [1, 2]}), tmp_path / "without.parquet")
    pq.write_table(pa.table({"id": [7, None, 8]}), tmp_path / "with.parquet")
    pq.write_table(pa.table({"id": [7]}), tmp_path / "one.parquet")
    both = ["without.parquet", "with.parquet"]
    for batch, matching in (("with", 5), ("without", 3), ("one", 1)):
        found = parts(tmp_path, job(tmp_path, both, [f"{batch}.parquet"]))
        assert rows_of_roles(found) == {MATCHING: matching, REST: 5 - matching}, batch
