"""`write`: what goes in is in the table, and what comes out says so."""

from __future__ import annotations

import copy
import io
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.messages import COMPLETE
from tests.destination.running import (
    Destination,
    Json,
    legacy,
    lines,
    make_shared_state,
    record,
    records,
    state,
    status,
    stream,
)
from tests.support.small_disk import mounted

EAGER = {"checkpoint": {"rows": 1}}
DEAD_LETTER = "users_dead_letter"


class Watched(io.BytesIO):
    """A stdout that looks, when a state comes out, at how many rows the table has."""

    def __init__(self, destination: Destination):
        super().__init__()
        self._destination = destination
        self.rows: list[int] = []

    def write(self, data: Any) -> int:
        for line in bytes(data).splitlines():
            if json.loads(line)["type"] == "STATE":
                self.rows.append(len(self._destination.rows()))
        return super().write(data)


@pytest.mark.spec("protocol.9", "protocol.35")
@pytest.mark.parametrize(
    "make",
    [state, lambda value: make_shared_state(value, "users"), legacy],
    ids=["stream", "global", "legacy"],
)
def test_a_state_is_returned_after_its_records_are_committed(
    destination: Destination, make: Any
) -> None:
    destination.config = EAGER
    watched = Watched(destination)
    messages = [*records(1), make({"n": 1}), make({"n": 1.50}), *records(2, 3), make({"n": 3})]

    answer = destination.write([stream()], messages, stdout=watched)

    assert answer.values == [{"n": 1}, {"n": 1.50}, {"n": 3}]
    assert answer.counts == [(1, 0), (0, 0), (2, 0)]
    assert all(
        row_count >= minimum for row_count, minimum in zip(watched.rows, [1, 1, 3], strict=True)
    )
    assert destination.ids() == [1, 2, 3]
    assert stat.S_IMODE(destination.lake.stat().st_mode) == 0o700


@pytest.mark.spec("protocol.87")
def test_soft_delete_keeps_deleted_rows(destination: Destination) -> None:
    configured = copy.deepcopy(stream(mode="soft_delete", primary_key=[["id"]]))
    fields = configured["stream"]["json_schema"]["properties"]
    fields["_ab_cdc_deleted_at"] = {"type": "string", "format": "date-time"}
    destination.write([configured], [*records(1, 2), state({"n": 1})])
    gone = record({"id": 1, "_ab_cdc_deleted_at": "2026-03-01T12:00:00Z"})
    destination.write([configured], [gone, state({"n": 2})])
    rows = {row["id"]: row for row in destination.rows()}
    assert rows[1]["name"] is not None
    assert rows[1]["_deleted_at"].isoformat().startswith("2026-03-01T12:00:00")
    assert rows[2]["_deleted_at"] is None
    fields["_deleted_at"] = {"type": "string"}
    refused = destination.write([configured], records(3), code=1)
    assert "needs the column '_deleted_at'" in refused.error["message"]


def test_texts_that_are_no_text_stop_nothing(destination: Destination) -> None:
    blob = b'{"a":"cut \\ud83d\\u0000\xff\t","n":NaN}'
    stream_state = b'{"stream_descriptor":{"name":"users"},"stream_state":%b}' % blob
    sent = [
        *(b'\xef\xbb\xbf{"type":"RECORD","record":{"stream":"users","data":{"id":%d,"name":"%b"}}}' % row
          for row in enumerate((b"cut \\ud83d", b"a\xffb", b"a\tb\\u0000", b"ok"))),
        b'{"type":"RECORD","record":{"stream":"users","data":{"id":"\\ud83d","name":"no key"}}}',
        b'{"type":"LOG","log":{"level":"INFO","message":"cut \\ud83d \xff"}}',
        b'{"type":"STATE","state":{"type":"STREAM","stream":%b}}' % stream_state,
    ]  # fmt: skip
    answer = destination.write([stream(mode="append_dedup")], sent)
    assert answer.code == 0 and blob in answer.output
    rows = sorted((row["id"], row["name"]) for row in destination.rows())
    assert rows == [(0, "cut \ufffd"), (1, "a\ufffdb"), (2, "a\tb\x00"), (3, "ok")]
    assert len(destination.rows(DEAD_LETTER)) == 1


