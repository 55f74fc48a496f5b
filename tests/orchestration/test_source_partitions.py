"""Partitions that a source lists itself: added by a sensor, each read alone with a state of its own."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

import dagster as dg
import pytest

from elt_assets.connection import load_connection
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.orchestration import schedules
from tests.orchestration.ticking import evaluate_schedule, execute, instance_of, tick
from tests.programs.scripted import script
from tests.programs.store_source import calls, open_stores, stores
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import END, START, failure_of, fetch_materializations, materialize

KEY = 'key:"shop/orders"'
ORDERS = dg.AssetKey(["shop", "orders"])
SENSOR, NAME = "shop__orders_partitions", "shop__orders"

pytestmark = pytest.mark.usefixtures("spark")


def add(project: Project, *keys: str) -> None:
    with instance_of(project) as instance:
        instance.add_dynamic_partitions(NAME, list(keys))


def list_known(project: Project) -> list[str]:
    with instance_of(project) as instance:
        return list(instance.get_dynamic_partitions(NAME))


def numbers(project: Project) -> dict[str, list[int]]:
    """Return the numbers of the stored orders by Dagster partition; each row is of the store of its name."""
    orders_by_store: dict[str, list[int]] = {}
    for row in project.rows("shop", "orders"):
        assert row["store"] == row["_elt_partition"]
        orders_by_store.setdefault(row["_elt_partition"], []).append(row["number"])
    return {store: sorted(orders) for store, orders in orders_by_store.items()}


def bookmarks(metadata: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the store and the bookmark of each partition in the state of an event."""
    state = metadata["elt/state"]["stream"]["stream_state"]
    assert set(state) == {"partitions"}
    return [
        (entry["context"]["store"], entry["replication_key_value"]) for entry in state["partitions"]
    ]


def ranges(requests: Any) -> list[tuple[str, str]]:
    """Return the first and the last partition of each run that was requested."""
    return [
        (request.partition_key, request.partition_key)
        if request.partition_key is not None
        else (request.tags[START], request.tags[END])
        for request in requests or []
    ]


# --- runs -------------------------------------------------------------------------------------------


def test_each_partition_is_read_separately_with_its_own_state(own: Project) -> None:
    stores(own)
    open_stores(own, north=3, south=2)
    add(own, "north", "south")
    for store in ("north", "south"):
        assert materialize(own, KEY, partition=store).success
    assert calls(own) == ["list", ["north", None], "list", ["south", None]]
    assert numbers(own) == {"north": [1, 2, 3], "south": [1, 2]}
    events = fetch_materializations(own, "shop", "orders")
    assert bookmarks(events["north"]) == [("north", 3)]
    assert bookmarks(events["south"]) == [("south", 2)]


def test_each_partition_resumes_from_its_own_bookmark(own: Project) -> None:
    stores(own)
    open_stores(own, north=3, south=2)
    add(own, "north", "south")
    assert materialize(own, KEY, partition="north", through="south").success
    calls(own)
    open_stores(own, north=4, south=2)
    assert materialize(own, KEY, partition="south").success
    assert materialize(own, KEY, partition="north").success
    assert calls(own) == ["list", ["south", 2], "list", ["north", 3]]
    assert numbers(own) == {"north": [1, 2, 3, 4], "south": [1, 2]}
    events = fetch_materializations(own, "shop", "orders")
    assert bookmarks(events["north"]) == [("north", 4)]
    assert (events["north"]["elt/sequence"], events["north"]["elt/records_read"]) == (2, 1)


def test_one_run_of_several_partitions_lists_them_once(own: Project) -> None:
    stores(own)
    open_stores(own, north=1, south=2, west=3)
    add(own, "north", "south", "west")
    assert materialize(own, KEY, partition="south", through="west").success
    assert calls(own) == ["list", ["south", None], ["west", None]]
    assert numbers(own) == {"south": [1, 2], "west": [1, 2, 3]}


def test_a_full_refresh_replaces_the_rows_of_its_partition(own: Project) -> None:
    stores(own, sync_mode="full_refresh", destination_sync_mode="append")
    open_stores(own, north=3, south=2)
    add(own, "north", "south")
    assert materialize(own, KEY, partition="north", through="south").success
    open_stores(own, north=1, south=1)
    assert materialize(own, KEY, partition="north").success
    assert numbers(own) == {"north": [1], "south": [1, 2]}


