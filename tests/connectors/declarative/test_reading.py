"""The read of a stream's slices, one after another and at the same time, through the command line."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.declarative.cursors.cursor import WholeStream
from connectors.declarative.cursors.slices import Slice
from connectors.declarative.source import ManifestSource
from connectors.declarative.stream import MAX_FAILURES, read_slices
from connectors.sdk.items import Page
from connectors.sdk.reports import RATE_LIMITED, listen_to_waits, report_wait
from elt_assets.errors import SystemFailure
from tests.connectors.support import call, catalog, errors, records
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, RecordingApi, serving

Json = dict[str, Any]
DAYS = [f"2024-01-{day:02}" for day in range(1, 11)]


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    with serving(RecordingApi()) as found:
        yield found


def manifest(url: str, **more: Any) -> Json:
    """A manifest with one stream that is read day by day."""
    place = {"type": "RequestOption", "inject_into": "request_parameter"}
    return {
        "version": "6.0.0",
        "type": "DeclarativeSource",
        "check": {"type": "CheckStream", "stream_names": ["events"]},
        "streams": [
            {
                "type": "DeclarativeStream",
                "name": "events",
                "primary_key": "id",
                "retriever": {
                    "type": "SimpleRetriever",
                    "requester": {"type": "HttpRequester", "url_base": url, "path": "/events"},
                    "record_selector": {
                        "type": "RecordSelector",
                        "extractor": {"type": "DpathExtractor", "field_path": []},
                    },
                },
                "incremental_sync": {
                    "type": "DatetimeBasedCursor",
                    "cursor_field": "day",
                    "datetime_format": "%Y-%m-%d",
                    "start_datetime": DAYS[0],
                    "end_datetime": DAYS[-1],
                    "step": "P1D",
                    "cursor_granularity": "P1D",
                    "start_time_option": {**place, "field_name": "day"},
                    "end_time_option": {**place, "field_name": "until"},
                },
            }
        ],
        **more,
    }


def threads(number: int) -> Json:
    return {"concurrency_level": {"type": "ConcurrencyLevel", "default_concurrency": number}}


def read(folder: Path, written: Json, state: Json | None = None) -> tuple[int, list[Json]]:
    """Run `read` incrementally, and return its exit code and its messages."""
    config = {"url": written["streams"][0]["retriever"]["requester"]["url_base"]}
    files: Json = {"config": config, "catalog": catalog("events", mode="incremental")}
    if state is not None:
        blob = {"stream_descriptor": {"name": "events"}, "stream_state": state}
        files["state"] = [{"type": "STREAM", "stream": blob}]
    return call(ManifestSource(json.dumps(written)), folder, "read", **files)


def states(messages: list[Json]) -> list[Json]:
    found = [each["state"]["stream"] for each in messages if each["type"] == "STATE"]
    return [each["stream_state"] for each in found]


def of_day(request: Received) -> Any:
    first, last = request.params["day"], request.params["until"]
    days = [day for day in DAYS if first <= day <= last]
    return [{"id": f"{day}/{number}", "day": day} for day in days for number in range(3)]


def expected() -> list[str]:
    return [f"{day}/{number}" for day in DAYS for number in range(3)]


@pytest.mark.parametrize("number", [1, 4])
def test_every_record_of_every_slice_is_read_once(
    api: RecordingApi, tmp_path: Path, number: int
) -> None:
    api.script = of_day
    code, messages = read(tmp_path, manifest(api.url, **threads(number)))
    assert code == 0
    assert sorted(record["id"] for record in records(messages)) == expected()
    assert states(messages)[-1] == {"day": DAYS[-1]}


def test_slices_are_read_at_the_same_time(api: RecordingApi, tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=10)

    def script(request: Received) -> Any:
        if request.params["day"] in DAYS[:3]:
            together.wait()
        return of_day(request)

    api.script = script
    code, messages = read(tmp_path, manifest(api.url, **threads(3)))
    assert code == 0
    assert len(records(messages)) == len(expected())


def test_a_state_never_covers_a_slice_that_is_not_complete(
    api: RecordingApi, tmp_path: Path
) -> None:
    later_was_read = threading.Event()

    def script(request: Received) -> Any:
        if request.params["day"] == DAYS[0]:
            later_was_read.wait(10)
        if request.params["day"] == DAYS[4]:
            later_was_read.set()
        return of_day(request)

    api.script = script
    code, messages = read(tmp_path, manifest(api.url, **threads(2)))
    assert code == 0
    seen: set[str] = set()
    for message in messages:
        if message["type"] == "RECORD":
            seen.add(message["record"]["data"]["id"])
        elif message["type"] == "STATE":
            until = message["state"]["stream"]["stream_state"].get("day", "")
            assert {each for each in expected() if each[:10] <= until} <= seen


@pytest.mark.parametrize("number", [1, 3])
def test_a_read_that_fails_is_resumed_without_a_gap(
    api: RecordingApi, tmp_path: Path, number: int
) -> None:
    api.script = failing_from(DAYS[6])
    code, first = read(tmp_path, manifest(api.url, **threads(number)))
    assert code == 1
    (error,) = errors(first)
    assert "stream 'events'" in error["message"] and "404" in error["message"]
    api.script = of_day
    api.requests.clear()
    code, second = read(tmp_path, manifest(api.url, **threads(number)), (states(first) or [{}])[-1])
    assert code == 0
    assert len(api.requests) < len(DAYS)
    assert {each["id"] for each in records(first) + records(second)} == set(expected())


def failing_from(day: str) -> Callable[[Received], Any]:
    def script(request: Received) -> Any:
        if request.params["day"] >= day:
            return Answer(404, {"message": "gone"})
        return of_day(request)

    return script


@pytest.mark.parametrize("number", [1, 3])
def test_waits_are_reported_by_the_thread_that_reads(number: int) -> None:
    reported: list[Any] = []

    def pages(_: Slice) -> Iterator[list[Json]]:
        report_wait(7, RATE_LIMITED)
        yield [{"id": 1}]

    def listen(*found: Any) -> None:
        reported.append((threading.current_thread(), *found))

    progress = WholeStream().begin({})
    with listen_to_waits(listen):
        found = list(
            read_slices(progress, progress.slices(), pages, threads=number, sends_states=False)
        )
    assert found == [Page([{"id": 1}])]
    assert reported == [(threading.current_thread(), 7, RATE_LIMITED)]


def test_a_thread_that_is_ended_by_its_code_ends_the_read() -> None:
    def pages(_: Slice) -> Iterator[list[Json]]:
        return map(sys.exit, [3])

    progress = WholeStream().begin({})
    with pytest.raises(SystemFailure, match="SystemExit"):
        list(read_slices(progress, progress.slices(), pages, threads=2, sends_states=False))


def test_the_other_threads_stop_when_a_read_ends(api: RecordingApi, tmp_path: Path) -> None:
    failed = threading.Event()

    def script(request: Received) -> Any:
        if request.params["day"] == DAYS[0]:
            failed.wait(10)
            return Answer(404, {"message": "gone"})
        failed.set()
        return Answer(429, {}, {"Retry-After": "2"})

    api.script = script
    began = time.monotonic()
    code, _ = read(tmp_path, manifest(api.url, **threads(4)))
    assert code == 1
    assert time.monotonic() - began < 2
    received = len(api.requests)
    time.sleep(2.2)
    assert len(api.requests) == received


def test_the_last_state_is_sent_once(api: RecordingApi, tmp_path: Path) -> None:
    api.script = of_day
    _, messages = read(tmp_path, manifest(api.url))
    # The last interval ends with the period, and is a day longer.
    assert [state["day"] for state in states(messages)] == [*DAYS[:8], DAYS[9]]


def by_shop(url: str, shops: list[str], **more: Any) -> Json:
    """A manifest whose stream has a partition for each shop."""
    written = manifest(url, **more)
    (stream,) = written["streams"]
    place = {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "shop"}
    stream["retriever"]["partition_router"] = {
        "type": "ListPartitionRouter",
        "values": shops,
        "cursor_field": "shop",
        "request_option": place,
    }
    del stream["incremental_sync"]["step"], stream["incremental_sync"]["cursor_granularity"]
    return written


@pytest.mark.parametrize("number", [1, 2])
def test_the_other_partitions_are_read_if_one_fails(
    api: RecordingApi, tmp_path: Path, number: int
) -> None:
    def script(request: Received) -> Any:
        if request.params["shop"] in ("b", "c"):
            return Answer(404, {"message": "gone"})
        return [{**each, "shop": request.params["shop"]} for each in of_day(request)]

    api.script = script
    code, messages = read(tmp_path, by_shop(api.url, ["a", "b", "c", "d"], **threads(number)))
    assert code == 1
    assert {record["shop"] for record in records(messages)} == {"a", "d"}
    covered = {each["partition"]["shop"] for each in states(messages)[-1]["states"]}
    assert covered == {"a", "d"}
    (error,) = errors(messages)
    assert "404" in error["message"] and "1 more partitions failed" in error["message"]


def test_a_stream_ends_after_many_partitions_have_failed(api: RecordingApi, tmp_path: Path) -> None:
    api.script = lambda _: Answer(404, {"message": "gone"})
    code, _ = read(tmp_path, by_shop(api.url, [f"shop {number}" for number in range(30)]))
    assert code == 1
    assert len(api.requests) == MAX_FAILURES


def test_refused_credentials_end_a_stream_at_once(api: RecordingApi, tmp_path: Path) -> None:
    api.script = lambda _: Answer(401, {})
    code, _ = read(tmp_path, by_shop(api.url, ["a", "b", "c"]))
    assert code == 1
    assert len(api.requests) == 1


def test_a_partition_to_which_access_is_refused_does_not_end_the_stream(
    api: RecordingApi, tmp_path: Path
) -> None:
    def script(request: Received) -> Any:
        return Answer(403, {}) if request.params["shop"] == "a" else of_day(request)

    api.script = script
    code, messages = read(tmp_path, by_shop(api.url, ["a", "b"]))
    assert code == 1
    assert len(records(messages)) == len(expected())