ODD = rb"""{"type":"STATE","more":[1, 2.0],"state":{"id":12345678901234567890,"type":"STREAM","stream":
{"stream_descriptor":{"name":"users","x":null},"stream_state":{"b":1.50,  "a":[1e400,"\u2028"]},"y":{}},
"sourceStats":{"recordCount":1.0,"z":1},"destinationStats":{"recordCount":99.0,"w":2},"partition_id":"p"}}"""


@pytest.mark.spec("protocol.132", "protocol.134")
def test_a_state_is_returned_unchanged_except_for_its_counts(destination: Destination) -> None:
    line = ODD.replace(b"\n", b"")
    empty = state(None)

    answer = destination.write([stream()], [*records(1), line, empty])

    first, second = (line for line in answer.output.splitlines() if b'"type":"STATE"' in line)
    blob = line[line.index(b'{"b"') : line.index(b',"y"')]
    assert blob in first  # to the letter
    expected = json.loads(line)
    expected["state"]["destinationStats"] = {"recordCount": 1.0, "w": 2}
    assert json.loads(first) == expected
    assert json.loads(second)["state"].pop("destinationStats") == {"recordCount": 0.0}
    assert json.loads(second)["state"]["stream"] == empty["state"]["stream"]


@pytest.mark.spec("protocol.136")
def test_each_state_counts_its_rejected_records(destination: Destination) -> None:
    """The counts are those of a commit that covers all states; keys are null, data is no object."""
    no_key = record({"name": "nobody"})
    messages = [
        *(*records(1), no_key, record([1]), *records(2), state(1)),
        *(*records(3), state(2)),
        *(no_key, state(3)),
        *(record("text"), *records(4), record(None), state(4)),
        *(no_key, *records(5)),
    ]

    answer = destination.write([stream(mode="append_dedup")], messages)

    assert answer.counts == [(2, 2), (1, 0), (0, 1), (1, 2)]
    assert destination.ids() == [1, 2, 3, 4, 5]
    assert len(destination.rows(DEAD_LETTER)) == 6
    assert "3 of 11 records rejected, to the dead letter: every field of the prim" in answer.logs
    assert b"rejectedRecordCount" not in next(
        line for line in answer.output.splitlines() if b'"stream_state":2' in line
    )


def test_a_shared_state_counts_the_rejected_records_of_all_streams(
    destination: Destination,
) -> None:
    streams = [stream(mode="append_dedup"), stream("orders", "append_dedup")]
    no_key = {"name": "nobody"}
    messages = [
        *(*records(1), record(no_key, "orders"), make_shared_state(1)),
        *(*records(1, 2, name="orders"), make_shared_state(2)),
        *(record(no_key), record(no_key, "orders"), *records(2), make_shared_state(3)),
    ]

    answer = destination.write(streams, messages)

    assert answer.counts == [(1, 1), (2, 0), (1, 2)]
    assert (destination.ids(), destination.ids("orders")) == ([1, 2], [1, 2])


@pytest.mark.spec("protocol.37", "airbyte.21")
def test_records_are_counted_over_many_commits(destination: Destination) -> None:
    destination.config = EAGER
    messages: list[Json | bytes] = []
    for number in range(4):
        messages += [*records(number), record({"name": "nobody"}), state(number)]

    answer = destination.write([stream(mode="append_dedup")], messages)

    assert answer.counts == [(1, 1)] * 4
    assert answer.values == [0, 1, 2, 3]


@pytest.mark.spec("protocol.38", "protocol.39", "protocol.98", "airbyte.22")
def test_unknown_streams_fields_and_messages_are_ignored(destination: Destination) -> None:
    """A schema mismatch is never a failure. Spec: Schema Mismatches."""
    extraneous = record({"id": 1, "eye_color": "brown", "nested": {"x": [1]}})
    messages: list[Json | bytes] = [
        *(extraneous, *records(7, 8, name="strangers"), state(7, "strangers")),
        *(b'{"type":"SOMETHING_NEW","x":{}}', b"plain text", state(1)),
    ]

    answer = destination.write([stream()], messages)

    assert destination.rows() == [{"id": 1, "name": None}]
    assert answer.values == [1]
    assert "ignored 2 records of stream 'strangers'" in answer.logs
    assert "plain text" in answer.logs


