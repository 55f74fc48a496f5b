"""`target-elt`: a tap's records in tables, its states out once they are there."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from elt_assets.destination import target
from elt_assets.lake.session import SparkProvider
from tests.destination.running import Destination, Json, lines
from tests.support.project import BIN, REPOSITORY
from tests.support.small_disk import mounted

PROPERTIES = {"id": {"type": "integer"}, "name": {"type": "string"}}


def schema(stream: str = "users", key: list[str] | None = None, **properties: Any) -> Json:
    described = {"type": "object", "properties": {**PROPERTIES, **properties}}
    keys = ["id"] if key is None else key
    return {"type": "SCHEMA", "stream": stream, "schema": described, "key_properties": keys}


def records(*ids: int, stream: str = "users", **more: Any) -> list[Json]:
    return [
        {"type": "RECORD", "stream": stream, "record": {"id": id_, "name": f"user {id_}"}, **more}
        for id_ in ids
    ]


def state(value: Any) -> Json:
    return {"type": "STATE", "value": value}


def activate(version: int, stream: str = "users") -> Json:
    return {"type": "ACTIVATE_VERSION", "stream": stream, "version": version}


@dataclass
class Target(Destination):
    """`target-elt` with a lake of a test's own."""

    capture: pytest.CaptureFixture[str] | None = None
    stderr: str = ""

    def load(self, *messages: Json | bytes, code: int = 0) -> list[bytes]:
        """The states that come out, to the letter."""
        assert self.capture is not None
        output = io.BytesIO()
        arguments = ["--config", self.config_file]
        self.capture.readouterr()
        exit_code = target.main(arguments, io.BytesIO(lines(messages)), output, self.spark)
        self.stderr = self.capture.readouterr().err
        assert exit_code == code, self.stderr
        return output.getvalue().splitlines()


