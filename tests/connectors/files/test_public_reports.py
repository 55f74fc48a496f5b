"""Reports about other sources of files, each as a small input."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.files.support import Reader, last_state
from tests.connectors.support import records


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def reader(data: Path, kind: str, **stream: Any) -> Reader:
    return Reader(data.parent, [{"name": "s", "glob": "*", "format": kind, **stream}], str(data))


def put(data: Path, name: str, text: str, seconds: int) -> None:
    (data / name).write_text(text)
    os.utime(data / name, (seconds, seconds))


def test_a_file_that_appears_late_with_an_older_time_is_read(data: Path) -> None:
    """airbytehq/airbyte#5365: S3 gives an object the time at which its upload began."""
    put(data, "small.csv", "n\n1\n", 100)
    source = reader(data, "csv")
    _, messages = source.run()
    put(data, "large.csv", "n\n2\n", 90)
    _, messages = source.run(last_state(messages))
    assert [row["n"] for row in records(messages)] == [2]


def test_a_file_of_the_same_second_as_the_last_one_is_read(data: Path) -> None:
    """datazip-inc/olake#1131: a comparison with `>` skipped it."""
    put(data, "b.csv", "n\n1\n", 100)
    source = reader(data, "csv")
    _, messages = source.run()
    put(data, "a.csv", "n\n2\n", 100)
    _, messages = source.run(last_state(messages))
    assert [row["n"] for row in records(messages)] == [2]


def test_codes_keep_their_zeros(data: Path) -> None:
    """wireservice/csvkit#977, hucre#52: 0123 became 123."""
    put(data, "a.csv", "zip,n\n02134,0\n12345,10\n", 1)
    assert reader(data, "csv").read() == [{"zip": "02134", "n": 0}, {"zip": "12345", "n": 10}]


def test_texts_that_look_like_nulls_are_texts(data: Path) -> None:
    """kuzudb/kuzu#1323: Namibia was null."""
    put(data, "a.csv", "code\nMY\nNA\nnull\nNaN\n", 1)
    assert [row["code"] for row in reader(data, "csv").read()] == ["MY", "NA", "null", "NaN"]


def test_a_quoted_empty_number_is_null(data: Path) -> None:
    """apache/arrow#10892: `invalid value ''` ended the read."""
    put(data, "a.csv", '"one","two"\n"1","2"\n"4",""\n', 1)
    assert reader(data, "csv").read() == [{"one": 1, "two": 2}, {"one": 4, "two": None}]


def test_old_timestamps_of_parquet_keep_their_years(data: Path) -> None:
    """apache/datafusion#1360, duckdb/duckdb#25857: 9999-12-31 overflowed as nanoseconds."""
    moments = [dt.datetime(9999, 12, 31, 2), dt.datetime(1, 1, 1), dt.datetime(2024, 1, 1)]  # noqa: DTZ001
    table = pa.table({"at": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, data / "a.parquet", use_deprecated_int96_timestamps=True)
    assert [row["at"][:19] for row in reader(data, "parquet").read()] == [
        "9999-12-31T02:00:00",
        "0001-01-01T00:00:00",
        "2024-01-01T00:00:00",
    ]


def test_an_object_over_several_lines_is_rejected_line_by_line(data: Path) -> None:
    """airbytehq/airbyte#26764: such files are read by guessing; here nothing is guessed, and nothing lost."""
    put(data, "a.jsonl", '{"n": 1}\n{"n":\n2}\n{"n": 3}\n', 1)
    rows = reader(data, "jsonl").read()
    assert [row["n"] for row in rows if isinstance(row, dict)] == [1, 3]
    bad = [row[0] for row in rows if isinstance(row, list)]
    assert [(line["line"], line["text"]) for line in bad] == [(2, '{"n":'), (3, "2}")]


def test_a_row_that_is_longer_than_a_block_is_a_clear_error(data: Path) -> None:
    """apache/arrow: `straddling object straddles two block boundaries`."""
    put(data, "a.csv", "n,t\n1," + "x" * 3_000_000 + "\n", 1)
    text = reader(data, "csv", csv={"max_row_bytes": 1 << 20}).fail()
    assert "max_row_bytes" in text and "a.csv" in text
    assert len(reader(data, "csv").read()[0]["t"]) == 3_000_000