def test_a_partition_that_the_source_no_longer_has_fails_and_the_others_are_read(
    own: Project,
) -> None:
    stores(own)
    open_stores(own, north=1, west=1)
    add(own, "north", "south", "west")
    alone = failure_of(materialize(own, KEY, partition="south"))
    assert "does not list the partition 'south' of stream 'orders'" in alone
    assert "delete the partition in Dagster" in alone
    several = failure_of(materialize(own, KEY, partition="north", through="west"))
    assert "1 of 3 partitions failed" in several and "'south'" in several
    assert numbers(own) == {"north": [1], "west": [1]}
    assert set(fetch_materializations(own, "shop", "orders")) == {"north", "west"}


def test_a_source_without_the_command_fails_the_run_with_the_reason(own: Project) -> None:
    windowed(own, "shop", partitions={"type": "source", "name": NAME})
    add(own, "north")
    result = materialize(own, 'key:"shop/readings"', partition="north")
    assert "does not have the command `partitions`" in failure_of(result)


def test_a_given_state_applies_to_one_partition(own: Project) -> None:
    stores(own)
    open_stores(own, north=3)
    add(own, "north")
    entry = {"context": {"store": "north"}, "replication_key": "number", "replication_key_value": 2}
    state = {"partitions": [entry]}
    assert materialize(own, KEY, partition="north", state=state).success
    assert calls(own) == ["list", ["north", 2]]
    assert numbers(own) == {"north": [2, 3]}


# --- the sensor -------------------------------------------------------------------------------------


def test_new_partitions_of_the_source_are_added_and_requested_in_one_run(own: Project) -> None:
    stores(own)
    open_stores(own, north=3, south=2)
    first = tick(own, SENSOR)
    assert list_known(own) == ["north", "south"]
    (request,) = first.run_requests or []
    assert request.asset_selection == [ORDERS]
    assert ranges([request]) == [("north", "south")]
    assert execute(own, request).success
    assert numbers(own) == {"north": [1, 2, 3], "south": [1, 2]}

    early = tick(own, SENSOR, first.cursor)
    assert not early.run_requests and "the next list is due at" in (early.skip_message or "")
    open_stores(own, south=2, west=1)
    later = tick(own, SENSOR, "2026-01-01T00:00:00+00:00")
    assert ranges(later.run_requests) == [("west", "west")]
    assert list_known(own) == ["north", "south", "west"]  # one that is gone stays
    idle = tick(own, SENSOR)
    assert (idle.run_requests, idle.skip_message) == ([], "there are no new partitions")


def test_partitions_per_run_limits_the_runs_of_new_partitions(own: Project) -> None:
    stores(own, {"partitions_per_run": 2})
    open_stores(own, a=1, b=1, c=1)
    assert ranges(tick(own, SENSOR).run_requests) == [("a", "b"), ("c", "c")]


def test_partitions_may_be_added_without_a_run(own: Project) -> None:
    stores(own, {"materialize": False})
    open_stores(own, north=1)
    done = tick(own, SENSOR)
    assert (done.run_requests, done.skip_message) == ([], "added 1 partitions")
    assert list_known(own) == ["north"]


