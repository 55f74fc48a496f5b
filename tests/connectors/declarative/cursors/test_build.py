"""The cursor of a stream, and the one of two streams that a state chooses."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.declarative.cursors.count_cursor import CountCursor
from connectors.declarative.cursors.cursor import WholeStream
from connectors.declarative.cursors.datetime_cursor import DatetimeCursor
from connectors.declarative.cursors.per_partition import PartitionedCursor, RoutedStream
from connectors.declarative.manifest import components
from elt_assets.errors import ConfigError
from tests.connectors.declarative.cursors.support import (
    NOW,
    Api,
    at,
    dated,
    listed,
    made,
    nothing,
    parent,
    stream,
    substream,
)

pytestmark = pytest.mark.unit


def counted() -> Any:
    return made(components.IncrementingCountCursor, cursor_field="number")


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        (stream(), WholeStream),
        (stream(router=listed(["a"])), RoutedStream),
        (stream(sync=dated()), DatetimeCursor),
        (stream(sync=counted()), CountCursor),
        (stream(router=listed(["a"]), sync=dated()), PartitionedCursor),
        (stream(router=(listed(["a"]), listed(["b"], "c")), sync=counted()), PartitionedCursor),
    ],
)
def test_a_stream_has_the_cursor_that_its_components_describe(of: Any, kind: type) -> None:
    cursors = Api(nothing).cursors
    assert type(cursors.get(of)) is kind
    assert cursors.get(of) is cursors.get(of)


def test_components_in_python_are_refused() -> None:
    sync = made(components.CustomIncrementalSync, place="s", class_name="source_x.Sync")
    with pytest.raises(ConfigError, match=r"s is implemented in Python, by 'source_x\.Sync'"):
        Api(nothing).cursors.get(stream(sync=sync))
    migration = made(components.CustomStateMigration, place="m", class_name="source_x.Migration")
    of = stream(sync=dated(), state_migrations=(migration,))
    with pytest.raises(ConfigError, match="m is implemented in Python"):
        Api(nothing).cursors.choose(of, {})


# --- streams that a state chooses -----------------------------------------------------------------


def delegating(period: str | None = None, **fields: Any) -> Any:
    full = stream("orders", sync=dated(**fields) if fields else None)
    return made(
        components.StateDelegatingStream,
        name="orders",
        full_refresh_stream=full,
        incremental_stream=stream("orders", sync=dated()),
        api_retention_period=period,
    )


RECENT = {"updated_at": "2024-01-30T00:00:00Z"}
OLD = {"updated_at": "2024-01-05T00:00:00Z"}


@pytest.mark.parametrize(
    ("period", "state", "is_incremental"),
    [
        (None, {}, False),
        (None, OLD, True),
        (None, {"__ab_no_cursor_state_message": True}, True),
        ("P7D", RECENT, True),
        ("P7D", OLD, False),
        ("P1M", OLD, True),
        ("P7D", {"__ab_no_cursor_state_message": True}, True),
        ("P7D", {"other": 1}, False),
        ("P7D", {"updated_at": "soon"}, False),
        ("{{ config['days'] }}", OLD, True),
    ],
)
def test_a_stream_is_read_in_full_without_a_state_that_the_api_still_covers(
    period: str | None, state: dict[str, Any], is_incremental: bool
) -> None:
    of = delegating(period)
    with at(NOW):
        found, _, kept = Api(nothing).cursors.choose(of, state)
    assert found is (of.incremental_stream if is_incremental else of.full_refresh_stream)
    assert kept == (state if is_incremental else {})


def test_the_state_of_a_full_read_leads_to_an_incremental_one() -> None:
    api, of = Api(nothing), delegating("P7D")
    with at(NOW):
        first = api.read(of)
        assert first.state == {"__ab_no_cursor_state_message": True}
        again = api.read(of, first.state)
    assert again.slices[0].interval["start_time"] == "2024-01-01T00:00:00Z"
    assert again.state == {"updated_at": "2024-01-31T12:00:00Z"}


def test_the_two_streams_have_the_name_of_the_stream() -> None:
    of = delegating()
    other = made(
        components.StateDelegatingStream,
        name="other",
        full_refresh_stream=of.full_refresh_stream,
        incremental_stream=of.incremental_stream,
    )
    with pytest.raises(ConfigError, match="there and its two streams have different names"):
        Api(nothing).cursors.choose(other, {})


def test_a_parent_may_be_a_stream_that_a_state_chooses() -> None:
    requested: list[Any] = []

    def answer(name: str, each: Any, options: Any) -> Any:
        if name == "orders":
            requested.append(dict(each.interval))
            return [[{"id": 1}]]
        return []

    router = substream(parent(delegating(), "order", incremental_dependency=True))
    lines = stream("lines", router, dated())
    with at(NOW):
        state = Api(answer).read(lines).state
        Api(answer).read(lines, state)
    assert state["parent_state"] == {"orders": {"__ab_no_cursor_state_message": True}}
    assert requested == [
        {},
        {"start_time": "2024-01-01T00:00:00Z", "end_time": "2024-01-31T12:00:00Z"},
    ]


def test_a_parent_whose_full_read_was_cut_is_read_in_full_again() -> None:
    def answer(name: str, each: Any, options: Any) -> Any:
        return [[{"id": 1}], [{"id": 2}]] if name == "orders" else []

    router = substream(parent(delegating(), "order", incremental_dependency=True))
    with at(NOW):
        progress = Api(answer).begin(stream("lines", router, dated()))
        progress.close(next(progress.slices()))
    assert progress.state()["parent_state"] == {"orders": {}}


def test_the_age_of_a_state_of_partitions_is_that_of_the_state_for_all() -> None:
    cursor = Api(nothing).cursors.get(stream(router=listed(["a"]), sync=dated()))
    assert cursor.moment_of({"states": []}) is None
    found = cursor.moment_of({"state": RECENT})
    assert found is not None and found.day == 30
