"""The states of partitions: in the form of the Airbyte CDK, resumable everywhere, and many of them."""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.declarative.cursors.cursor import Page, Progress, read_slice
from connectors.declarative.cursors.datetime_cursor import DatetimeProgress
from connectors.declarative.cursors.per_partition import (
    SMALL,
    PartitionedCursor,
    PartitionedProgress,
)
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import clock, components
from connectors.sdk.state.schedule import MANY_PARTITIONS
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.declarative.cursors.support import (
    NOW,
    Api,
    Read,
    at,
    dated,
    listed,
    made,
    nothing,
    option,
    parent,
    stream,
    substream,
)
from tests.support.examples import examples

pytestmark = pytest.mark.unit

START, END = "2024-01-01T00:00:00Z", "2024-01-31T12:00:00Z"
SINCE = {"start_time_option": option("since")}


def entry(shop: Any, value: str, **values: Any) -> dict[str, Any]:
    return {"partition": {"shop": shop, **values}, "cursor": {"updated_at": value}}


def orders(router: Any = None, **fields: Any) -> Any:
    router = router or listed(["a", "b"])
    return stream(router=router, sync=dated(**{**SINCE, **fields}))


def read(
    of: Any, state: dict[str, Any] | None = None, answer: Any = nothing, **kwargs: Any
) -> tuple[list[Any], Read]:
    """Read a stream, and return where its partitions began, and the read."""
    api = Api(answer)
    with at(NOW):
        done = api.read(of, state, **kwargs)
    return [(each.get("shop"), each.get("since")) for _, each in api.requests], done


def began(state: dict[str, Any], **fields: Any) -> list[Any]:
    """Return the times at which the partitions of a list begin after a state."""
    api = Api(nothing)
    with at(NOW):
        api.read(orders(**fields), state)
    return [each["since"] for _, each in api.requests]


# --- the form of the state ------------------------------------------------------------------------


def test_a_state_is_sent_after_each_interval_of_each_partition() -> None:
    _, done = read(orders(step="P20D", cursor_granularity="PT1S"))
    first = "2024-01-20T23:59:59Z"
    assert [state["states"] for _, state in done.states] == [
        [entry("a", first)],
        [entry("a", END)],
        [entry("a", END), entry("b", first)],
        [entry("a", END), entry("b", END)],
        [entry("a", END), entry("b", END)],
    ]
    assert all("state" not in state for _, state in done.states[:-1])


def test_a_new_partition_is_read_from_the_start() -> None:
    """The CDK begins it at the state for all partitions, and so leaves out what it had before."""
    state = {
        "use_global_cursor": False,
        "states": [entry("a", "2024-01-05T00:00:00Z")],
        "state": {"updated_at": "2024-01-05T00:00:00Z"},
        "lookback_window": 1,
    }
    assert began(state) == ["2024-01-05T00:00:00Z", START]


def test_the_states_of_partitions_that_are_gone_are_kept() -> None:
    _, done = read(orders(), {"states": [entry("z", "2024-01-05T00:00:00Z")]})
    assert done.state["states"][0] == entry("z", "2024-01-05T00:00:00Z")
    assert len(done.state["states"]) == 3


@pytest.mark.parametrize(
    "state",
    [
        {"updated_at": "2024-01-10T00:00:00Z"},
        {"state": {"updated_at": "2024-01-10T00:00:00Z"}},
        {"use_global_cursor": True, "state": {"updated_at": "2024-01-10T00:00:00Z"}},
        {"use_global_cursor": True, "states": [], "state": {"updated_at": "2024-01-10T00:00:00Z"}},
        {
            "state_type": "date-range",
            "slices": [{"start": START, "end": "2024-01-10T00:00:00Z"}],
        },
    ],
)
def test_one_state_for_all_partitions_is_taken_over(state: dict[str, Any]) -> None:
    assert began(state) == ["2024-01-10T00:00:00Z"] * 2