def test_a_namespace_is_a_folder_of_the_lake(destination: Destination) -> None:
    streams = [stream(), stream(namespace="other/one")]
    messages = [*records(1), record({"id": 2}, namespace="other/one")]

    destination.write(streams, messages)

    assert destination.ids() == [1]
    assert destination.ids("other_one", "users") == [2]
    assert destination.table().history(1)[0]["elt.app"] == "elt:destination/users"


def test_append_dedup_keeps_one_row_per_key_across_syncs(destination: Destination) -> None:
    destination.config = {"history": True}
    streams = [stream(mode="append_dedup", sync_id=7), stream("plain", sync_id=7)]
    destination.write(streams, [*records(1, 2), *records(1, name="plain")])
    later = record({"id": 1, "name": "renamed"})

    # The second attempt of the same sync: what comes later is the latest all the same.
    destination.write(streams, [later, *records(1, name="plain")])

    assert sorted(row["name"] for row in destination.rows()) == ["renamed", "user 2"]
    assert len(destination.rows("users_history")) == 3
    assert destination.ids("plain") == [1, 1]
    assert not destination.lake.joinpath("destination", "plain_history").exists()
    meta = destination.table().to_pyarrow_table().column("_airbyte_meta").to_pylist()
    assert {row_meta["sync_id"] for row_meta in meta} == {7}


@pytest.mark.spec("protocol.68")
@pytest.mark.parametrize("mode", ["append_dedup", "overwrite_dedup"])
def test_without_a_cursor_the_last_record_of_a_key_to_arrive_stays(
    mode: str, destination: Destination
) -> None:
    """PyAirbyte configures every stream as incremental, also one whose source publishes no cursor."""
    generation: Json = {"generation_id": 1, "minimum_generation_id": 1, "sync_id": 1}
    streams = [stream(mode=mode, sync_mode="incremental", cursor_field=[], **generation)]
    destination.write(streams, [record({"id": 1, "name": "z"}), record({"id": 1, "name": "b"})])
    assert destination.rows() == [{"id": 1, "name": "b"}]

    destination.write(streams, [record({"id": 1, "name": "c"}), record({"id": 1, "name": "a"})])

    assert destination.rows() == [{"id": 1, "name": "a"}]


def test_a_schema_change_is_applied_and_logged(destination: Destination) -> None:
    destination.write([stream()], records(1))
    wide = {"id": {"type": "integer"}, "name": {"type": "string"}, "age": {"type": "integer"}}

    answer = destination.write([stream(properties=wide)], [record({"id": 2, "age": 5})])

    assert {"id": 2, "name": None, "age": 5} in destination.rows()
    assert "schema of stream 'users' has changed" in answer.logs


def test_an_error_of_the_source_fails_the_write(destination: Destination) -> None:
    error = {"message": "no more quota", "failure_type": "transient_error"}
    trace = {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.0, "error": error}}

    answer = destination.write([stream()], [*records(1), state(1), *records(2), trace], code=1)

    assert answer.error["failure_type"] == "transient_error"
    assert "no more quota" in answer.error["message"]
    assert (answer.values, destination.ids()) == ([1], [1])


def test_a_truncated_last_line_is_an_error(destination: Destination) -> None:
    torn = b'{"type":"RECORD","record":{"stream":"users","data":{"id":'

    answer = destination.write([stream()], [*records(1), state(1), *records(2), torn], code=1)

    assert "malformed RECORD" in answer.error["message"]
    assert answer.error["failure_type"] == "system_error"
    assert (answer.values, destination.ids()) == ([1], [1])


