"""Columns of a database and of files that are called as this project calls columns: they are data."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.sdk.arrow_records import (
    changes_of,
    has_json_rows,
    list_changes,
    make_json_rows,
    page_of,
    report_changes,
    split_changes,
)
from connectors.sdk.columns.conversion import make_batch
from connectors.sdk.columns.types import BINARY, INT64, STRING
from connectors.sdk.encoding import encode
from connectors.sdk.slice_files import put_changes_last, read_slice_file
from connectors.sql.values import convert_values
from tests.connectors.sql.test_reads import Database

NAMES = ["_elt_changes", "_ELT_CHANGES", "_elt_record", "_Elt_Record", "record", "elt.mark"]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_is_data_whatever_its_name_is(name: str) -> None:
    batch = make_batch([name], [convert_values([b'{"id":1}', None], BINARY)])
    assert not has_json_rows(batch) and split_changes(batch)[1] is None
    encoded = base64.b64encode(b'{"id":1}').decode()
    assert page_of(batch, {}).records == [{name: encoded}, {name: None}]


@pytest.mark.parametrize("name", NAMES)
def test_changes_stand_beside_a_column_of_any_name(name: str) -> None:
    columns = [convert_values(["a", "b"], STRING), convert_values([1, "x"], INT64)]
    batch = make_batch([name, "n"], columns)
    page = page_of(batch, {})
    assert page.records == [{name: "a", "n": 1}, {name: "b", "n": None}]
    assert [change["field"] for change in page.changes[1]] == ["n"] and 0 not in page.changes


def test_a_file_cannot_have_the_mark(tmp_path: Path) -> None:
    """Metadata of fields are those of the file, also if it copies those of a batch of another process."""
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    marked = report_changes(batch, list_changes({}, 1))
    forged = {key: b"x" * len(value) for key, value in marked.schema.field(1).metadata.items()}
    field = pa.field("_elt_changes", pa.string(), metadata=forged)
    pq.write_table(pa.table([["a"]], schema=pa.schema([field])), tmp_path / "a.parquet")
    (read,) = pq.ParquetFile(tmp_path / "a.parquet").iter_batches()
    assert changes_of(read) == {} and page_of(read, {}).records == [{"_elt_changes": "a"}]
    assert not has_json_rows(read)


@pytest.mark.parametrize("has_changes", [True, False])
def test_files_of_slices_say_apart_what_their_last_column_is(
    tmp_path: Path, has_changes: bool
) -> None:
    path = str(tmp_path / "1.arrow")
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "_elt_changes": ["a", "b"]})
    if has_changes:
        nulled = {("id", "WHY"): pa.array([False, True])}
        batch = put_changes_last(report_changes(batch, list_changes(nulled, 2)))
    with pa.ipc.new_stream(path, batch.schema) as writer:
        writer.write_batch(batch)
    (read,) = read_slice_file(path, has_changes=has_changes)
    page = page_of(read, {})
    assert page.records == [{"id": 1, "_elt_changes": "a"}, {"id": 2, "_elt_changes": "b"}]
    assert {*page.changes} == ({1} if has_changes else set())


def test_a_table_of_a_database_is_read_whatever_its_columns_are_called(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    database.execute("CREATE TABLE t (_elt_record BLOB)")
    database.execute("CREATE TABLE u (id INTEGER PRIMARY KEY, _ELT_CHANGES TEXT, n INTEGER)")
    database.execute("INSERT INTO t VALUES (?)", [(b'{"id":1}',)])
    database.execute("INSERT INTO u VALUES (?, ?, ?)", [(1, "a", "x"), (2, "b", 2)])
    assert database.read("t") == [{"_elt_record": base64.b64encode(b'{"id":1}').decode()}]
    database.state = None
    assert database.read("u") == [
        {"id": 1, "_ELT_CHANGES": "a", "n": None},
        {"id": 2, "_ELT_CHANGES": "b", "n": 2},
    ]


def test_rows_in_json_are_records() -> None:
    batch = make_json_rows(pa.array([b'{"_elt_record":1}'], pa.binary()))
    assert has_json_rows(batch.slice(0, 1))
    (record,) = page_of(batch, {}).records
    assert encode(record) == b'{"_elt_record":1}'
