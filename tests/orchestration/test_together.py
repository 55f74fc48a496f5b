"""Streams whose source keeps one state for all of them: `read_together: true`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from elt_assets import paths
from elt_assets.connection import place_in
from elt_assets.errors import ConfigError
from elt_assets.orchestration import states
from elt_assets.orchestration.build import build_connection_assets
from elt_assets.orchestration.component import ConnectionComponent
from tests.programs.shared_source import append, connection, given
from tests.support.project import Project
from tests.support.runs import (
    evaluations,
    failure_of,
    fetch_materializations,
    materialize,
    read_log,
)

pytestmark = pytest.mark.usefixtures("spark")

USERS, ORDERS = 'key:"shop/users"', 'key:"shop/orders"'
BOTH = f"{USERS} or {ORDERS}"


def ids(project: Project, stream: str) -> list[int]:
    return sorted(row["id"] for row in project.rows("shop", stream))


def position(project: Project, stream: str) -> Any:
    state = json.loads(project.table("shop", stream).history(1)[0].get("elt.state") or "null")
    if state is None or "data" in state:
        return state and state["data"]
    return state["global"]["shared_state"]["position"]


def starts(log: Path) -> list[Any]:
    """The position that each read began at, None at the beginning."""
    states = [read["state"] for read in given(log)]
    return [state and state[0]["global"]["shared_state"]["position"] for state in states]


def test_one_process_reads_all_selected_streams(own: Project) -> None:
    log = connection(own)
    append(log, ("users", 1), ("orders", 10), ("users", 2))
    result = materialize(own, BOTH)
    assert result.success
    assert [entry["streams"] for entry in given(log)] == [["users", "orders"]]
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10])
    for stream, rows in {"users": 2, "orders": 1}.items():
        metadata = fetch_materializations(own, "shop", stream)[None]
        assert metadata["elt/records_committed"] == rows
        assert metadata["elt/state"]["global"]["shared_state"] == {"position": 3}
        assert position(own, stream) == 3
    assert all(entry.passed for entry in evaluations(result).values())

    append(log, ("orders", 11))
    assert materialize(own, BOTH).success
    assert starts(log) == [None, 3]
    assert [position(own, stream) for stream in ("users", "orders")] == [4, 4]


def test_a_failed_stream_stops_the_shared_state_and_keeps_the_rows_of_others(own: Project) -> None:
    log = connection(own, config={"fail": "orders", "every": 1})
    append(log, ("users", 1), ("orders", 10), ("users", 2))
    result = materialize(own, BOTH)
    assert "no such table" in failure_of(result)
    assert ids(own, "users") == [1, 2]
    assert set(fetch_materializations(own, "shop", "users")) == {None}
    assert fetch_materializations(own, "shop", "orders") == {}
    # What came before the failure is everybody's; nothing after it.
    assert position(own, "users") in (None, 1)

    own.reconfigure("shop", fail=None)
    assert materialize(own, BOTH).success
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10])
    assert [position(own, stream) for stream in ("users", "orders")] == [3, 3]


def test_append_repeats_rows_that_follow_the_last_committed_state(own: Project) -> None:
    log = connection(own, config={"fail": "orders", "every": 1}, destination_sync_mode="append")
    append(log, ("users", 1), ("orders", 10), ("users", 2))
    assert not materialize(own, BOTH).success
    assert ids(own, "users") == [1, 2]

    own.reconfigure("shop", fail=None)
    assert materialize(own, BOTH).success
    assert ids(own, "orders") == [10]
    assert set(ids(own, "users")) == {1, 2}
    assert ids(own, "users").count(2) == 2


@pytest.mark.parametrize("is_retried", [True, False])
def test_a_complete_full_refresh_is_not_repeated_by_a_retry(own: Project, is_retried: bool) -> None:
    """A retry of the step, or a re-execution from failure, reads the other streams; a new run reads all."""
    log = connection(
        own,
        config={"fail": "orders", "recovers": True, "kind": "STREAM"},
        sync_mode="full_refresh",
        destination_sync_mode="append",
    )
    own.amend("shop", retry={"attempts": int(is_retried), "delay": "0.1s"})
    append(log, ("users", 1), ("orders", 10), ("users", 2))
    result = materialize(own, BOTH)
    assert result.success is is_retried
    if not is_retried:
        result = materialize(own, BOTH, parent=result.run_id)
        assert result.success
    assert [call["streams"] for call in given(log)] == [["users", "orders"], ["orders"]]
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10])
    assert materialize(own, BOTH).success
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 1, 2, 2], [10, 10])


def test_a_stream_that_was_read_alone_does_not_advance_the_others(own: Project) -> None:
    log = connection(own)
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    append(log, ("orders", 11), ("users", 2))
    assert materialize(own, USERS).success
    assert [position(own, stream) for stream in ("users", "orders")] == [4, 2]
    append(log, ("orders", 12))
    assert materialize(own, BOTH).success
    assert starts(log) == [None, 2, 2]  # the newest that both have
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10, 11, 12])


@pytest.mark.spec("protocol.119")
def test_only_the_stream_of_a_removed_table_is_read_from_the_beginning(own: Project) -> None:
    log = connection(own)
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    table = own.home / "lake" / "shop" / "orders"
    table.rename(own.root / "elsewhere")
    append(log, ("users", 2))
    assert materialize(own, BOTH).success
    (state,) = given(log)[-1]["state"]
    assert [entry["stream_descriptor"]["name"] for entry in state["global"]["stream_states"]] == [
        "users"
    ]
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10])


@pytest.mark.spec("protocol.116")
@pytest.mark.parametrize("kind", ["LEGACY", "OPAQUE"])
def test_a_legacy_state_applies_to_all_streams(own: Project, kind: str) -> None:
    log = connection(own, config={"kind": kind})
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    append(log, ("users", 2))
    assert materialize(own, BOTH).success
    expected = {"users": 2, "orders": 2} if kind == "LEGACY" else {"position": 2}
    assert given(log)[-1]["state"] == expected  # the blob itself, to the letter
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10])

    (own.home / "lake" / "shop" / "orders").rename(own.root / "elsewhere")
    result = materialize(own, BOTH)
    assert result.success
    if kind == "LEGACY":
        assert given(log)[-1]["state"] == {"users": 3}
    else:
        assert given(log)[-1]["state"] is None
        assert "has no entries for single streams" in read_log(own, result)
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10])


@pytest.mark.spec("protocol.117")
@pytest.mark.parametrize("together", [True, False])
def test_a_change_from_legacy_to_stream_states_repeats_no_records(
    own: Project, together: bool
) -> None:
    log = connection(own, config={"kind": "LEGACY"}, destination_sync_mode="append")
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    own.amend("shop", read_together=together)
    own.reconfigure("shop", kind="STREAM")
    append(log, ("users", 2))
    assert materialize(own, USERS).success
    assert materialize(own, BOTH).success
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10])
    for stream in ("users", "orders"):
        state = fetch_materializations(own, "shop", stream)[None]["elt/state"]
        assert state["stream"]["stream_state"] == {"position": 3}


@pytest.mark.spec("protocol.114")
def test_a_stream_keeps_its_own_state_beside_a_shared_one(own: Project) -> None:
    log = connection(own, destination_sync_mode="append", config={"kind": "MIXED", "every": 1})
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    append(log, ("users", 2), ("orders", 11))
    assert materialize(own, USERS).success
    append(log, ("orders", 12))
    assert materialize(own, BOTH).success
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10, 11, 12])
    shared, alone = given(log)[-1]["state"]
    assert shared["global"]["shared_state"] == {"position": 4}
    assert alone["stream"]["stream_state"] == {"position": 2}


@pytest.mark.spec("protocol.119")
@pytest.mark.parametrize("policy", ["append", "append_dedup"])
def test_a_refresh_of_one_stream_lets_the_others_continue(own: Project, policy: str) -> None:
    log = connection(own, destination_sync_mode=policy)
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    append(log, ("users", 2), ("orders", 11))
    assert materialize(own, USERS, op="shop", refresh="truncate").success
    append(log, ("users", 3), ("orders", 12))
    assert materialize(own, BOTH).success
    assert starts(log) == [None, None, 2]
    assert ids(own, "orders") == [10, 11, 12]
    # A refreshed table has everything before the refresh, so only what came since is read again.
    assert ids(own, "users") == ([1, 2, 2, 3] if policy == "append" else [1, 2, 3])


def test_a_failed_refresh_of_one_stream_starts_again(own: Project) -> None:
    log = connection(own, destination_sync_mode="append", config={"every": 1})
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    append(log, ("users", 2))
    own.reconfigure("shop", dies_at=3)
    assert not materialize(own, USERS, op="shop", refresh="truncate").success
    assert ids(own, "users") == [1]
    own.reconfigure("shop", dies_at=None)
    append(log, ("orders", 11))
    result = materialize(own, BOTH)
    assert result.success
    assert "have no state in common" in read_log(own, result)
    (state,) = given(log)[-1]["state"]
    assert [entry["stream_descriptor"]["name"] for entry in state["global"]["stream_states"]] == [
        "orders"
    ]
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10, 11])


def test_an_opaque_state_beside_states_of_single_streams_is_refused(own: Project) -> None:
    log = connection(own, config={"kind": "OPAQUE"}, destination_sync_mode="append")
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    own.reconfigure("shop", kind="STREAM")
    append(log, ("users", 2))
    assert materialize(own, USERS).success
    refused = failure_of(materialize(own, BOTH))
    assert "'orders' is a LEGACY state without entries" in refused
    assert len(given(log)) == 2
    assert "reset these streams with `elt state reset`" in refused
    assets = ConnectionComponent.load_at(place_in(own.root / "defs" / "shop")).stream_assets()
    (orders,) = [asset for asset in assets if asset.stream.id.name == "orders"]
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        states.reset(orders, paths.lake(), instance)
    assert materialize(own, BOTH).success
    assert (ids(own, "users"), ids(own, "orders")) == ([1, 2], [10, 10])


def test_a_state_may_be_given_for_all_streams(own: Project) -> None:
    log = connection(own)
    append(log, ("users", 1), ("orders", 10), ("users", 2))
    names = ("users", "orders")
    states = [{"stream_descriptor": {"name": name}, "stream_state": {}} for name in names]
    shared = {"shared_state": {"position": 2}, "stream_states": states}
    assert materialize(own, BOTH, op="shop", state={"type": "GLOBAL", "global": shared}).success
    assert (ids(own, "users"), starts(log)) == ([2], [2])


def test_a_shared_state_without_read_together_fails_with_guidance(own: Project) -> None:
    log = connection(own, together=False)
    append(log, ("users", 1))
    assert "read_together: true" in failure_of(materialize(own, USERS))
    assert not DeltaTable.is_deltatable(str(own.home / "lake" / "shop" / "users"))


def test_partitions_are_refused_at_load_for_streams_that_are_read_together(own: Project) -> None:
    connection(own, partitions={"type": "daily", "start": "2026-01-01", "bind": {"start": "from"}})
    with pytest.raises(ConfigError, match=r"users.*partitions.*read together"):
        build_connection_assets(own.root / "defs" / "shop")


def test_a_stream_without_messages_gets_the_shared_state(own: Project) -> None:
    log = connection(own, config={"mute": True}, destination_sync_mode="append")
    append(log, ("users", 1), ("orders", 10))
    assert materialize(own, BOTH).success
    for number in (2, 3):
        append(log, ("users", number))
        assert materialize(own, BOTH).success
    assert starts(log) == [None, 2, 3]
    assert ids(own, "users") == [1, 2, 3]


@pytest.mark.spec("protocol.120")
@pytest.mark.parametrize("stream", ["users", "orders"])
def test_rewinding_one_stream_rewinds_the_others(own: Project, stream: str) -> None:
    log = connection(own)
    for number in (1, 2):
        append(log, ("users", number), ("orders", number))
        assert materialize(own, BOTH).success
    folder = own.root / "defs" / "shop"
    assets = ConnectionComponent.load_at(place_in(folder)).stream_assets()
    (asset,) = [commit for commit in assets if commit.stream.id.name == stream]
    first = min(
        commit.metadata.sequence
        for commit in states.history(asset, paths.lake())
        if commit.metadata.state is not None
        and '"position":2' in commit.metadata.state.replace(" ", "")
    )
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        states.rewind(asset, paths.lake(), first, instance)
        with pytest.raises(ConfigError, match="shared by all streams"):
            states.set_state(asset, paths.lake(), {"position": 1}, instance)
    assert materialize(own, BOTH).success
    assert starts(log) == [None, 2, 2]