@pytest.mark.spec("protocol.148")
def test_a_failed_stream_does_not_affect_other_streams(destination: Destination) -> None:
    messages = [
        *(status("STARTED"), status("STARTED", "orders")),
        *(*records(1), state(1), *records(2)),
        *(*records(1, name="orders"), state(1, "orders")),
        *(status("INCOMPLETE"), state(2), status("COMPLETE", "orders")),
    ]

    answer = destination.write([stream(), stream("orders")], messages, code=1)

    assert answer.error["stream_descriptor"] == {"name": "users"}
    assert sorted(message["state"]["stream"]["stream_state"] for message in answer.states) == [1, 1]
    assert (destination.ids(), destination.ids("orders")) == ([1], [1])


def test_a_shared_state_after_the_failure_of_a_stream_is_withheld(
    destination: Destination,
) -> None:
    messages = [
        *(status("STARTED"), status("STARTED", "orders"), *records(1)),
        *(
            make_shared_state(1),
            *records(1, name="orders"),
            status("INCOMPLETE"),
            make_shared_state(2),
        ),
        status("COMPLETE", "orders"),
    ]

    answer = destination.write([stream(), stream("orders")], messages, code=1)

    assert answer.values == [1]
    assert (destination.ids(), destination.ids("orders")) == ([1], [1])


@pytest.mark.spec("protocol.135")
def test_a_state_with_a_wrong_record_count_is_not_acknowledged(destination: Destination) -> None:
    wrong = state(1, sourceStats={"recordCount": 2.0})

    answer = destination.write([stream()], [*records(1), wrong], code=1)

    assert answer.states == []
    assert "reports 2 records" in answer.error["message"]


def test_a_failed_commit_acknowledges_nothing(destination: Destination) -> None:
    """Another run was first, as it turns out when this one commits."""

    class Meddling(io.BytesIO):
        done = False

        def write(self, data: Any) -> int:
            if b'"type":"STATE"' in data and not self.done:
                self.done = True
                other = destination.arguments(stream()), lines([*records(100), state(100)])
                while destination.run(*other).code:  # until it is first
                    pass
            return super().write(data)

    destination.config = EAGER
    messages: list[Json] = []
    for number in range(1, 9):  # more than may be under way at once
        messages += [*records(number), state(number)]

    answer = destination.write([stream()], messages, code=1, stdout=Meddling())

    assert answer.error["failure_type"] == "transient_error"
    assert "another run" in answer.error["message"]
    assert answer.error["stream_descriptor"] == {"name": "users"}
    assert destination.ids() == [*answer.values, 100]


def test_a_write_without_records_does_not_start_spark(destination: Destination) -> None:
    """Neither for a new table, nor for a new state, nor where a new generation removes the rows."""
    users, orders = stream(), stream("orders", "append_dedup")
    destination.write([users], [*records(1), state(1), status(COMPLETE)])
    idle = replace(destination, spark=SparkProvider(_no_session))
    answer = idle.write(
        [users, orders],
        [state(2), state(3, "orders"), status(COMPLETE), status(COMPLETE, "orders")],
    )
    assert sorted(answer.values) == [2, 3]
    assert (idle.ids(), idle.ids("orders")) == ([1], [])
    emptied = stream(mode="overwrite", generation_id=2, minimum_generation_id=2, sync_id=1)
    idle.write([emptied], [status(COMPLETE)])
    assert idle.ids() == []


def _no_session() -> SparkSession:
    raise AssertionError("Spark was started")


def test_the_staging_folder_is_empty_after_a_write(
    destination: Destination, tmp_path: Path
) -> None:
    destination.write([stream()], records(1))
    destination.write([stream()], [*records(1), b'{"type":"RECORD","rec'], code=1)
    assert list((tmp_path / "home" / "staging").iterdir()) == []


def test_a_full_disk_is_a_config_error(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(tmp_path / "staging", "4k") as staging:
        monkeypatch.setenv("ELT_STAGING", str(staging))
        answer = destination.write([stream()], [*records(*range(2000)), state(1)], code=1)
    assert answer.states == []
    assert answer.error["failure_type"] == "config_error"
    assert answer.error["message"].startswith("the disk is full, while records were staged")