def test_partitions_begin_before_the_state_for_all_by_the_time_of_the_read_that_left_it() -> None:
    state = {
        "use_global_cursor": True,
        "state": {"updated_at": "2024-01-10T00:01:00Z"},
        "lookback_window": 60,
    }
    assert began(state) == ["2024-01-10T00:00:00Z"] * 2
    assert began(state, lookback_window="P1D") == ["2024-01-09T00:00:00Z"] * 2


def test_a_read_that_is_cut_while_it_takes_over_one_state_goes_on_with_it() -> None:
    state = {"updated_at": "2024-01-10T00:00:00Z"}
    _, done = read(orders(), state)
    half = done.states[0][1]
    assert half["states"] == [entry("a", END)]
    assert half["use_global_cursor"] is True
    assert began(half) == [END, "2024-01-10T00:00:00Z"]
    assert done.state["use_global_cursor"] is False


def test_the_first_partition_that_is_cut_leaves_no_state_for_the_others() -> None:
    _, done = read(orders())
    half = done.states[0][1]
    assert half == {"use_global_cursor": False, "states": [entry("a", END)]}
    assert began(half) == [END, START]


def test_partitions_without_the_parents_partition_are_taken_over() -> None:
    """The keys may also be texts, as those of `LegacyToPerPartitionStateMigration` are."""
    router = substream(parent(stream("shops"), request_option=option("shop")))
    state = {"states": [entry("1", "2024-01-05T00:00:00Z"), entry(2, "2024-01-06T00:00:00Z")]}
    shops = [{"id": 1}, {"id": 2}, {"id": 3}]
    found, done = read(orders(router), state, lambda name, *_: [shops] if name == "shops" else [])
    assert found[1:] == [(1, "2024-01-05T00:00:00Z"), (2, "2024-01-06T00:00:00Z"), (3, START)]
    assert [each["partition"] for each in done.state["states"]] == [
        {"shop": shop, "parent_slice": {}} for shop in (1, 2, 3)
    ]


def test_the_migration_of_states_by_key_is_applied() -> None:
    shops = stream("shops")
    of = stream(
        router=substream(parent(shops, request_option=option("shop"))),
        sync=dated(**SINCE),
        state_migrations=(made(components.LegacyToPerPartitionStateMigration),),
    )
    state = {
        "1": {"updated_at": "2024-01-05T00:00:00Z"},
        "9": {"updated_at": "2024-01-06T00:00:00Z"},
    }
    found, done = read(of, state, lambda name, *_: [[{"id": 1}]] if name == "shops" else [])
    assert found[1:] == [(1, "2024-01-05T00:00:00Z")]
    assert entry("9", "2024-01-06T00:00:00Z") in done.state["states"]


@pytest.mark.parametrize(
    "state", [{"1": {"other": 1}}, {"1": 5}, {"1": {"updated_at": START, "b": 1}}]
)
def test_a_state_in_another_form_is_not_migrated(state: dict[str, Any]) -> None:
    of = stream(
        router=substream(parent(stream("shops"))),
        sync=dated(),
        state_migrations=(made(components.LegacyToPerPartitionStateMigration),),
    )
    _, found = Api(nothing).cursors.choose(of, state)
    assert found == state


def test_a_migration_without_parents_is_an_error() -> None:
    of = stream(
        sync=dated(), state_migrations=(made(components.LegacyToPerPartitionStateMigration),)
    )
    with pytest.raises(ConfigError, match="there needs a stream with a parent stream"):
        read(of)


@pytest.mark.parametrize(
    "states", [5, ["a"], [{"partition": {}}], [{"partition": 1, "cursor": {}}]]
)
def test_states_that_are_no_list_of_partitions_are_an_error(states: Any) -> None:
    with pytest.raises(ConfigError, match="the `states` of the state are not a list of objects"):
        read(orders(), {"states": states})


