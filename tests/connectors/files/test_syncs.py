"""Reads from states: files that are new, change, vanish or are broken, in a folder and in a store."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.files import Files
from connectors.files.config import FilesConfig
from connectors.sdk.files.formats import json_lines
from connectors.sdk.files.globs import parse_glob
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.files.support import Reader, last_state, s3_options
from tests.connectors.support import Json, call, errors, records
from tests.support.object_store import SECRET, new_bucket


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def put(data: Path, name: str, text: str | bytes, seconds: int) -> None:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (seconds, seconds))


def lines(data: Path, **config: Any) -> Reader:
    stream = {"name": "s", "glob": "**", "format": "jsonl", "columns": {"n": "integer"}}
    return Reader(data.parent, [stream], str(data), **config)


def numbers(messages: list[Json]) -> list[Any]:
    return [record["n"] for record in records(messages)]


def test_a_sync_reads_what_is_new_and_what_has_changed(data: Path) -> None:
    source = lines(data)
    _, messages = source.run()
    assert numbers(messages) == [] and last_state(messages)
    put(data, "a.jsonl", '{"n": 1}\n', 10)
    put(data, "folder/b.jsonl", '{"n": 2}\n', 20)
    _, messages = source.run(last_state(messages))
    assert numbers(messages) == [1, 2]
    _, messages = source.run(last_state(messages))
    assert numbers(messages) == []
    put(data, "a.jsonl", '{"n": 1}\n{"n": 3}\n', 30)  # extended: read as a whole
    put(data, "late.jsonl", '{"n": 4}\n', 5)
    (data / "folder" / "b.jsonl").unlink()
    _, messages = source.run(last_state(messages))
    assert numbers(messages) == [4, 1, 3]
    put(data, "folder/b.jsonl", '{"n": 2}\n', 20)  # it is back as it was
    _, messages = source.run(last_state(messages))
    assert numbers(messages) == []
    _, messages = source.run(mode="full_refresh")
    assert numbers(messages) == [4, 2, 1, 3]


@pytest.mark.parametrize("seconds", [10, 5])
def test_a_file_that_grows_is_read_again_although_its_time_stays_or_is_set_back(
    data: Path, seconds: int
) -> None:
    put(data, "a.jsonl", '{"n": 1}\n', 10)
    source = lines(data)
    _, messages = source.run()
    put(data, "a.jsonl", '{"n": 1}\n{"n": 2}\n', seconds)
    _, messages = source.run(last_state(messages))
    assert numbers(messages) == [1, 2]


def test_a_file_that_is_renamed_is_another_file(data: Path) -> None:
    put(data, "a.jsonl", '{"n": 1}\n', 10)
    source = lines(data)
    _, messages = source.run()
    (data / "a.jsonl").rename(data / "b.jsonl")
    _, messages = source.run(last_state(messages))
    assert numbers(messages) == [1]


def test_a_read_resumes_after_the_last_state(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sdk.files.stream._PACK_FILES", 2)
    for n in range(7):
        put(data, f"{n}.jsonl", json.dumps({"n": n}) + "\n", 100 - n)
    source = lines(data)
    catalog = source.catalog()
    put(data, "1.jsonl", b"[1]", 99)
    code, messages = source.run(catalog=catalog)
    assert code == 1 and "1.jsonl" in errors(messages)[0]["message"]
    state = last_state(messages)
    assert numbers(messages[: messages.index({"type": "STATE", "state": state})]) == [6, 5, 4, 3]
    put(data, "1.jsonl", '{"n": 10}\n', 99)
    code, messages = source.run(state)
    assert code == 0 and sorted(numbers(messages)) == [0, 2, 10]


def test_probe_says_whether_a_file_is_new(data: Path) -> None:
    source = lines(data)
    put(data, "a.jsonl", '{"n": 1}\n', 10)
    _, messages = source.run()
    for seconds, is_new in ((10, False), (11, True)):
        put(data, "a.jsonl", '{"n": 1}\n', seconds)
        files = {"catalog": source.catalog(), "state": [last_state(messages)]}
        _, news = call(Files(), data.parent, "probe", config=source.config, **files)
        assert [item["has_news"] for item in news[-1]["news"]["streams"]] == [is_new]


@pytest.mark.parametrize(("kind", "end"), [("replaced", "replaced"), ("gone", "gone")])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    data: Path, monkeypatch: pytest.MonkeyPatch, kind: str, end: str
) -> None:
    put(data, "a.jsonl", '{"n": 1}\n', 10)
    source, original = lines(data), json_lines._blocks

    def blocks(*arguments: Any) -> Iterator[bytes]:
        yield from original(*arguments)
        (data / "a.jsonl").unlink()
        if kind == "replaced":
            put(data, "a.jsonl", '{"n": 2}\n', 11)

    catalog = source.catalog()
    monkeypatch.setattr(json_lines, "_blocks", blocks)
    code, messages = source.run(catalog=catalog)
    assert code == 1 and not [m for m in messages if m["type"] == "STATE"]
    (error,) = errors(messages)
    assert f"a.jsonl was {end}" in error["message"] or f"a.jsonl is {end}" in error["message"]
    assert error["failure_type"] == "transient_error"


BAD_FILES: list[tuple[str, Json, bytes, str]] = [
    ("a.csv", {"format": "csv"}, "a\né\n".encode("latin-1"), "csv.encoding"),
    ("a.csv", {"format": "csv"}, "a\né\n".encode("utf-16"), "csv.encoding: utf-16"),
    ("a.csv", {"format": "csv"}, b"a,b,a\n1,2,3\n", "a column twice: a"),
    (
        "a.csv",
        {"format": "csv"},
        ",".join(map(str, [*range(9_000), 7])).encode() + b"\n1\n",
        "a column twice: 7",
    ),
    ("a.csv", {"format": "csv", "csv": {"columns": ["x"]}}, b"a,b\n1,2\n", "has 2 columns"),
    (
        "a.csv",
        {"format": "csv", "bad_lines": "error"},
        b"a,b\n1,2\n3\n",
        "row 3: 1 values, and not 2",
    ),
    ("a.csv", {"format": "csv", "csv": {"encoding": "ascii"}}, "a\né\n".encode(), "ascii"),
    ("a.csv", {"format": "csv"}, b'a,b\n1,"c\n2,d\n3,e\n', "line 2: a quote that opens"),
    ("a.csv", {"format": "csv"}, b'a,b\n1,2\n3,"cut o', "line 3: a quote that opens"),
    ("a.csv", {"format": "csv"}, b'a,b\n1,"c\n2,"d\n', "line 3: text follows the quote"),
    ("a.csv", {"format": "csv"}, b"a,b\n" + b"1,2\n" * 30_000 + b"\xff,2\n", "csv.encoding"),
    ("a.csv", {"format": "csv"}, gzip.compress(b"a,b\n1,2\n"), "compression: gzip"),
    ("a.jsonl", {"format": "jsonl"}, gzip.compress(b'{"a": 1}\n'), "compression: gzip"),
    ("a.csv.gz", {"format": "csv"}, gzip.compress(b"a,b\n" + b"1,2\n" * 99)[:-9], "Truncated"),
    ("a.csv.gz", {"format": "csv"}, b"a,b\n1,2\n", "inflate failed"),
    ("a.zip", {"format": "csv"}, b"PK", "is an archive"),
    ("a.jsonl", {"format": "jsonl"}, b' \n[{"a": 1}]', "is an array"),
    ("a.jsonl", {"format": "jsonl"}, '{"a":1}'.encode("utf-16"), "jsonl.encoding: utf-16"),
    ("a.jsonl", {"format": "jsonl", "bad_lines": "error"}, b'{}\n{"a":1\n', "line 2: "),
    ("a.jsonl", {"format": "jsonl", "bad_lines": "error"}, b"{}\n1\n", "line 2: not an object"),
    ("a.parquet", {"format": "parquet"}, b"PAR1 but no footer", "no Parquet file"),
    ("a.parquet", {"format": "parquet"}, b"", "no Parquet file"),
    ("a.xlsx", {"format": "excel"}, b"zzz", "no workbook"),
]


@pytest.mark.parametrize(
    ("name", "stream", "content", "text"), BAD_FILES, ids=[text for *_, text in BAD_FILES]
)
def test_a_bad_file_is_a_clear_error(
    data: Path, name: str, stream: Json, content: bytes, text: str
) -> None:
    put(data, name, content, 10)
    source = Reader(data.parent, [{"name": "s", "glob": "*", **stream}], str(data))
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    catalog = {"streams": [{"stream": {"name": "s", "json_schema": schema}, **modes}]}
    message = source.fail(catalog=catalog)
    assert text in message and name in message


@pytest.mark.parametrize("name", ["_elt_changes", "_ELT_RECORD", "_elt_record"])
def test_columns_of_files_are_data_whatever_their_names_are(data: Path, name: str) -> None:
    put(data, "a.csv", f"{name}\n{{}}\n".encode(), 10)
    put(data, "a.jsonl", f'{{"{name}":"{{}}"}}\n'.encode(), 10)
    pq.write_table(pa.table({name: pa.array(["{}"])}), data / "a.parquet")
    for kind in ("csv", "jsonl", "parquet"):
        stream = {"name": "s", "glob": f"*.{kind}", "format": kind}
        source = Reader(data.parent, [stream], str(data), file_columns=False)
        assert source.read() == [{name: "{}"}]


def test_a_broken_row_group_is_a_clear_error(data: Path) -> None:
    pq.write_table(pa.table({"a": [str(n) * 9 for n in range(9999)]}), data / "a.parquet")
    content = bytearray((data / "a.parquet").read_bytes())
    content[30:90] = bytes(60)
    source = Reader(data.parent, [{"name": "s", "glob": "*", "format": "parquet"}], str(data))
    (data / "a.parquet").write_bytes(bytes(content))
    assert "a.parquet" in source.fail()


def test_bad_configs_are_clear_errors(data: Path) -> None:
    stream = {"name": "s", "glob": "*.csv", "format": "csv"}
    for location, text in (
        ("data", "absolute path"),
        ("ftp://x", "absolute path"),
        (f"{data}/no", "no folder"),
    ):
        _, messages = call(
            Files(), data, "check", config={"location": location, "streams": [stream]}
        )
        status = messages[-1]["connectionStatus"]
        assert status["status"] == "FAILED" and text in status["message"]
    config = {"location": str(data), "streams": [stream]}
    _, messages = call(Files(), data, "check", config=config)
    assert "no file of" in messages[-1]["connectionStatus"]["message"]
    for glob in ("../x", "/x", "a[", "{a"):
        with pytest.raises(ConfigError):
            parse_glob(glob)


@pytest.mark.parametrize(
    ("glob", "paths", "others"),
    [
        ("*.csv", ["a.csv", "é b.csv"], ["a.CSV", "x/a.csv", ".a.csv", "_a.csv", "~$a.csv"]),
        ("**/*.csv", ["a.csv", "x/a.csv", "x/y/a.csv"], ["_temporary/0/a.csv", "x/.b/a.csv"]),
        ("x/**", ["x/a", "x/y/z"], ["a", "x/_SUCCESS"]),
        ("a?[0-9].{csv,tsv}", ["ab1.csv", "ab2.tsv"], ["ab.csv", "abc.csv", "a/1.csv"]),
        ("d=[!a]/_x.*", ["d=b/_x.1"], ["d=a/_x.1", "d=b/x.1"]),
        ("a+(b).csv", ["a+(b).csv"], ["aa(b).csv"]),
    ],
)
def test_globs(glob: str, paths: list[str], others: list[str]) -> None:
    pattern = parse_glob(glob)
    assert [path for path in paths + others if pattern.matches(path)] == paths


def test_files_of_s3(endpoint: str, tmp_path: Path) -> None:
    store = new_bucket(endpoint)
    system = store.system

    def write(name: str, content: bytes) -> None:
        with system.open_output_stream(f"{store.bucket}/{name}", compression=None) as sink:
            sink.write(content)

    write("in/2024/a.jsonl.gz", gzip.compress(b'{"n": 1}\n'))
    write("in/2024/b.jsonl", b'{"n": 2}\nbad\n')
    write("in/2024/_SUCCESS", b"")
    write("other/c.jsonl", b'{"n": 9}\n')
    stream = {"name": "s", "glob": "**/*.jsonl*", "format": "jsonl"}
    source = Reader(tmp_path, [stream], f"s3://{store.bucket}/in", s3=s3_options(store))
    rows = source.read()
    assert sorted(row["n"] for row in rows if isinstance(row, dict)) == [1, 2]
    ((bad,),) = (row for row in rows if isinstance(row, list))
    assert (bad["file"], bad["line"], bad["text"]) == ("2024/b.jsonl", 2, "bad")
    storage = Files().open_storage(FilesConfig.model_validate(source.config))
    for file in storage.list_files([parse_glob("**")]):
        storage.require(replace(file, modified=file.modified + 123_000_000))  # as MinIO lists it
        with pytest.raises(TransientError, match="replaced"):
            storage.require(replace(file, modified=file.modified + 1_000_000_000))
    _, messages = source.run()
    write("in/2024/c.jsonl", b'{"n": 3}\n')
    write("in/2024/b.jsonl", b'{"n": 4}\n')
    _, messages = source.run(last_state(messages))
    assert sorted(numbers(messages)) == [3, 4]

    source.config["location"] = "s3://no-such-bucket-at-all/in"
    _, messages = call(Files(), tmp_path, "check", config=source.config)
    text = messages[-1]["connectionStatus"]["message"]
    assert "no-such-bucket" in text and SECRET not in text
