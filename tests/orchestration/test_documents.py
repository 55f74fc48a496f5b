"""Documents of the source `files` in the lake: each is in place before the row that names it is committed."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elt_assets import open_document, read_table
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.write.companions import StreamTables
from tests.programs.scripted import record, script, state, status
from tests.support.object_store import new_bucket, s3_server
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark")

KEY = 'key:"archive/docs"'
THINGS = 'key:"scripted/things"'


@pytest.fixture
def data(own: Project) -> Path:
    folder = own.root / "data"
    folder.mkdir()
    return folder


def connect(project: Project, location: str, **stream: Any) -> None:
    """A connection to a folder of documents."""
    documents = stream.pop("documents", {})
    source_stream = {"name": "docs", "glob": "**", "format": "documents", "documents": documents}
    config = {"location": location, "streams": [source_stream], **stream.pop("config", {})}
    project.connection(
        "archive",
        source={"connector": "files", "config": config},
        streams=[{"name": "docs", "sync_mode": "incremental", **stream}],
    )
    project.discover("archive")


def put(data: Path, name: str, content: bytes, seconds: int) -> None:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (seconds, seconds))


def list_stored_files(project: Project) -> set[str]:
    table = project.home / "lake" / "archive" / "docs"
    return {str(p.relative_to(table)) for p in (table / "_files").rglob("*") if p.is_file()}


def test_documents_are_stored_and_replaced(own: Project, data: Path) -> None:
    put(data, "a.pdf", b"%PDF", 10)
    put(data, "2026/Bericht 1.txt", "über".encode(), 20)
    put(data, "empty", b"", 30)
    connect(own, str(data), destination_sync_mode="append_dedup")
    assert materialize(own, KEY).success
    contents = {"a.pdf": b"%PDF", "2026/Bericht 1.txt": "über".encode(), "empty": b""}
    assert own.read_documents("archive", "docs") == contents
    assert len(list_stored_files(own)) == 3
    metadata = own.metadata("archive", "docs")
    assert (metadata["elt/documents"], metadata["elt/document_bytes"]) == (3, 9)

    put(data, "a.pdf", b"%PDF-2", 40)
    assert materialize(own, KEY).success
    assert own.read_documents("archive", "docs") == {**contents, "a.pdf": b"%PDF-2"}
    assert len(list_stored_files(own)) == 4  # the former one until maintenance
    assert not list((own.home / "staging").iterdir())


def test_documents_of_rows_are_opened(own: Project, data: Path, spark: Any) -> None:
    put(data, "a.pdf", b"%PDF", 10)
    connect(own, str(data), destination_sync_mode="append_dedup", history=True)
    assert materialize(own, KEY).success
    put(data, "a.pdf", b"%PDF-2", 20)
    assert materialize(own, KEY).success
    for name, contents in (("docs", [b"%PDF-2"]), ("docs_history", [b"%PDF", b"%PDF-2"])):
        rows = read_table(f"archive/{name}", form=pl.DataFrame).rows(named=True)
        opened = []
        for row in rows:
            for reference in (row["file_reference"], row["file_reference"]["path"]):
                with open_document(["archive", name], reference) as file:
                    assert file.read(1) == b"%" and file.seek(0) == 0
                    opened.append(file.read())
        assert sorted(opened) == sorted(contents * 2)
    (spark_row,) = read_table(spark, "archive/docs").collect()
    with open_document("archive/docs", spark_row.file_reference) as file:
        assert file.read() == b"%PDF-2"
    for path in ("../../secret", "/etc/passwd", "data/x.parquet", f"_files/{'0' * 32}/../x"):
        with pytest.raises(ConfigError, match="is not the path of a document"):
            open_document("archive/docs", path)
    with pytest.raises(ConfigError, match="there is no document"):
        open_document("archive/docs", f"_files/{'0' * 32}/0000-x")


def test_without_documents_the_rows_are_stored_alone(own: Project, data: Path) -> None:
    put(data, "a.pdf", b"%PDF", 10)
    connect(own, str(data), destination_sync_mode="append", include_files=False)
    assert materialize(own, KEY).success
    (row,) = own.rows("archive", "docs")
    assert row["path"] == "a.pdf" and "file_reference" not in row and not list_stored_files(own)
    own.amend("archive", streams=[{"name": "docs", "sync_mode": "incremental"}])
    put(data, "b.pdf", b"%PDF", 20)
    assert materialize(own, KEY).success
    references = {row["path"]: row["file_reference"] for row in own.rows("archive", "docs")}
    assert references["a.pdf"] is None and len(list_stored_files(own)) == 1


def test_selected_renamed_and_filtered_records_keep_their_documents(
    own: Project, data: Path
) -> None:
    for name in ("a.pdf", "b.txt", "c.pdf"):
        put(data, name, name.encode(), 10)
    connect(
        own,
        str(data),
        destination_sync_mode="append",
        fields={"include": ["name", "content_type"]},
        rename={"name": "title"},
        filter=[{"field": "content_type", "operator": "=", "value": "application/pdf"}],
    )
    assert materialize(own, KEY).success
    rows = own.rows("archive", "docs")
    assert [sorted(row) for row in rows] == [
        ["content_type", "file_reference", "path", "title"]
    ] * 2
    table = own.home / "lake" / "archive" / "docs"
    contents = {row["title"]: (table / row["file_reference"]["path"]).read_text() for row in rows}
    assert contents == {"a.pdf": "a.pdf", "c.pdf": "c.pdf"}
    assert len(list_stored_files(own)) == 2 and not list((own.home / "staging").iterdir())


def test_a_large_file_is_a_rejected_record(own: Project, data: Path) -> None:
    put(data, "large", b"123456", 10)
    put(data, "small", b"1", 20)
    connect(own, str(data), documents={"max_bytes": 5}, destination_sync_mode="append")
    assert materialize(own, KEY).success
    assert list(own.read_documents("archive", "docs")) == ["small"]
    (rejected,) = own.rows("archive", "docs_dead_letter")
    assert json.loads(rejected["record"])[0]["file"] == "large"
    assert own.metadata("archive", "docs")["elt/records_rejected"] == 1


FILES: Any = {"is_file_based": True}


def reference(name: str, **more: Any) -> dict[str, Any]:
    return {"staging_file_url": f"$STAGING/{name}", "source_file_relative_path": name, **more}


def refer(number: int, *, to: Any) -> dict[str, Any]:
    """A record that refers to a document."""
    message = record(id=number)
    message["record"]["file_reference"] = to
    return message


def contents_of_things(project: Project) -> dict[int, str | None]:
    table = project.home / "lake" / "scripted" / "things"
    return {
        row["id"]: row["file_reference"] and (table / row["file_reference"]["path"]).read_text()
        for row in project.rows("scripted", "things")
    }


def test_documents_of_hostile_names_are_stored_side_by_side(own: Project) -> None:
    names = ["a.txt", "A.TXT", "a.txt ", "../../../escape", "/etc/passwd", "x" * 1000, "日\0本", ""]
    lines: list[Any] = []
    for number, name in enumerate(names):
        place = reference(f"{number}/f", source_file_relative_path=name)
        lines += [f"!stage {number}/f text {number}", refer(number, to=place)]
    script(own, [*lines, record(id=99), refer(100, to=None), status("COMPLETE")], described=FILES)
    assert materialize(own, THINGS).success
    expected = {number: f"text {number}" for number in range(len(names))}
    assert contents_of_things(own) == {**expected, 99: None, 100: None}
    table = own.home / "lake" / "scripted" / "things"
    references = [row["file_reference"] for row in own.rows("scripted", "things")]
    stored = [place for place in references if place is not None]
    assert {place["source_file_relative_path"] for place in stored} == set(names)
    assert len({place["path"].lower() for place in stored}) == len(names)
    for place in stored:
        assert re.fullmatch(r"_files/[0-9a-f]{32}/\d{4}-[\w.-]{1,100}", place["path"], re.ASCII)
        assert (table / place["path"]).resolve().is_relative_to(table.resolve())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (reference("missing"), "there is no such file"),
        (reference("b", file_size_bytes=4), "it has 3 bytes, and not 4"),
        (reference("../../defs/scripted/defs.yaml"), "it is not in the staging folder"),
        ({"staging_file_url": "/etc/passwd"}, "it is not in the staging folder"),
        ({"source_file_relative_path": "a"}, "cannot be read"),
        ("/etc/passwd", "cannot be read"),
    ],
)
def test_a_bad_reference_ends_the_sync_at_the_last_state(
    own: Project, bad: Any, reason: str
) -> None:
    lines = ["!stage a one", refer(1, to=reference("a")), state(1), "!stage b two"]
    script(own, [*lines, refer(2, to=bad), state(2)], described=FILES)
    assert reason in failure_of(materialize(own, THINGS))
    assert contents_of_things(own) == {1: "one"}
    assert own.committed_state("scripted", "things")["stream"]["stream_state"] == {"cursor": 1}
    assert not list((own.home / "staging").iterdir())


def test_a_document_of_a_stream_without_files_is_an_error(own: Project) -> None:
    script(own, [refer(1, to={"staging_file_url": "/etc/passwd"})])
    error = failure_of(materialize(own, THINGS))
    assert "refers to a file" in error and "run `elt discover`" in error
    lines = [record(id=number) for number in range(200)]
    script(own, [*lines, refer(1, to={"staging_file_url": "/etc/passwd"}), *lines])
    assert "refers to a file" in failure_of(materialize(own, THINGS))


def test_documents_that_are_not_asked_for_are_not_stored(own: Project) -> None:
    lines = ["!stage a one", refer(1, to=reference("a")), refer(2, to={"staging_file_url": "/x"})]
    script(own, lines, described=FILES, include_files=False)
    assert materialize(own, THINGS).success
    assert [sorted(row) for row in own.rows("scripted", "things")] == [["id", "name"]] * 2


@pytest.mark.parametrize(
    ("described", "stream", "text"),
    [
        ({}, {"include_files": True}, "does not have the stream as one of files"),
        ({**FILES, "json_schema": {"properties": {"File_Reference": {}}}}, {}, "`rename` that one"),
        (FILES, {"rename": {"name": "file_reference"}}, "`rename` that one"),
    ],
)
def test_a_connection_that_cannot_have_documents_is_refused(
    own: Project, described: Any, stream: Any, text: str
) -> None:
    script(own, [], described=described, **stream)
    with pytest.raises(ConfigError, match=re.escape(text)):
        build()


def test_a_field_of_the_same_name_can_be_renamed(own: Project) -> None:
    schema = {"properties": {"id": {"type": "integer"}, "file_reference": {"type": "string"}}}
    line = refer(1, to=reference("a"))
    line["record"]["data"]["file_reference"] = "own"
    described = {**FILES, "json_schema": schema}
    lines = ["!stage a one", line]
    script(own, lines, described=described, rename={"file_reference": "reference"})
    assert materialize(own, THINGS).success
    (row,) = own.rows("scripted", "things")
    assert row["reference"] == "own" and contents_of_things(own) == {1: "one"}


def test_documents_go_to_another_destination(own: Project) -> None:
    """The destination takes them from the folder into which the source puts them."""
    to_file = [sys.executable, "-m", "tests.programs.file_destination"]
    file = own.root / "written.jsonl"
    lines = [
        "!stage a one",
        refer(1, to=reference("a")),
        "!stage b two",
        refer(2, to=reference("b")),
    ]
    condition = {"field": "id", "operator": "<", "value": 2}
    for includes in (True, False):
        file.unlink(missing_ok=True)
        script(own, lines, described=FILES, include_files=includes, filter=[condition])
        destination = {"command": to_file, "config": {"file": str(file), "takes": True}}
        own.amend("scripted", destination=destination)
        assert materialize(own, THINGS).success
        (sent,) = [json.loads(line) for line in file.read_text().splitlines()]
        assert sent["data"] == {"id": 1}
        assert sent.get("content") == ("one" if includes else None)
        assert ("file_reference" in sent) is includes
        assert not list((own.home / "staging").iterdir())


def test_documents_of_a_lake_in_a_store(
    own: Project, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    with s3_server(tmp_path / "s3.log") as endpoint:
        store = new_bucket(endpoint)
        (own.root / "store.yaml").write_text(json.dumps(store.options))
        monkeypatch.setenv("ELT_STORAGE_OPTIONS", str(own.root / "store.yaml"))
        monkeypatch.setenv("ELT_LAKE", store.uri)
        contents = {f"{number}.bin": bytes([number]) * number for number in range(40)}
        contents["large"] = b"x" * (17 << 20)
        for number, (name, content) in enumerate(contents.items()):
            put(data, name, content, number + 1)
        connect(own, str(data), destination_sync_mode="append_dedup")
        assert materialize(own, KEY).success
        rows = read_table(spark, "archive/docs").select("path", "file_reference").collect()
        root = f"{store.bucket}/lake/archive/docs"
        read = {}
        for path, place in rows:
            with store.system.open_input_stream(f"{root}/{place['path']}") as source:
                read[path] = source.read()
        assert read == contents
        tables = StreamTables(f"{store.uri}/archive/docs", "elt:archive/docs")
        assert maintain(spark, tables, dt.timedelta(0))[0].documents == 0
        with store.system.open_output_stream(f"{root}/_files/{'0' * 32}/0000-x") as sink:
            sink.write(b"of a killed run")
        time.sleep(1.1)  # the store has times of whole seconds
        assert maintain(spark, tables, dt.timedelta(0))[0].documents == 1
        left = [name for name in store.objects() if "/_files/" in name]
        assert sorted(left) == sorted(f"{root}/{place['path']}" for _, place in rows)


def test_a_run_that_is_killed_leaves_no_staged_documents(own: Project, data: Path) -> None:
    """The next run copies the document again, and removes the folder that the killed one left."""
    for number in range(3):
        put(data, f"{number}.txt", str(number).encode(), number + 1)
    connect(own, str(data), destination_sync_mode="append")
    killed = own.materialize(KEY, ELT_FAILPOINT="document_stored:2")
    assert killed.returncode != 0
    assert list((own.home / "staging").iterdir())
    assert materialize(own, KEY).success
    assert own.read_documents("archive", "docs") == {
        f"{number}.txt": str(number).encode() for number in range(3)
    }
    assert len(list_stored_files(own)) >= 5
    assert not list((own.home / "staging").iterdir())