def test_of_two_states_of_a_partition_the_earlier_one_counts() -> None:
    later, earlier = "2024-01-09T00:00:00Z", "2024-01-05T00:00:00Z"
    for pair in ((later, earlier), (earlier, later)):
        state = {"states": [entry("a", value) for value in pair]}
        assert began(state)[0] == earlier


def test_a_partition_and_an_interval_cannot_have_values_of_one_name() -> None:
    with pytest.raises(ConfigError, match=r"both have values named \['start_time'\]"):
        read(orders(listed(["a"], "start_time")))


def test_records_without_a_cursor_value_are_counted_over_all_partitions() -> None:
    _, done = read(orders(), answer=lambda *_: [[{}, {"updated_at": 5}]])
    (warning,) = done.warnings
    assert "in the cursor field 'updated_at': 4;" in warning


def test_a_state_without_a_value_of_the_cursor_is_warned_of() -> None:
    _, done = read(orders(), {"1": {"updated_at": START}})
    assert done.warnings == [
        "the state has no value of the cursor field 'updated_at', but '1': the stream is read from its start"
    ]


def test_warnings_of_many_partitions_come_once() -> None:
    _, done = read(orders(), {"updated_at": "2030-01-01T00:00:00Z"})
    assert len(done.warnings) == 1


# --- one cursor for all ---------------------------------------------------------------------------


def test_a_read_with_one_cursor_that_is_cut_begins_again() -> None:
    state = {
        "use_global_cursor": True,
        "state": {"updated_at": "2024-01-05T00:00:00Z"},
        "lookback_window": 0,
    }
    with at(NOW):
        progress = Api(nothing).begin(orders(global_substream_cursor=True), state)
        progress.close(next(progress.slices()))
    assert progress.state() == state


def test_one_cursor_does_not_move_while_a_partition_is_open() -> None:
    with at(NOW):
        progress = Api(nothing).begin(orders(global_substream_cursor=True))
        first, _ = progress.slices()
    progress.close(first)
    progress.finish()
    assert progress.state() == {"use_global_cursor": True}


def test_states_of_partitions_are_kept_until_one_cursor_takes_their_place() -> None:
    state = {"use_global_cursor": False, "states": [entry("a", "2024-01-05T00:00:00Z")]}
    found = {"global_substream_cursor": True}
    with at(NOW):
        progress = Api(nothing).begin(orders(**found), state)
        slices = progress.slices()
        progress.close(next(slices))
        assert progress.state() == state
        assert began(state, **found) == ["2024-01-05T00:00:00Z", START]
        progress.close(next(slices))
        assert list(slices) == []
    progress.finish()
    assert {**progress.state(), "lookback_window": 0} == {
        "use_global_cursor": True,
        "state": {"updated_at": END},
        "lookback_window": 0,
    }


# --- parents that are read incrementally ----------------------------------------------------------

SHOPS = [
    {"id": 1, "updated_at": "2024-01-10T00:00:00Z"},
    {"id": 2, "updated_at": "2024-01-20T00:00:00Z"},
]


def shop_source(name: str, each: Slice, options: Sequence[Option]) -> list[Page]:
    """Answer the shops of the interval, one on a page, and an order in each of them."""
    if name == "shops":
        low, high = each.interval.values()
        return [[shop] for shop in SHOPS if low <= str(shop["updated_at"]) <= high]
    return [[{"shop": each.partition["shop"], "updated_at": "2024-01-30T00:00:00Z"}]]


def dependent(**fields: Any) -> Any:
    shops = stream("shops", sync=dated(step="P15D", cursor_granularity="PT1S", **SINCE))
    return orders(
        substream(parent(shops, incremental_dependency=True, request_option=option("shop"))),
        **fields,
    )


NOW_TEXT = "{{ now_utc().strftime('%Y-%m-%dT%H:%M:%SZ') }}"


