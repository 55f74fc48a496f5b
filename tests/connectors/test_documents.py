"""Documents of a source on the SDK: written to the staging folder if the reader asks for them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk import Document, Source, Stream, TransientError, Window, run
from connectors.sdk.items import Context, Record
from elt_assets.protocol.message_rules import STAGING
from tests.connectors.support import Json, call, errors

pytestmark = pytest.mark.unit


class Reports(Stream):
    """Reports of two stores. `opened`: the documents whose content was asked for."""

    name = "reports"
    primary_key = ("id",)
    replication_key = "at"
    is_file_based = True
    json_schema = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "store": {"type": "string"},
        },
    }

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.fails = False

    def partitions(self) -> Sequence[Context]:
        return [{"store": "a"}, {"store": "b"}]

    def records(self, window: Window) -> Iterator[Record]:
        for number in (1, 2):
            record = {"id": number, "at": f"2026-01-0{number}T00:00:00Z"}
            path = f"{window.partition['store']}/{number}.txt"
            yield Document(record, path, self.content(number))
        yield {"id": 3, "at": "2026-01-03T00:00:00Z"}

    def content(self, number: int) -> Iterator[bytes]:
        self.opened.append(number)
        yield b"report "
        if self.fails:
            raise TransientError("the report is away")
        yield str(number).encode()


class Shop(Source):
    name = "shop"

    def __init__(self, stream: Stream):
        self.stream = stream

    def check(self, config: Any) -> None:
        """Do nothing: it needs no config."""

    def streams(self, config: Any) -> Sequence[Stream]:
        return [self.stream]


def read(stream: Stream, folder: Path, *, documents: bool = True) -> tuple[int, list[Json]]:
    described = json.loads(stream.describe().to_json())
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    catalog = {"streams": [{"stream": described, **modes, "include_files": documents}]}
    return call(Shop(stream), folder, "read", config={}, catalog=catalog)


def records(messages: list[Json]) -> list[Json]:
    return [message["record"] for message in messages if message["type"] == "RECORD"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    staging = tmp_path / "staging"
    staging.mkdir()
    monkeypatch.setenv(STAGING, str(staging))
    return staging


@pytest.mark.spec("protocol.79")
def test_a_document_is_staged_with_its_record(tmp_path: Path, folder: Path) -> None:
    stream = Reports()
    assert json.loads(stream.describe().to_json())["is_file_based"] is True
    code, messages = read(stream, tmp_path)
    assert code == 0
    sent = records(messages)
    assert [record["data"]["store"] for record in sent] == ["a"] * 3 + ["b"] * 3
    references = [record["file_reference"] for record in sent if "file_reference" in record]
    paths = [reference["source_file_relative_path"] for reference in references]
    assert paths == ["a/1.txt", "a/2.txt", "b/1.txt", "b/2.txt"]
    for record, reference in zip(
        (r for r in sent if "file_reference" in r), references, strict=True
    ):
        content = Path(reference["staging_file_url"]).read_bytes()
        assert content == f"report {record['data']['id']}".encode()
        assert reference["file_size_bytes"] == len(content)
    assert len(list(folder.iterdir())) == 4
    assert [m["state"]["sourceStats"]["recordCount"] for m in messages if "state" in m] == [3, 3]


def test_without_a_request_no_content_is_opened(tmp_path: Path, folder: Path) -> None:
    stream = Reports()
    code, messages = read(stream, tmp_path, documents=False)
    assert code == 0 and len(records(messages)) == 6 and not list(folder.iterdir())
    assert not stream.opened and all("file_reference" not in r for r in records(messages))


def test_singer_gets_the_records_alone(tmp_path: Path, folder: Path) -> None:
    stream, stdout = Reports(), io.BytesIO()
    (tmp_path / "config").write_text("{}")
    assert run(Shop(stream), ["--config", str(tmp_path / "config"), "--discover"], stdout) == 0
    catalog = json.loads(stdout.getvalue())
    for entry in catalog["streams"]:
        entry["schema"]["selected"] = True
        for part in entry["metadata"]:
            part["metadata"]["selected"] = True
    (tmp_path / "catalog").write_text(json.dumps(catalog))
    stdout = io.BytesIO()
    files = ["--config", str(tmp_path / "config"), "--catalog", str(tmp_path / "catalog")]
    assert run(Shop(stream), files, stdout) == 0
    lines = [json.loads(line) for line in stdout.getvalue().splitlines()]
    assert len([line for line in lines if line["type"] == "RECORD"]) == 6
    assert not stream.opened and not list(folder.iterdir())


def test_a_content_that_fails_ends_the_stream(tmp_path: Path, folder: Path) -> None:
    stream = Reports()
    stream.fails = True
    code, messages = read(stream, tmp_path)
    (error,) = errors(messages)
    assert code == 1 and error["message"].startswith("the report is away")
    assert error["failure_type"] == "transient_error" and not records(messages)


def test_a_missing_staging_folder_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STAGING, str(tmp_path / "nowhere"))
    code, messages = read(Reports(), tmp_path)
    (error,) = errors(messages)
    assert code == 1 and f"there is no folder {tmp_path}/nowhere" in error["message"]
    assert STAGING in error["message"] and error["failure_type"] == "config_error"


def test_a_source_waits_for_a_reader_that_is_slower(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader takes a document whenever the source looks whether it has."""
    monkeypatch.setattr("connectors.sdk.airbyte.staging._MAX_STAGED", 10)
    most = []

    def take(_: float) -> None:
        staged = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        most.append(len(staged))
        staged[0].unlink()

    monkeypatch.setattr("connectors.sdk.airbyte.staging.time.sleep", take)
    code, messages = read(Reports(), tmp_path)
    assert code == 0 and len(records(messages)) == 6
    assert most and max(most) == 2


def test_a_source_does_not_wait_for_a_reader_that_takes_nothing(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.sdk.airbyte.staging._MAX_STAGED", 10)
    monkeypatch.setattr("connectors.sdk.airbyte.staging._PATIENCE", 0)
    waits: list[float] = []
    monkeypatch.setattr("connectors.sdk.airbyte.staging.time.sleep", waits.append)
    code, messages = read(Reports(), tmp_path)
    assert code == 0 and len(records(messages)) == 6 and len(list(folder.iterdir())) == 4
    assert len(waits) == 1