@pytest.fixture
def elt(
    spark_provider: SparkProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Target:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    return Target(tmp_path, spark_provider, {}, capsys)


def test_texts_that_are_no_text_stop_nothing(elt: Target) -> None:
    values = [b'{"bookmarks":{"users":{"a":"cut \\ud83d\xff\t","n":NaN}}}', b'{"seen":["\\ude00"]}']
    sent: list[Json | bytes] = [
        schema(),
        *(b'{"type":"RECORD","stream":"users","record":{"id":%d,"name":"%b"}}' % row
          for row in enumerate((b"cut \\ud83d", b"a\xffb", b"a\tb\\u0000"))),
        b'{"type":"STATE","value":%b}' % values[0],
        b'\xef\xbb\xbf{"type":"STATE","value":%b}' % values[1],
    ]  # fmt: skip
    assert elt.load(*sent) == values
    assert sorted(row["name"] for row in elt.rows()) == ["a\tb\x00", "a\ufffdb", "cut \ufffd"]


@pytest.mark.spec("sdk.9", "singer.29")
def test_states_are_returned_byte_for_byte_and_in_order(elt: Target) -> None:
    odd = b'{"type":"STATE","value":{"bookmarks": {"users":  {"at": 1.50, "big": 12345678901234567890}}}}'

    states = elt.load(schema(), *records(1), odd, state({"any": "form"}), *records(2), state(None))

    odd_value = odd.removeprefix(b'{"type":"STATE","value":').removesuffix(b"}")
    assert states == [odd_value, b'{"any": "form"}', b"null"]
    assert elt.ids() == [1, 2]


def test_later_records_replace_rows_with_the_same_key(elt: Target) -> None:
    renamed = {"type": "RECORD", "stream": "users", "record": {"id": 1, "name": "renamed"}}
    elt.load(schema(), *records(1, 2), renamed)
    elt.load(schema(), *records(3))
    assert sorted(row["name"] for row in elt.rows()) == ["renamed", "user 2", "user 3"]


def test_a_field_that_is_renamed_in_case_only_keeps_its_column(elt: Target) -> None:
    def rename_field(field: str, number: int, value: object) -> list[Json]:
        renamed_schema = schema(key=["Id"])
        renamed_schema["schema"]["properties"] = {
            "Id": {"type": "integer"},
            field: {"type": "string"},
        }
        record = {"type": "RECORD", "stream": "users", "record": {"Id": number, field: value}}
        return [renamed_schema, record]

    elt.load(
        *rename_field("Email", 1, "1@x"),
        *rename_field("email", 2, "2@x"),
        *rename_field("Email", 3, 3),
    )
    elt.load(*rename_field("email", 2, "2@y"), *rename_field("EMAIL", 4, ["4"]))
    emails = {row["Id"]: row["Email"] for row in elt.rows()}
    assert emails == {1: "1@x", 2: "2@y", 3: "3", 4: '["4"]'}
    assert [name for name in elt.rows()[0] if not name.startswith("_")] == ["Id", "Email"]


def test_streams_whose_names_collide_have_a_table_each(elt: Target) -> None:
    """A tap names its streams one after the other: the first one has the plain name, and keeps it."""
    names = ("Users", "users")
    for order in (names, names[::-1]):
        elt.load(*(line for name in order for line in (schema(name), *records(1, stream=name))))
    assert len(elt.rows("Users")) == 1
    (other,) = [path.name for path in elt.lake.glob("*/users*") if path.name != "users_dead_letter"]
    assert other.startswith("users_") and len(elt.rows(other)) == 1


def test_records_without_a_key_are_appended(elt: Target) -> None:
    for _ in range(2):
        elt.load(schema(key=[]), *records(1))
    assert elt.ids() == [1, 1]


@pytest.mark.spec("singer.27")
def test_a_schema_change_during_a_sync_is_applied(elt: Target) -> None:
    grown = {"type": "RECORD", "stream": "users", "record": {"id": 2, "age": 7}}
    again = {"type": "RECORD", "stream": "users", "record": {"id": 1, "name": "renamed"}}

    states = elt.load(
        *(schema(), *records(1), state(1), schema(age={"type": "integer"}), grown, again, state(2)),
        *(schema("orders", key=[]), *records(5, stream="orders"), state(3)),
    )

    assert states == [b"1", b"2", b"3"]
    rows = sorted(elt.rows(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["name"], row["age"]) for row in rows] == [
        (1, "renamed", None),
        (2, None, 7),
    ]
    assert elt.ids("orders") == [5]


def test_a_version_that_is_activated_before_its_records_replaces_the_rows_at_the_end(
    elt: Target,
) -> None:
    elt.config = {"checkpoint": {"rows": 1}}
    elt.load(schema(), *records(1, version=100), activate(100))
    early = [schema(), activate(200), *records(2, version=200), state(1)]

    assert elt.load(*early, *records(3, stream="unknown"), code=1) == [b"1"]
    assert elt.ids() == [1]
    assert elt.load(schema(), activate(200), *records(3, version=200), state(2)) == [b"2"]

    assert elt.ids() == [2, 3]
    elt.load(schema(), activate(300))  # an empty version
    assert elt.rows() == []


def grown(id_: int, version: int, **data: Any) -> Json:
    envelope = {"type": "RECORD", "stream": "users", "version": version}
    return {**envelope, "record": {"id": id_, **data}}


@pytest.mark.spec("singer.27")
@pytest.mark.parametrize("rows", [1, 1000])
def test_a_version_has_the_columns_of_all_its_schemas(rows: int, elt: Target) -> None:
    """A part of it may have been committed before a SCHEMA."""
    elt.config = {"checkpoint": {"rows": rows}}
    elt.load(schema(), *records(9, version=100), activate(100), state(0))

    states = elt.load(
        *(schema(), *records(1, version=200), grown(9, 200, name="gone"), state(1)),
        *(schema(age={"type": "integer"}), grown(2, 200, age=3), state(2)),
        *(schema(age={"type": "string"}), grown(3, 200, age="old"), grown(9, 200), state(3)),
        activate(200),
        state(4),
    )

    assert states == [b"1", b"2", b"3", b"4"]
    rows_found = {row["id"]: (row["name"], row["age"]) for row in elt.rows()}
    assert rows_found == {1: ("user 1", None), 2: (None, "3"), 3: (None, "old"), 9: (None, None)}


def test_the_key_of_a_version_cannot_change_after_a_part_of_it_is_committed(elt: Target) -> None:
    elt.config = {"checkpoint": {"rows": 1}}
    elt.load(schema(), *records(9, version=100), activate(100), state(0))
    other = schema(key=["id", "name"])
    elt.load(schema(), *records(1, version=200), state(1), other, *records(2, version=200), code=1)
    assert "changed the key of stream 'users'" in elt.stderr
    assert elt.ids() == [9]


def test_a_record_before_its_schema_is_an_error_that_names_the_stream(elt: Target) -> None:
    states = elt.load(schema(), *records(1), state(1), *records(2, stream="orders"), code=1)
    assert "record of stream 'orders' before its SCHEMA" in elt.stderr
    assert (states, elt.ids()) == ([b"1"], [1])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({**schema(), "schema": {"type": "object"}}, "stream 'users' has no properties"),
        (schema(key=["absent"]), "'absent' is not a column"),
        (b'{"type":"RECORD","stream":"users","record":{"id":', "malformed RECORD"),
    ],
)
def test_an_invalid_message_is_refused(elt: Target, message: Json | bytes, expected: str) -> None:
    elt.load(message, *records(1), code=1)
    assert expected in elt.stderr