@pytest.mark.parametrize("end", [None, NOW_TEXT])
def test_children_are_not_read_up_to_an_earlier_time_than_their_parents(end: str | None) -> None:
    """A child that changes while the parents are listed is read, or its parent is listed by the next read."""
    sync = dated(end_datetime=end)
    ends: dict[str, str] = {}

    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        ends.setdefault(name, each.interval["end_time"])
        return [[{"id": 1}]]

    regions, sites = stream("regions", sync=sync), stream("sites", sync=sync)
    shops = stream("shops", substream(parent(regions, "region", incremental_dependency=True)), sync)
    parents = [
        parent(each, f"{each.name}_id", incremental_dependency=True) for each in (shops, sites)
    ]
    seconds = itertools.count()
    with clock.use(lambda: NOW + next(seconds) * timedelta(seconds=1)):
        Api(answer).read(orders(substream(*parents), end_datetime=end))
    assert ends["regions"] <= ends["shops"] <= ends["orders"]
    assert ends["sites"] <= ends["orders"]
    assert len(set(ends.values())) == (1 if end is None else 4)


def test_a_stream_that_is_a_parent_twice_has_the_state_of_its_last_listing() -> None:
    shops = stream("shops", sync=dated())
    parents = [parent(shops, name, name, incremental_dependency=True) for name in ("shop", "owner")]
    with at(NOW):
        records = [[{"shop": 1, "owner": 2}]]
        progress = Api(lambda name, *_: records if name == "shops" else []).begin(
            orders(substream(*parents))
        )
        one, other = progress.slices()
    progress.close(one)
    assert progress.state()["parent_state"] == {"shops": {}}
    progress.close(other)
    assert progress.state()["parent_state"] == {"shops": {"updated_at": END}}


def test_the_state_of_a_parent_is_sent_with_one_cursor_for_all() -> None:
    _, done = read(dependent(global_substream_cursor=True), answer=shop_source)
    assert done.state["parent_state"] == {"shops": {"updated_at": END}}


@pytest.mark.parametrize(
    ("state", "since"),
    [
        ({"updated_at": "2024-01-12T00:00:00Z"}, "2024-01-12T00:00:00Z"),
        ({"states": [], "state": {"updated_at": "2024-01-12T00:00:00Z"}}, "2024-01-12T00:00:00Z"),
        ({"states": [entry(1, "2024-01-12T00:00:00Z")]}, START),
        ({"states": [], "parent_state": {}}, START),
        ({"__ab_no_cursor_state_message": True}, START),
    ],
)
def test_the_state_of_a_parent_may_come_from_an_older_one(
    state: dict[str, Any], since: str
) -> None:
    found, _ = read(dependent(), state, shop_source)
    assert found[0] == (None, since)


def test_parents_are_read_in_full_where_no_state_can_record_them() -> None:
    shops = stream("shops", sync=dated(**SINCE))
    router = substream(parent(shops, incremental_dependency=True))
    state = {"updated_at": "2024-01-12T00:00:00Z", "parent_state": {"shops": {"updated_at": END}}}
    for of in (stream(router=router), orders((listed(["x"], "site"), router))):
        found, done = read(of, state, shop_source)
        assert found[0] == (None, START)
        assert (
            "parent_state" not in done.state or done.state["parent_state"] == state["parent_state"]
        )


def test_the_states_of_parents_nest() -> None:
    regions = stream("regions", sync=dated())
    shops = stream(
        "shops",
        substream(parent(regions, "region", incremental_dependency=True)),
        dated(),
    )
    of = orders(substream(parent(shops, incremental_dependency=True)))
    records: dict[str, list[Page]] = {"regions": [[{"id": 7}]], "shops": [[{"id": 1}, {"id": 2}]]}
    _, done = read(of, answer=lambda name, *_: records.get(name, []))
    shop_state = done.state["parent_state"]["shops"]
    assert shop_state["parent_state"] == {"regions": {"updated_at": END}}
    assert [each["partition"] for each in shop_state["states"]] == [
        {"region": 7, "parent_slice": {}}
    ]
    assert [each["partition"] for each in done.state["states"]] == [
        {"shop": shop, "parent_slice": {"region": 7, "parent_slice": {}}} for shop in (1, 2)
    ]
    again, _ = read(of, done.state, lambda name, *_: records.get(name, []))
    assert again[-1] == (None, END)


