"""Which changes of a log a table has already, and in which order its rows are."""

from __future__ import annotations

import numpy as np
import pytest

from connectors.postgres.log.slot import Server, format_lsn, parse_lsn
from connectors.postgres.log.snapshots import TableSnapshot, number_changes
from connectors.postgres.log.state import (
    SlotState,
    TableState,
    describe_log,
    drop_behind,
    load_state,
    require_same_log,
)
from connectors.sdk.groups import GroupState
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId

TABLE = StreamId("a", "public")


@pytest.mark.parametrize(
    ("text", "ended", "running"),
    [
        ("100:105:101,103", [3, 99, 100, 102, 104], [101, 103, 105, 106, 2**31]),
        (f"{2**32 - 2}:{2**32 + 3}:{2**32 - 1},{2**32 + 1}", [2**32 - 2, 0, 2], [2**32 - 1, 1, 3]),
    ],
)
def test_a_snapshot_shows_transactions_that_had_ended(
    text: str, ended: list[int], running: list[int]
) -> None:
    snapshot = TableSnapshot.parse(text, 0)
    assert all(map(snapshot.shows, ended))
    assert not any(map(snapshot.shows, running))
    assert TableSnapshot.parse(snapshot.to_json()["transactions"], 0) == snapshot


def test_changes_of_an_interrupted_snapshot_have_their_place_between_its_rows() -> None:
    first, second = TableSnapshot.parse("10:20:15", 1000), TableSnapshot.parse("22:30:25", 1002)
    transactions = np.array([12, 15, 21, 25, 31])
    lsns = np.array([900, 950, 980, 990, 2000])
    numbers = number_changes((first, second), transactions, lsns)
    # Shown by both; by the second only, so not before the first one's rows; by none, so after all rows.
    assert numbers.tolist() == [-1, 1001, 1001, 1003, 2000]


def test_snapshots_are_forgotten_when_the_log_is_after_them() -> None:
    state = TableState(10, is_complete=True).add_snapshot("5:5:", 100).add_snapshot("7:7:", 100)
    assert [part.number for part in state.snapshots] == [100, 102]
    assert state.move(101, "").snapshots == state.snapshots
    assert state.move(102, "") == TableState(102, is_complete=True)
    assert TableState.parse(state.to_json()) == state


def test_positions_are_written_as_the_server_does() -> None:
    assert format_lsn(parse_lsn("16/B374D848")) == "16/B374D848"


def log_state(lsn: int) -> SlotState:
    return SlotState(
        describe_log("s", Server(0, 1, "7")), {TABLE: TableState(lsn, is_complete=True)}
    )


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (Server(500, 1, "8"), "the state is of the server 7"),
        (Server(500, 2, "7"), "restored from a backup, or failed over"),
        (Server(99, 1, "7"), "restored from a backup, or failed over"),
    ],
)
def test_a_log_that_does_not_go_on_is_refused(server: Server, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        require_same_log(log_state(100), server)


def test_a_table_that_is_behind_the_slot_is_dropped_with_its_error() -> None:
    log = log_state(100)
    assert drop_behind(log, 100) == {} and TABLE in log.tables
    (error,) = drop_behind(log, 101).values()
    assert "something else reads the slot" in str(error) and not log.tables


def test_a_log_that_goes_on_is_read() -> None:
    require_same_log(log_state(100), Server(100, 1, ""))
    loaded = load_state(log_state(100).to_state(), "s", lambda _: True)
    assert loaded == log_state(100)


@pytest.mark.parametrize(
    "state",
    [
        GroupState({}, {TABLE: {"form": 1, "xmin": 5, "complete": True}}),
        GroupState({"form": 2, "slot": "s", "timeline": 1}),
        GroupState({"form": 1, "slot": "other", "timeline": 1}),
        GroupState({"form": 1, "slot": "s", "timeline": 1}, {TABLE: {"complete": True}}),
    ],
)
def test_states_of_another_kind_are_refused(state: GroupState) -> None:
    with pytest.raises(ConfigError):
        load_state(state, "s", lambda _: True)


def test_a_snapshot_of_a_standby_shows_the_commits_before_its_place() -> None:
    state = TableState(10).add_snapshot("5:9:", 99, replayed=100)
    (snapshot,) = TableState.parse(state.to_json()).snapshots
    assert snapshot == state.snapshots[0] and snapshot.replayed == 100
    # Transaction 7 was open, which the standby does not tell.
    transactions, lsns = np.array([6, 7, 12]), np.array([90, 100, 140])
    assert number_changes([snapshot], transactions, lsns).tolist() == [-1, 100, 140]
