"""Documents that a platform gives to `elt-destination`, in the folder that it names for both connectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.protocol.message_rules import STAGING
from tests.destination.running import Destination, Json, record, state, status, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    staging = tmp_path / "platform"
    staging.mkdir()
    monkeypatch.setenv(STAGING, str(staging))
    return staging


def files(*, include: bool | None = True, mode: str = "append") -> Json:
    configured = stream(mode=mode, include_files=include)
    configured["stream"]["is_file_based"] = True
    return configured


def put(folder: Path, number: int, name: str = "") -> Json:
    """Stage a document; return the record that refers to it."""
    path = folder / f"{number}"
    path.write_text(f"text {number}")
    reference: Json = {
        "staging_file_url": str(path),
        "source_file_relative_path": name or "a/b.txt",
    }
    reference |= {"file_size_bytes": path.stat().st_size}
    return record({"id": number, "name": "x"}, file_reference=reference)


def contents(destination: Destination) -> dict[int, str]:
    table = destination.lake / "destination" / "users"
    rows = destination.rows()
    return {row["id"]: (table / row["file_reference"]["path"]).read_text() for row in rows}


@pytest.mark.spec("protocol.79")
def test_documents_are_taken_and_stored(destination: Destination, folder: Path) -> None:
    sent = [put(folder, 1), put(folder, 2), state(1), put(folder, 3), state(2)]
    answer = destination.write([files()], [*sent, status("COMPLETE")])
    assert answer.values == [1, 2]
    assert contents(destination) == {1: "text 1", 2: "text 2", 3: "text 3"}
    assert not list(folder.iterdir())
    sources = {row["file_reference"]["source_file_relative_path"] for row in destination.rows()}
    assert sources == {"a/b.txt"}


@pytest.mark.spec("protocol.79")
def test_documents_that_are_not_asked_for_are_removed(
    destination: Destination, folder: Path
) -> None:
    destination.write([files(include=False)], [put(folder, 1), state(1)])
    assert destination.rows() == [{"id": 1, "name": "x"}] and not list(folder.iterdir())


@pytest.mark.parametrize(
    ("url", "reason"),
    [("/etc/passwd", "not in the staging folder"), ("{}/missing", "there is no such file")],
)
def test_a_bad_reference_ends_the_sync(
    destination: Destination, folder: Path, url: str, reason: str
) -> None:
    bad = record({"id": 2}, file_reference={"staging_file_url": url.format(folder)})
    answer = destination.write([files()], [put(folder, 1), state(1), bad, state(2)], code=1)
    assert answer.values == [1] and reason in answer.error["message"]
    assert contents(destination) == {1: "text 1"}


def test_without_a_staging_folder_nothing_is_read(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STAGING, str(tmp_path / "nowhere"))
    answer = destination.write([files()], [record({"id": 1})], code=1)
    assert answer.error["failure_type"] == "config_error"
    assert f"there is no folder {tmp_path}/nowhere" in answer.error["message"]
    assert not (destination.lake / "destination").exists()


def test_a_stream_without_files_needs_no_folder(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protocol ignores `include_files` of a stream that is not one of files."""
    monkeypatch.setenv(STAGING, str(tmp_path / "nowhere"))
    destination.write([stream(include_files=True)], [record({"id": 1, "name": "x"})])
    assert destination.rows() == [{"id": 1, "name": "x"}]
    bad = record({"id": 2}, file_reference={"staging_file_url": "/etc/passwd"})
    answer = destination.write([stream(include_files=True)], [bad], code=1)
    assert "refers to a file" in answer.error["message"]