# --- partitions that are read alone ---------------------------------------------------------------


def test_a_partition_that_is_read_alone_moves_only_its_own_state() -> None:
    state: dict[str, Any] = {
        "use_global_cursor": False,
        "states": [entry("a", "2024-01-05T00:00:00Z"), entry("b", "2024-01-06T00:00:00Z")],
        "state": {"updated_at": "2024-01-06T00:00:00Z"},
        "lookback_window": 3,
    }
    _, done = read(orders(), state, contexts=[{"shop": "b"}])
    assert done.state == {**state, "states": [state["states"][0], entry("b", END)]}


def test_a_partition_that_is_read_alone_leaves_the_state_of_the_parents() -> None:
    _, first = read(dependent(), answer=shop_source)
    state = {**first.state, "parent_state": {"shops": {"updated_at": "2024-01-15T00:00:00Z"}}}
    found, done = read(dependent(), state, shop_source, contexts=[{"shop": 1}])
    assert found == [(1, END)]
    assert done.state["parent_state"] == state["parent_state"]


# --- a property -----------------------------------------------------------------------------------

PLANS = st.lists(
    st.tuples(
        st.integers(1, 40),  # the hour at which the sync begins, after that of the one before
        st.integers(0, 20),  # the number of states that arrive before it is cut
        st.sets(st.sampled_from("abcd")),  # the partitions that there are
    ),
    min_size=1,
    max_size=5,
)


def hour_text(hour: int) -> str:
    return f"2024-01-{1 + hour // 24:02d}T{hour % 24:02d}:00:00Z"


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300)), max_size=15),
    st.lists(st.tuples(st.integers(0, 300), st.randoms(), st.integers(0, 40)), max_size=3),
    st.sampled_from([None, "P3D"]),
    st.sampled_from([None, "P4D"]),
    st.booleans(),
)
def test_slices_of_partitions_that_are_closed_in_any_order_lose_no_record(
    events: list[tuple[int, int]],
    syncs: list[tuple[int, Any, int]],
    step: str | None,
    parent_step: str | None,
    is_global: bool,
) -> None:
    """A parent changes with each of its children, and is read incrementally."""

    def source(now: int) -> Api:
        known = [(n, shop, hour) for n, (shop, hour) in enumerate(events) if hour <= now]

        def answer(name: str, each: Slice, options: Any) -> list[Page]:
            low, high = each.interval.values()
            if name == "shops":
                last = {shop: max(h for _, s, h in known if s == shop) for _, shop, _ in known}
                found = [{"id": shop, "updated_at": hour_text(h)} for shop, h in last.items()]
            else:
                shop = each.partition["shop"]
                found = [{"id": n, "updated_at": hour_text(h)} for n, s, h in known if s == shop]
            return [[record for record in found if low <= str(record["updated_at"]) <= high]]

        return Api(answer)

    def steps(length: str | None) -> dict[str, Any]:
        return {"step": length, "cursor_granularity": "PT1S" if length else None}

    shops = stream("shops", sync=dated(**steps(parent_step)))
    router = substream(parent(shops, incremental_dependency=True))
    of = orders(router, global_substream_cursor=is_global, **steps(step))
    state: dict[str, Any] = {}
    arrived: set[int] = set()
    for now, random, number in sorted(syncs, key=lambda sync: sync[0]):
        api = source(now)
        with at(hour_text(now)):
            progress = api.begin(of, state)
            slices = list(progress.slices())
        random.shuffle(slices)
        for each in slices[:number]:
            for page in read_slice(progress, each, api.pages(of, each, [])):
                arrived |= {record["id"] for record in page}
            progress.close(each)
        progress.finish()
        state = progress.state()
    with at(hour_text(400)):
        arrived |= {record["id"] for record in source(400).read(of, state).records}
    assert arrived == set(range(len(events)))


