"""Any order of records, documents, states and failures: what is committed names documents that are there."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure, TransientError
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.write.documents import DocumentFolder, DocumentTransfer
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.message_rules import FileReference
from elt_assets.protocol.messages import Form, RawRecord, RecordLines
from elt_assets.storage.location import Location
from elt_assets.storage.staging import StagedFiles
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.session import Session, Threshold
from elt_assets.sync.streams import StreamRules
from tests.support.examples import examples
from tests.sync.doubles import MemorySink, catalog, state

pytestmark = pytest.mark.unit

STEPS = st.lists(
    st.sampled_from(
        ["document", "document", "lines", "plain", "filtered", "no object", "state", "fail", "bad"]
    ),
    max_size=20,
)
LARGE = 1_000


def is_kept(fields: Any) -> bool:
    return b"filtered" not in bytes(fields.get("kind", b""))


def send(steps: list[str], folder: Path) -> Iterator[Any]:
    """Yield the messages of a source that stages a document before each record that has one."""
    for number, step in enumerate(steps):
        if step == "state":
            yield state(number)
            continue
        if step == "fail":
            raise TransientError("the source failed")
        path = folder / str(number)
        if step != "bad":
            path.write_text(f"document {number}")
        data = json.dumps([number] if step == "no object" else {"n": number, "kind": step})
        reference = json.dumps({"staging_file_url": str(path)})
        if step == "lines":
            body = f'{{"stream":"a","data":{data},"emitted_at":1,"file_reference":{reference}}}'
            line = f'{{"type":"RECORD","record":{body}}}\n'.encode()
            yield RecordLines(Form.AIRBYTE, "a", None, "a", line, 1)
            continue
        record = RawRecord("a", Raw(data.encode()), 1)
        if step == "plain":
            path.unlink()
        else:
            record.file_reference = Raw(reference.encode())
        yield record


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, st.sampled_from([1, 3, LARGE]), st.booleans())
def test_what_is_committed_names_documents_that_are_there(
    steps: list[str], rows: int, filters: bool
) -> None:
    with TemporaryDirectory() as name:
        folders = [Path(name, part) for part in ("staging", "work", "table")]
        for folder in folders:
            folder.mkdir()
        staging, work, table = folders
        stream, sink = StreamId("a"), MemorySink()
        with DocumentTransfer(StagedFiles(staging)) as transfer:
            rules = StreamRules(
                filters={stream: RecordFilter(None, condition=is_kept)} if filters else {},
                documents={stream: transfer.folder(Location.parse(str(table)))},
            )
            session = Session(catalog(), {stream: sink}, work, Threshold(rows=rows), rules)
            try:
                for _ in session.run(send(steps, staging)):
                    pass
                has_failed = False
            except EltError:
                has_failed = True
        committed = [row for row in sink.rows if isinstance(row, dict)]
        references = {row["n"]: row.get("file_reference") for row in committed}
        for number, reference in references.items():
            assert (reference is None) == (steps[number] == "plain")
            if reference is not None:
                assert (table / reference["path"]).read_text() == f"document {number}"
                assert reference["file_size_bytes"] == len(f"document {number}")
        named = {reference["path"] for reference in references.values() if reference is not None}
        assert len(named) == sum(reference is not None for reference in references.values())
        stored = {str(p.relative_to(table)) for p in table.rglob("*") if p.is_file()}
        assert stored >= named
        if rows == LARGE or not has_failed:
            assert stored == named  # what came after the last state is removed at once
        assert has_failed == ("fail" in steps or "bad" in steps)
        if not has_failed:
            assert not list(staging.iterdir())
            sent = [n for n, step in enumerate(steps) if step not in ("state", "no object")]
            expected = [n for n in sent if not (filters and steps[n] == "filtered")]
            assert [row["n"] for row in committed] == expected


def test_a_document_that_grows_is_not_copied_to_its_end(tmp_path: Path) -> None:
    """It may have none: a source that goes on writing must not fill the lake."""
    for name in ("staging", "table"):
        (tmp_path / name).mkdir()
    file = tmp_path / "staging" / "a"
    file.write_bytes(b"1")
    may_copy = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(may_copy.wait)
        table = TableStorage(Location.parse(str(tmp_path / "table")))
        folder = DocumentFolder(table, StagedFiles(tmp_path / "staging"), pool)
        path, _ = folder.add(FileReference(str(file)))
        os.truncate(file, 1 << 30)
        may_copy.set()
        with pytest.raises(SystemFailure, match="was changed while it was copied"):
            folder.finish([path])
    assert (tmp_path / "table" / path).stat().st_size <= 8 << 20
