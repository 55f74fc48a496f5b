"""The shop, read through its command line."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.faker import Faker
from tests.connectors.support import call, catalog, errors
from tests.support.examples import examples

ROOT = Path(__file__).parents[2]
NAMES = ("users", "products", "orders")
LIFE = {
    "placed": {"placed", "paid"},
    "paid": {"shipped", "cancelled"},
    "shipped": {"delivered"},
}

Json = dict[str, Any]


class Reader:
    """Calls the connector in a directory of its own."""

    def __init__(self, folder: Path):
        self.folder = folder

    def file(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def call(self, command: str, config: Json, **files: Any) -> list[Json]:
        code, messages = call(Faker(), self.folder, command, config=config, **files)
        assert code == 0
        return messages

    def read(self, config: Json, states: dict[str, Json], mode: str = "incremental") -> list[Json]:
        return self.call(
            "read", config, catalog=catalog(*NAMES, mode=mode), state=list(states.values())
        )


def records(messages: list[Json], stream: str) -> list[Json]:
    found = (m["record"] for m in messages if m["type"] == "RECORD")
    return [record["data"] for record in found if record["stream"] == stream]


def last_states(messages: list[Json]) -> dict[str, Json]:
    states = [m["state"] for m in messages if m["type"] == "STATE"]
    return {state["stream"]["stream_descriptor"]["name"]: state for state in states}


def bookmark(state: Json) -> Any:
    return state["stream"]["stream_state"]["replication_key_value"]


@pytest.fixture
def shop(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def days(shop: Reader, config: Json, count: int) -> list[list[Json]]:
    syncs: list[list[Json]] = []
    states: dict[str, Json] = {}
    for _ in range(count):
        syncs.append(shop.read(config, states))
        states = last_states(syncs[-1])
    return syncs


def test_the_same_seed_gives_the_same_shop(shop: Reader) -> None:
    first, again = (days(shop, {"count": 50}, 3) for _ in range(2))
    other = days(shop, {"count": 50, "seed": 7}, 3)
    for day in range(3):
        for name in NAMES:
            rows = records(first[day], name)
            assert rows == records(again[day], name)
            assert rows != records(other[day], name)


def test_the_first_day_has_the_initial_rows(shop: Reader) -> None:
    messages = shop.read({"count": 400}, {})
    assert [len(records(messages, name)) for name in NAMES] == [400, 20, 800]
    assert {bookmark(state) for state in last_states(messages).values()} == {
        "2026-01-02T00:00:00.000000Z"
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_day_adds_new_and_changed_rows_with_later_times(shop: Reader, name: str) -> None:
    syncs = days(shop, {"count": 1000}, 6)
    initial = len(records(syncs[0], name))
    known: set[int] = set()
    newest = "2026-01-01T00:00:00.000000Z"
    for day, messages in enumerate(syncs):
        rows = records(messages, name)
        times = [newest, *(row["updated_at"] for row in rows)]
        assert all(earlier < later for earlier, later in pairwise(times))
        newest = times[-1]
        new = {row["id"] for row in rows} - known
        known |= new
        if day:
            assert len(new) == pytest.approx(initial * 0.05, abs=1)
            assert len(rows) - len(new) == pytest.approx(initial * 0.1, rel=0.25)
    assert known == set(range(1, len(known) + 1))


def test_orders_advance_in_status_and_refer_to_rows_of_the_shop(shop: Reader) -> None:
    syncs = days(shop, {"count": 300}, 9)
    users: set[int] = set()
    status: dict[int, str] = {}
    fixed: dict[int, Json] = {}
    for messages in syncs:
        users |= {user["id"] for user in records(messages, "users")}
        for order in records(messages, "orders"):
            key = order["id"]
            if key in status:
                assert order["status"] in LIFE[status[key]]
            status[key] = order["status"]
            constant = {k: v for k, v in order.items() if k not in ("status", "updated_at")}
            assert fixed.setdefault(key, constant) == constant
            assert order["ordered_at"] <= order["updated_at"]
            assert order["user_id"] in users
    assert set(status.values()) == {"placed", "paid", "shipped", "delivered", "cancelled"}


@pytest.mark.spec("protocol.80")
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(count=st.integers(1, 60), size=st.integers(1, 40), day=st.integers(0, 3), data=st.data())
def test_a_read_resumes_exactly_from_any_checkpoint(
    shop: Reader, count: int, size: int, day: int, data: st.DataObject
) -> None:
    config = {"count": count, "records_per_state": size}
    before: dict[str, Json] = last_states(days(shop, config, day)[-1]) if day else {}
    whole = shop.read(config, before)
    checkpoints = [i for i, message in enumerate(whole) if message["type"] == "STATE"]
    cut = data.draw(st.sampled_from(checkpoints))
    state = whole[cut]["state"]
    name = state["stream"]["stream_descriptor"]["name"]
    is_over = bookmark(state) == f"2026-01-{day + 2:02}T00:00:00.000000Z"
    rest = [] if is_over else records(shop.read(config, {**before, name: state}), name)
    assert records(whole[:cut], name) + rest == records(whole, name)


@pytest.mark.spec("protocol.150")
def test_counts_in_states_and_estimates_add_up(shop: Reader) -> None:
    for messages in days(shop, {"count": 333, "records_per_state": 50}, 2):
        for name in NAMES:
            states = [m["state"] for m in messages if m["type"] == "STATE"]
            mine = [s for s in states if s["stream"]["stream_descriptor"]["name"] == name]
            counts = [s["sourceStats"]["recordCount"] for s in mine]
            estimates = [
                m["trace"]["estimate"] for m in messages if "estimate" in m.get("trace", {})
            ]
            [rows] = [e["row_estimate"] for e in estimates if e["name"] == name]
            assert all(isinstance(count, float) for count in counts)
            assert sum(counts) == len(records(messages, name)) == rows


def test_a_full_refresh_reads_the_first_day(shop: Reader) -> None:
    first, second = days(shop, {"count": 20}, 2)
    refreshed = shop.read({"count": 20}, {}, mode="full_refresh")
    complete = shop.read({"count": 20}, last_states(second), mode="full_refresh")
    for name in NAMES:
        assert records(refreshed, name) == records(first, name)
        assert records(complete, name) == []


def test_a_full_refresh_resumes_from_its_state(shop: Reader) -> None:
    config = {"count": 20, "records_per_state": 5}
    whole = shop.read(config, {}, mode="full_refresh")
    states = [m["state"] for m in whole if m["type"] == "STATE"]
    early = {state["stream"]["stream_descriptor"]["name"]: state for state in reversed(states)}
    rest = shop.read(config, early, mode="full_refresh")
    for name in NAMES:
        assert records(whole, name)[5:] == records(rest, name) or len(records(whole, name)) < 5


def test_the_start_is_compared_as_an_instant(shop: Reader) -> None:
    utc = shop.read({"count": 5, "start": "2026-03-01T00:00:00Z"}, {})
    east = shop.read({"count": 5, "start": "2026-03-01T02:00:00+02:00"}, last_states(utc))
    assert records(east, "users")[-1]["updated_at"] == "2026-03-03T00:00:00.000000Z"


def test_a_state_of_the_former_version_with_a_clock_is_accepted(shop: Reader) -> None:
    first, second = days(shop, {"count": 20}, 2)
    clock = "2026-01-02T00:00:00.000000Z"
    states = last_states(first)
    for state in states.values():
        state["stream"]["stream_state"] = {"updated_at": clock, "clock": clock}
    again = shop.read({"count": 20}, states)
    for name in NAMES:
        assert records(again, name) == records(second, name)


def every_stream(shop: Reader, count: int) -> list[list[Json]]:
    """Three days of all streams."""
    config = {"count": 40, "all_streams": True, "records_per_state": 5}
    [message] = shop.call("discover", config)
    mode = {"destination_sync_mode": "append"}
    streams = [
        {"stream": stream, "sync_mode": stream["supported_sync_modes"][-1], **mode}
        for stream in message["catalog"]["streams"]
    ]
    syncs: list[list[Json]] = []
    states: list[Json] = []
    for _ in range(count):
        syncs.append(shop.call("read", config, catalog={"streams": streams}, state=states))
        states = list(last_states(syncs[-1]).values())
    return syncs


def test_deletes_have_a_marker_and_no_row_follows_its_delete(shop: Reader) -> None:
    deleted: set[int] = set()
    for messages in every_stream(shop, 3):
        for row in records(messages, "subscriptions"):
            assert row["id"] not in deleted
            if row["_ab_cdc_deleted_at"]:
                deleted.add(row["id"])
    assert deleted


def test_late_records_are_sent_after_newer_versions(shop: Reader) -> None:
    for day, messages in enumerate(every_stream(shop, 3)):
        times = [row["updated_at"] for row in records(messages, "shipments")]
        begin = f"2026-01-{day + 1:02}T00:00:00.000000Z"
        late = [time <= begin for time in times]
        assert late == sorted(late)
        assert any(late) == (day > 0)


def test_each_table_has_the_data_of_the_feature_that_it_demonstrates(shop: Reader) -> None:
    first, second, _ = every_stream(shop, 3)
    assert all(len(row) == 12 for row in records(first, "measurements") if len(row) > 11)
    assert {row["region"] for row in records(second, "visits")} == {
        "east",
        "north",
        "south",
        "west",
    }
    assert {row["store_id"] for row in records(second, "inventory")} == {1, 2}
    assert records(first, "profiles")[0]["contact"]["address"].keys() == {"city", "position"}
    [*_, last] = [m["state"] for m in second if m["type"] == "STATE"]
    contexts = [part["context"] for part in last["stream"]["stream_state"]["partitions"]]
    assert contexts == [{"store_id": 1}, {"store_id": 2}]
    assert not [m for m in first if m["type"] == "LOG"]  # every record fits its schema


@pytest.mark.parametrize(
    "blob",
    [
        {"replication_key": "updated_at", "replication_key_value": "2025-12-31T00:00:00Z"},
        {"clock": "2026-01-02T00:00:00.000000Z"},
        {"updated_at": 7, "clock": "2026-01-02T00:00:00.000000Z"},
        {"updated_at": "2026-01-02T00:00:00Z", "clock": "2026-01-02T05:00:00Z"},
        {"updated_at": "2026-01-03T00:00:00Z", "clock": "2026-01-02T00:00:00Z"},
    ],
)
def test_a_state_of_another_shop_is_refused(shop: Reader, blob: Json) -> None:
    state = {
        "type": "STREAM",
        "stream": {"stream_descriptor": {"name": "users"}, "stream_state": blob},
    }
    files = {"config": {}, "catalog": catalog(*NAMES, mode="incremental"), "state": [state]}
    code, messages = call(Faker(), shop.folder, "read", **files)
    assert code == 1
    [error] = errors(messages)
    assert error["failure_type"] == "config_error"
    assert error["stream_descriptor"] == {"name": "users"}
    assert not records(messages, "users")
    assert records(messages, "orders")


@pytest.mark.spec("protocol.6")
def test_discovered_schemas_match_the_records(shop: Reader) -> None:
    [message] = shop.call("discover", {})
    messages = shop.read({"count": 10}, {})
    for stream in message["catalog"]["streams"]:
        assert stream["source_defined_primary_key"] == [["id"]]
        assert stream["default_cursor_field"] == ["updated_at"]
        assert stream["source_defined_cursor"] is stream["is_resumable"] is True
        for row in records(messages, stream["name"]):
            assert row.keys() == stream["json_schema"]["properties"].keys()
            moment = datetime.fromisoformat(row["updated_at"].replace("Z", "+00:00"))
            assert moment.utcoffset() == timedelta()


def test_an_impossible_date_fails_the_check(shop: Reader) -> None:
    [message] = shop.call("check", {"start": "2026-02-30T00:00:00Z"})
    assert message["connectionStatus"]["status"] == "FAILED"
    assert "config.start: day is out of range" in message["connectionStatus"]["message"]


def start(*argv: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "error", "-m", "connectors.faker", *argv]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.spec("airbyte.29")
@pytest.mark.process
def test_the_shop_runs_as_a_program(shop: Reader) -> None:
    config = shop.file("config", {"count": 100})
    out, err = start(
        "read",
        "--config",
        config,
        "--catalog",
        shop.file("catalog", catalog(*NAMES, mode="incremental")),
    ).communicate(timeout=60)
    assert err == b""
    assert records([json.loads(line) for line in out.splitlines()], "users")


@pytest.mark.process
@pytest.mark.parametrize("size", [1, 10_000])  # small writes and large ones
def test_a_closed_output_pipe_causes_no_traceback(shop: Reader, size: int) -> None:
    config = shop.file("config", {"count": 100_000, "records_per_state": size})
    with start(
        "read",
        "--config",
        config,
        "--catalog",
        shop.file("catalog", catalog(*NAMES, mode="incremental")),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""