def test_slices_may_be_read_in_several_threads() -> None:
    of = orders(listed(f"{{{{ {list(range(40))} }}}}"), step="P3D", cursor_granularity="PT1S")

    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        start, _ = each.interval.values()
        return [[{"shop": each.partition["shop"], "updated_at": start}] * 3] * 3

    api = Api(answer)
    with at(NOW):
        progress = api.begin(of)

        def read_one(each: Slice) -> tuple[Slice, int]:
            pages = read_slice(progress, each, api.pages(of, each, progress.options(each)))
            return each, sum(map(len, pages))

        records = 0
        with ThreadPoolExecutor(4) as pool:
            for done in as_completed([pool.submit(read_one, each) for each in progress.slices()]):
                each, number = done.result()
                records += number
                progress.close(each)
        progress.finish()
    assert records == 40 * 11 * 9
    states = sorted(progress.state()["states"], key=lambda each: int(each["partition"]["shop"]))
    assert states == [entry(shop, END) for shop in range(40)]


# --- many -----------------------------------------------------------------------------------------


class _Clock:
    """A clock that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def progress_of(of: Any, state: dict[str, Any], clock: _Clock) -> PartitionedProgress:
    cursor = Api(nothing).cursors.get(of)
    assert isinstance(cursor, PartitionedCursor)
    return PartitionedProgress(cursor, state, clock)


def sizes_of_states(progress: Progress, clock: _Clock, seconds: float) -> list[int]:
    """Read all slices, each of which takes some seconds, and return the sizes of the states."""
    return [size for _, size in states_of(progress, clock, seconds)]


def states_of(progress: Progress, clock: _Clock, seconds: float) -> list[tuple[int, int]]:
    """Read all slices as `sizes_of_states` does, and return the number of partitions of each state too."""
    assert isinstance(progress, PartitionedProgress)
    states = []
    for each in progress.slices():
        clock.seconds += seconds
        progress.close(each)
        if progress.is_due():
            states.append((progress.bookmarks, len(bytes(progress.encode()))))
    progress.finish()
    return [*states, (progress.bookmarks, len(bytes(progress.encode())))]


@pytest.mark.parametrize("seconds", [0.0, 0.01, 10.0])
@pytest.mark.parametrize("steps", [{}, {"step": "P10D", "cursor_granularity": "PT1S"}])
def test_the_states_of_many_partitions_are_four_times_the_last_at_most(
    seconds: float, steps: dict[str, Any]
) -> None:
    """The states of the first thousand partitions are small, or there are as many as there are seconds."""
    of, clock = orders(listed(f"{{{{ {list(range(3000))} }}}}"), **steps), _Clock()
    with at(NOW):
        progress = progress_of(of, {}, clock)
        found = states_of(progress, clock, seconds)
        state = progress.state()
        later = [size for number, size in found if number > MANY_PARTITIONS]
        large = [size for number, size in found if size > 2 * SMALL]
        assert sum(later) <= 4 * later[-1]
        assert len(later) > 1
        assert len(large) - len(later) <= clock.seconds
        again = progress_of(of, state, clock)
        sizes = sizes_of_states(again, clock, seconds)
        assert sum(sizes) <= 4 * sizes[-1]


def test_a_thousand_partitions_have_a_state_each_and_a_large_one_each_second() -> None:
    of, clock = orders(listed(f"{{{{ {list(range(1000))} }}}}")), _Clock()
    with at(NOW):
        assert len(sizes_of_states(progress_of(of, {}, clock), clock, 1.0)) == 1001
        *small, last = sizes_of_states(progress_of(of, {}, clock), clock, 0.0)
    assert len(small) > 200
    assert max(small) < 2 * SMALL < last


def test_the_first_partition_needs_one_parent_only() -> None:
    """A check and a preview read no more, and the records of a sync come at once."""
    listing: list[str] = []

    def answer(name: str, each: Slice, options: Any) -> Iterator[Page]:
        for number in range(5):
            listing.append(name)
            yield [{"id": number}]

    shops = stream("shops", substream(parent(stream("regions"), "region")), dated())
    with at(NOW):
        found = Api(answer).begin(orders(substream(parent(shops)))).slices()
        assert next(found).partition["shop"] == 0
        assert listing == ["regions", "shops"]
        assert next(found).partition["shop"] == 1
        assert listing == ["regions", "shops", "shops"]


def test_partitions_that_were_listed_before_a_parent_fails_are_read() -> None:
    def answer(name: str, each: Slice, options: Any) -> Iterator[Page]:
        yield [{"id": 1}, {"id": 2}]
        raise TransientError("the API is down", guidance="wait")

    with at(NOW):
        progress = Api(answer).begin(orders(substream(parent(stream("shops")))))
        found = progress.slices()
        for _ in range(2):
            progress.close(next(found))
        with pytest.raises(TransientError):
            next(found)
    assert [each["partition"]["shop"] for each in progress.state()["states"]] == [1, 2]


@pytest.mark.parametrize("is_tracked", [False, True])
def test_partitions_after_one_that_failed_take_no_memory(is_tracked: bool) -> None:
    shops = [{"id": number} for number in range(300)]
    parents = stream("shops", sync=dated() if is_tracked else None)
    router = substream(parent(parents, incremental_dependency=is_tracked))
    with at(NOW):
        progress = Api(lambda name, *_: [shops]).begin(orders(router))
        found = progress.slices()
        failed = next(found)
        before = len(progresses())
        for each in found:
            progress.close(each)
        del each
    assert len(progresses()) <= before
    progress.close(failed)
    assert len(progress.state()["states"]) == 300
    assert ("parent_state" in progress.state()) == is_tracked


def progresses() -> list[object]:
    """Return the progress of partitions that are in memory."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, DatetimeProgress)]