def test_a_record_without_its_key_goes_to_the_dead_letter(elt: Target) -> None:
    keyless = {"type": "RECORD", "stream": "users", "record": {"name": "nobody"}}
    odd = {"type": "RECORD", "stream": "users", "record": {"id": 2, "age": "x"}}
    described = schema(age={"type": "integer"})
    assert elt.load(described, *records(1), keyless, odd, state(1)) == [b"1"]
    assert elt.ids() == [1, 2]
    assert "1 of 3 records rejected, to the dead letter: every field of the primary" in elt.stderr
    assert "'age' of 1 of 3 records was changed: NULLED (DESTINATION_TYPECAST_ERR" in elt.stderr
    assert len(elt.rows("users_dead_letter")) == 1


@pytest.mark.spec("singer.25")
def test_a_new_version_replaces_the_rows_when_it_is_activated(elt: Target) -> None:
    elt.load(schema(), *records(1, 2, version=100), activate(100), state(1))
    assert elt.ids() == [1, 2]

    # The tap is interrupted, and then goes on with the same version.
    assert elt.load(schema(), *records(3, version=200), state({"at": 3})) == [b'{"at": 3}']
    assert elt.ids() == [1, 2]
    states = elt.load(schema(), *records(4, version=200), activate(200), state(2))

    assert (states, elt.ids()) == ([b"2"], [3, 4])
    elt.load(schema(), activate(200), *records(5, version=200), state(3))
    assert elt.ids() == [3, 4, 5]


def test_the_first_version_is_visible_before_its_activation(elt: Target) -> None:
    elt.load(schema(), *records(1, version=100), state(1))
    assert elt.ids() == [1]


def test_batches_are_read_only_from_allowed_folders(elt: Target, tmp_path: Path) -> None:
    folder = tmp_path / "batches"
    folder.mkdir()
    file = folder / "one.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id":1,"name":"a"}\n{"id":2,"name":"b"}\n'))
    encoding = {"format": "jsonl", "compression": "gzip"}
    batch = {"type": "BATCH", "stream": "users", "encoding": encoding, "manifest": [file.as_uri()]}

    elt.load(schema(), batch, state(1), code=1)
    assert "BATCH" in elt.stderr and not list(elt.lake.glob("*"))
    elt.config = {"batch_roots": [str(tmp_path / "elsewhere")]}
    elt.load(schema(), batch, state(1), code=1)
    assert "in none of the allowed folders" in elt.stderr
    elt.config = {"batch_roots": [str(folder)]}

    assert elt.load(schema(), batch, state(1)) == [b"1"]
    assert elt.ids() == [1, 2]


def test_an_invalid_config_is_refused(elt: Target) -> None:
    elt.config = {"batch_root": "x"}
    elt.load(schema(), code=1)
    assert "config_error" in elt.stderr and "'batch_root' was unexpected" in elt.stderr


@pytest.mark.spec("singer.28")
def test_a_later_schema_may_add_the_key(elt: Target) -> None:
    renamed = {"type": "RECORD", "stream": "users", "record": {"id": 1, "name": "renamed"}}
    states = elt.load(schema(key=[]), *records(1, 1, 2), state(1), schema(), renamed, state(2))
    assert states == [b"1", b"2"]
    assert sorted(row["name"] for row in elt.rows()) == ["renamed", "user 2"]


@pytest.mark.spec("singer.20")
def test_a_record_with_sdc_deleted_at_deletes_its_row(elt: Target) -> None:
    """Taps that read the log of a database tell of deletes so."""
    with_deletion = schema(_sdc_deleted_at={"type": ["null", "string"], "format": "date-time"})
    gone = {"id": 1, "name": None, "_sdc_deleted_at": "2026-01-02T03:04:05Z"}
    elt.load(with_deletion, *records(1, 2), {"type": "RECORD", "stream": "users", "record": gone})
    assert elt.ids() == [2]