def test_a_long_list_is_added_in_parts(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MAX_PER_RUN", 3)
    monkeypatch.setattr(schedules, "MAX_ADDED", 4)
    monkeypatch.setattr(schedules, "MAX_IN_REQUEST", 2)
    stores(own)
    open_stores(own, **{f"store{number}": 1 for number in range(5)})
    first = tick(own, SENSOR)
    assert ranges(first.run_requests) == [("store0", "store2")]
    parts = [list(request.partition_keys) for request in first.dynamic_partitions_requests or []]
    assert parts == [["store0", "store1"], ["store2"]]
    second = tick(own, SENSOR, first.cursor)  # at once
    assert ranges(second.run_requests) == [("store3", "store4")]
    stores(own, {"materialize": False})
    open_stores(own, **{f"store{number}": 1 for number in range(10)})
    third = tick(own, SENSOR)
    assert third.skip_message == "added 4 partitions; 1 more at the next tick"
    assert len(list_known(own)) == 9


def test_a_hundred_thousand_partitions_are_added_within_the_limits(own: Project) -> None:
    stores(own, {"materialize": False})
    open_stores(own, **{f"store{number:06d}": 1 for number in range(100_000)})
    first = tick(own, SENSOR)
    assert first.skip_message == "added 10,000 partitions; 90,000 more at the next tick"
    assert list_known(own)[:2] == ["store000000", "store000001"]
    assert len(list_known(own)) == 10_000


def test_a_tick_is_skipped_and_repeated_if_the_source_cannot_list_partitions(own: Project) -> None:
    stores(own, {"every": "6h"})
    open_stores(own, north=1)
    own.reconfigure("shop", down=True)
    done = tick(own, SENSOR)
    assert "could not list its partitions" in (done.skip_message or "")
    assert "the list of stores cannot be reached" in (done.skip_message or "")
    due = dt.datetime.fromisoformat(done.cursor or "")
    assert due - dt.datetime.now(dt.timezone.utc) < dt.timedelta(minutes=6)
    assert list_known(own) == []


def test_a_tick_is_skipped_if_the_source_lacks_the_partitions_command(own: Project) -> None:
    program = own.root / "source.py"
    spec = '{"type":"SPEC","spec":{"connectionSpecification":{"type":"object"}}}'
    program.write_text(f"import sys\nif 'partitions' in sys.argv: sys.exit(2)\nprint({spec!r})")
    script(own, [], command=[sys.executable, str(program)], partitions={"type": "source"})
    done = tick(own, "scripted__things_partitions")
    assert "cannot list the partitions of stream 'things'" in (done.skip_message or "")


def test_a_schedule_requests_one_run_for_many_partitions(own: Project) -> None:
    stores(own, schedule="0 2 * * *")
    open_stores(own, north=1, south=1)
    add(own, "north", "south", "west")
    time = dt.datetime(2026, 1, 5, 2, tzinfo=dt.timezone.utc)
    assert ranges(evaluate_schedule(own, "shop__orders_schedule", time)) == [("north", "west")]
    stores(own, {"partitions_per_run": 2}, schedule="0 2 * * *")
    requests = evaluate_schedule(own, "shop__orders_schedule", time)
    assert ranges(requests) == [("north", "south"), ("west", "west")]


# --- loading ----------------------------------------------------------------------------------------


def test_the_partitions_are_dynamic_and_loading_starts_no_source(own: Project) -> None:
    stores(own, {"name": "stores"})
    definition = build().resolve_asset_graph().get(ORDERS).partitions_def
    assert definition == dg.DynamicPartitionsDefinition(name="stores")
    assert calls(own) == []


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"source": {"tap": ["tap-x"]}}, "stream 'orders': partitions: `source.tap` cannot list"),
        ({"read_together": True}, "partitions: not supported for streams that are read together"),
    ],
)
def test_connections_that_do_not_support_source_partitions_are_refused_at_load(
    own: Project, attributes: Any, text: str
) -> None:
    stores(own)
    own.amend("shop", **attributes)
    with pytest.raises(Exception, match=r"cannot be loaded|is not valid") as error:
        build()
    texts, cause = [], error.value.__cause__
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__
    assert text in "\n".join([str(error.value), *texts])


@pytest.mark.parametrize(
    ("partitions", "how", "text"),
    [
        ({}, {"window": {"bind": {"start": "from"}}}, "`window` is for a stream without"),
        ({"bind": "store"}, {}, "unknown key 'bind'"),
        ({"every": "soon"}, {}, "write a duration"),
        ({"partitions_per_run": 0}, {}, "partitions_per_run"),
    ],
)
def test_invalid_settings_of_source_partitions_are_refused_at_load(
    own: Project, partitions: Any, how: Any, text: str
) -> None:
    stores(own, partitions, **how)
    with pytest.raises(ConfigError) as error:
        load_connection(own.root / "defs" / "shop")
    assert text in str(error.value)
