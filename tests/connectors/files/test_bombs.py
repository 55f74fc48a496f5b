"""A file of any format is decoded in limited memory: one that would take more is an error by its name."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.sdk.files.memory import limit_memory_growth
from tests.support.project import REPOSITORY

MOST_MEGABYTES = 700
"""More than the program takes by itself (130) and for a file (400), far less than the files stand for."""
Json = dict[str, Any]


def write_list(path: Path) -> None:
    values = pa.nulls(60_000_000, pa.int64())
    lists = pa.ListArray.from_arrays(pa.array([0, 60_000_000], pa.int32()), values)
    pq.write_table(pa.table({"a": lists}), path, compression="zstd", data_page_size=1 << 30)


def write_texts(path: Path) -> None:
    numbers = pa.array(np.zeros(1_000_000, np.int32))
    column = pa.DictionaryArray.from_arrays(numbers, pa.array(["x" * 900_000]))
    pq.write_table(pa.table({"a": column}), path, compression="zstd", store_schema=False)


def write_corners(path: Path) -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"], book.active["XFD1048576"] = "a", "z"
    book.save(path)


def write_workbook(path: Path, name: str, start: bytes, unit: bytes) -> None:
    """Write a workbook in which one part is very long."""
    openpyxl.Workbook().save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist() if part != name}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
        with archive.open(name, "w", force_zip64=True) as long:
            long.write(start)
            for _ in range(400):
                long.write(unit * 10_000)


def write_cells(path: Path) -> None:
    start = (
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    )
    write_workbook(path, "xl/worksheets/sheet1.xml", start, b"<row><c><v>1</v></c></row>" * 10)


def write_strings(path: Path) -> None:
    start = b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
    write_workbook(path, "xl/sharedStrings.xml", start, b"<si><t>aaaaaaaaaaaaaaaa</t></si>" * 5)


def write_lines(path: Path, start: bytes = b'{"a": "') -> None:
    with gzip.open(path, "wb", 1) as file:
        file.write(start)
        for _ in range(400):
            file.write(b"x" * (1 << 20))


BOMBS: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "a list": ("parquet", "a.parquet", write_list),
    "texts of a dictionary": ("parquet", "a.parquet", write_texts),
    "two cells in opposite corners": ("excel", "a.xlsx", write_corners),
    "many cells": ("excel", "a.xlsx", write_cells),
    "many texts": ("excel", "a.xlsx", write_strings),
    "a long line": ("jsonl", "a.jsonl.gz", write_lines),
    "a long row": ("csv", "a.csv.gz", lambda path: write_lines(path, b"a\n")),
}
QUICK = ("a list", "texts of a dictionary", "two cells in opposite corners")


def run(folder: Path, command: str, form: str, **more: Any) -> tuple[str, int]:
    """Run the source, and return its output and the memory in MiB that it or its child took at most."""
    config = {"location": str(folder), "streams": [{"name": "s", "glob": "a.*", "format": form}]}
    stream = {"name": "s", "json_schema": {}, "supported_sync_modes": ["full_refresh"]}
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    (folder / "catalog.json").write_text(json.dumps({"streams": [{"stream": stream, **modes}]}))
    words = [command, "--config", "config.json"]
    words += ["--catalog", "catalog.json"] if command == "read" else []
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words],
        cwd=folder,
        env={"PYTHONPATH": f"{REPOSITORY}:{':'.join(sys.path)}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, int(done.stderr.splitlines()[-1])


MEASURED = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "connectors.files", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(pytest.param(name, marks=pytest.mark.long) for name in sorted(BOMBS.keys() - {*QUICK})),
    ],
)
def test_a_file_that_decodes_to_too_much_is_an_error(name: str, tmp_path: Path) -> None:
    form, file, write = BOMBS[name]
    write(tmp_path / file)
    assert (tmp_path / file).stat().st_size < 10_000_000
    output, megabytes = run(tmp_path, "read", form)
    assert megabytes < MOST_MEGABYTES
    assert f"the file {file} cannot be read" in output or "a row has more than" in output
    assert "RECORD" not in output


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_the_limit_can_be_raised(tmp_path: Path) -> None:
    """The option is the one that the error names."""
    table = pa.table({"a": ["x" * 80_000_000]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    output, _ = run(tmp_path, "read", "parquet", max_memory_megabytes=64)
    assert "more than 64 MiB" in output and "set `max_memory_megabytes`" in output
    output, _ = run(tmp_path, "read", "parquet", max_memory_megabytes=1_500)
    assert '"status":"COMPLETE"' in output


def test_the_limit_of_the_process_is_as_before() -> None:

    before = resource.getrlimit(resource.RLIMIT_DATA), pa.default_memory_pool().backend_name
    with limit_memory_growth(400), limit_memory_growth(100):
        pass
    assert before == (
        resource.getrlimit(resource.RLIMIT_DATA),
        pa.default_memory_pool().backend_name,
    )