@pytest.mark.spec("singer.31")
def test_a_deleted_row_stays_without_hard_delete(elt: Target) -> None:
    elt.config = {"hard_delete": False}
    with_deletion = schema(_sdc_deleted_at={"type": ["null", "string"], "format": "date-time"})
    gone = {"id": 1, "name": None, "_sdc_deleted_at": "2026-01-02T03:04:05Z"}
    elt.load(with_deletion, *records(1, 2), {"type": "RECORD", "stream": "users", "record": gone})
    rows = {row["id"]: row for row in elt.rows()}
    assert rows[1]["_deleted_at"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert (rows[1]["name"] is None, rows[2]["_deleted_at"]) == (False, None)


@pytest.mark.spec("singer.31")
def test_settings_of_the_sdk_have_their_documented_effect(elt: Target) -> None:
    elt.config = {
        "load_method": "append-only",
        "batch_size_rows": 1,
        "default_target_schema": "piped",
        "add_record_metadata": False,
        "hard_delete": True,
    }
    assert elt.load(schema(), *records(1), state(1), *records(1), state(2)) == [b"1", b"2"]
    table = DeltaTable(str(elt.lake / "piped" / "users"))
    assert table.to_pyarrow_table().column("id").to_pylist() == [1, 1]
    assert table.version() >= 2  # a commit for each state


@pytest.mark.spec("singer.31")
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"load_method": "overwrite"}, "load_method: 'overwrite' is not supported"),
        ({"add_record_metadata": True}, "add_record_metadata: true is not supported"),
        ({"validate_records": True}, "validate_records: true is not supported"),
        ({"flattening_enabled": True}, "flattening_enabled: true is not supported"),
        ({"stream_maps": {}}, "stream_maps: not supported"),
        ({"batch_size_rows": 0}, "config.batch_size_rows: violates `minimum`: 1"),
    ],
)
def test_unsupported_settings_of_the_sdk_are_refused(
    elt: Target, config: Json, expected: str
) -> None:
    elt.config = config
    elt.load(schema(), code=1)
    assert expected in elt.stderr
    assert not elt.lake.exists()


@pytest.mark.spec("singer.30")
def test_about_and_version_describe_the_target(elt: Target) -> None:
    about = subprocess.run(
        [BIN / "target-elt", "--about", "--format=json"], check=True, capture_output=True
    )
    description = json.loads(about.stdout)
    assert description["name"] == "target-elt" and "about" in description["capabilities"]
    assert {"lake", "load_method", "batch_roots"} <= description["settings"]["properties"].keys()
    version = subprocess.run(
        [BIN / "target-elt", "--version"], check=True, capture_output=True, text=True
    )
    assert version.stdout == f"target-elt {description['version']}\n"


@pytest.mark.spec("singer.29")
def test_the_process_returns_states_while_the_tap_is_silent(elt: Target, tmp_path: Path) -> None:
    elt.config = {"checkpoint": {"rows": 1}}
    process = subprocess.Popen(
        [BIN / "target-elt", "--config", elt.config_file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    late = threading.Timer(300, process.kill)  # which would fail the test
    late.start()
    with process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(lines([schema(), *records(1), state({"at": 1})]))
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"at": 1}
        assert elt.ids() == [1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    late.cancel()


def test_a_full_disk_is_reported_in_one_message(
    elt: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(tmp_path / "staging", "4k") as staging:
        monkeypatch.setenv("ELT_STAGING", str(staging))
        assert elt.load(schema(), *records(*range(2000)), state(1), code=1) == []
    (line, *more) = elt.stderr.splitlines()
    assert line.startswith("target-elt: config_error: the disk is full, while records were staged")
    assert len(more) <= 2
    assert elt.load(schema(), *records(1), state(1)) == [b"1"]


def test_an_older_version_is_refused_in_the_words_of_singer(elt: Target) -> None:
    elt.load(schema(), *records(1, version=5), activate(5))
    elt.load(schema(), *records(2, version=4), activate(4), code=1)
    assert "version 4 of the tap is older" in elt.stderr
    assert "generation" not in elt.stderr
    assert elt.ids() == [1]