def test_the_intervals_of_partitions_have_a_state_each_while_it_is_small() -> None:
    of, clock = orders(listed(["a"]), step="P1D", cursor_granularity="PT1S"), _Clock()
    with at(NOW):
        assert len(sizes_of_states(progress_of(of, {}, clock), clock, 0.0)) == 32
        many = {"states": [entry(number, START) for number in range(500)]}
        assert len(sizes_of_states(progress_of(of, many, clock), clock, 0.0)) == 1
        assert len(sizes_of_states(progress_of(of, many, clock), clock, 1.0)) == 32


def test_the_time_of_many_partitions_grows_with_their_number() -> None:
    number = 20_000
    shops = [{"id": each} for each in range(number)]

    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        return [shops] if name == "shops" else [[{"updated_at": "2024-01-05T00:00:00Z"}]]

    api = Api(answer)
    of = orders(substream(parent(stream("shops"))))
    began_at = time.process_time()
    with at(NOW):
        progress = api.begin(of)
        records = states = 0
        for each in progress.slices():
            pages = api.answer("orders", each, progress.options(each))
            records += sum(map(len, read_slice(progress, each, pages)))
            progress.close(each)
            if progress.is_due():
                states += len(bytes(progress.encode()))
        progress.finish()
        last = bytes(progress.encode())
    assert records == number
    assert states <= 3 * len(last)
    assert len(json.loads(last)["states"]) == number
    assert time.process_time() - began_at < 20


def test_a_hundred_thousand_states_are_taken_over_and_kept() -> None:
    saved = [entry(number, START) for number in range(100_000)]
    with at(NOW):
        progress = Api(nothing).begin(orders(listed("{{ [5] }}")), {"states": saved})
        (each,) = progress.slices()
        progress.close(each)
        found = progress.state()["states"]
    assert len(found) == 100_000
    assert found[5] == entry(5, END)
