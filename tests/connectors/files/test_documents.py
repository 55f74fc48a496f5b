"""Documents of the source of files: each new or changed file is a record with its bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk.files import documents
from connectors.sdk.files.storage import Storage
from elt_assets.protocol.message_rules import STAGING
from tests.connectors.files.support import Reader, last_state
from tests.connectors.support import Json, errors
from tests.connectors.support import records as data_of
from tests.support.object_store import KEY, REGION, SECRET, new_bucket, s3_server

pytestmark = pytest.mark.unit


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data", "staging"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv(STAGING, str(tmp_path / "staging"))
    return tmp_path / "data"


def put(data: Path, name: str, content: bytes, seconds: int) -> None:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (seconds, seconds))


def reader(data: Path, location: str = "", **config: Any) -> Reader:
    options = config.pop("documents", {})
    stream = {"name": "d", "glob": "**", "format": "documents", "documents": options}
    return Reader(data.parent, [stream], location or str(data), **config)


def read(source: Reader, state: Any = None, **options: Any) -> tuple[dict[str, Any], list[Json]]:
    """The contents of the documents, by their paths; and all messages."""
    catalog = source.catalog(include_files=True, **options)
    code, messages = source.run(state, catalog=catalog)
    assert code == 0, errors(messages)
    contents = {}
    for message in messages:
        if message["type"] == "RECORD":
            record = message["record"]
            if isinstance(record["data"], dict):
                path = Path(record["file_reference"]["staging_file_url"])
                contents[record["data"]["path"]] = path.read_bytes()
                assert record["data"]["bytes"] == path.stat().st_size
                relative = record["file_reference"]["source_file_relative_path"]
                assert relative == record["data"]["path"]
    return contents, messages


def test_new_and_changed_files_are_documents(data: Path) -> None:
    put(data, "a.pdf", b"%PDF", 10)
    put(data, "x/Bericht é.docx", b"word", 20)
    put(data, "x/empty", b"", 30)
    put(data, "_hidden", b"no", 30)
    source = reader(data)
    (described,) = source.discover().values()
    assert described["is_file_based"] is True
    assert described["source_defined_primary_key"] == [["path"]]
    contents, messages = read(source)
    assert contents == {"a.pdf": b"%PDF", "x/Bericht é.docx": b"word", "x/empty": b""}
    assert data_of(messages)[1] == {
        "path": "x/Bericht é.docx",
        "name": "Bericht é.docx",
        "bytes": 4,
        "modified_at": "1970-01-01T00:00:20.000000Z",
        "content_type": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    }
    put(data, "a.pdf", b"%PDF-2", 40)
    contents, again = read(source, last_state(messages))
    assert contents == {"a.pdf": b"%PDF-2"}
    contents, _ = read(source, last_state(again))
    assert contents == {}
    contents, _ = read(source, mode="full_refresh")
    assert len(contents) == 3


def test_without_a_request_only_the_records_are_sent(data: Path) -> None:
    put(data, "a.pdf", b"%PDF", 10)
    code, messages = reader(data).run()
    assert code == 0 and [record["path"] for record in data_of(messages)] == ["a.pdf"]
    assert not [m for m in messages if "file_reference" in m.get("record", {})]
    assert not list((data.parent / "staging").iterdir())


def test_a_read_resumes_after_the_last_state(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_FILES_PER_STATE", 2)
    for number in range(7):
        put(data, f"{number}", str(number).encode(), 100 + number)
    source = reader(data)
    original = Storage.require

    def fail(self: Storage, file: Any) -> None:
        if file.path == "5":
            put(data, "5", b"changed", 999)
        original(self, file)

    monkeypatch.setattr(Storage, "require", fail)
    code, messages = source.run(catalog=source.catalog(include_files=True))
    assert code == 1 and "the file 5 was replaced" in errors(messages)[0]["message"]
    monkeypatch.undo()
    monkeypatch.setenv(STAGING, str(data.parent / "staging"))
    contents, _ = read(source, last_state(messages))
    assert contents == {"4": b"4", "5": b"changed", "6": b"6"}


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_large_file_is_rejected_or_an_error(
    data: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(documents, "_SMALL", small)
    put(data, "fits", b"12345", 10)
    put(data, "large", b"123456", 20)
    contents, messages = read(reader(data, documents={"max_bytes": 5}))
    assert contents == {"fits": b"12345"}
    reason = "it has 6 bytes, more than `max_bytes` (5)"
    rejected: Any = [{"file": "large", "bytes": 6, "error": reason}]
    assert data_of(messages)[1] == rejected
    source = reader(data, documents={"max_bytes": 5, "too_large": "error"})
    text = source.fail(catalog=source.catalog(include_files=True))
    assert "the file large is not transferred" in text and "documents.max_bytes" in text


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        ({"format": "csv", "documents": {}}, "`documents` has no effect with `format: csv`"),
        ({"format": "documents", "csv": {}}, "`csv` has no effect"),
        ({"format": "documents", "columns": {"a": "string"}}, "`columns` has no effect"),
        ({"format": "documents", "compression": "gzip"}, "`compression` has no effect"),
        ({"format": "documents", "documents": {"max_bytes": 0}}, "greater than or equal to 1"),
    ],
)
def test_bad_options_are_clear_errors(data: Path, stream: Json, text: str) -> None:
    source = Reader(data.parent, [{"name": "d", "glob": "*", **stream}], str(data))
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
    catalog = {"streams": [{"stream": {"name": "d", "json_schema": {}}, **modes}]}
    assert text in source.fail(catalog=catalog)


def test_documents_of_s3(data: Path, tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3.log") as endpoint:
        store = new_bucket(endpoint)
        large = b"x" * (9 << 20)
        for name, content in {"in/a.bin": b"1", "in/b/ü c": large, "in/e": b""}.items():
            with store.system.open_output_stream(f"{store.bucket}/{name}") as sink:
                sink.write(content)
        options = {"access_key_id": KEY, "secret_access_key": SECRET, "region": REGION}
        s3 = {**options, "endpoint": store.endpoint}
        contents, _ = read(reader(data, f"s3://{store.bucket}/in", s3=s3))
    assert contents == {"a.bin": b"1", "b/ü c": large, "e": b""}
