"""IncrementingCountCursor: incremental reads by a number."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.declarative.cursors.cursor import Page
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.sdk.http.places import Place
from elt_assets.errors import ConfigError
from tests.connectors.declarative.cursors.support import Api, Read, listed, made, option, stream

pytestmark = pytest.mark.unit


def counted(**fields: Any) -> Any:
    return made(components.IncrementingCountCursor, cursor_field="number", **fields)


def read(values: list[Any], state: dict[str, Any] | None = None, **fields: Any) -> tuple[Api, Read]:
    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        return [[{"number": value} for value in values]]

    api = Api(answer, {"first": "7"})
    return api, api.read(stream(sync=counted(**fields)), state)


def test_one_slice_begins_at_the_highest_number_so_far() -> None:
    place = option("after")
    api, done = read([3, 9, 5], {"number": 4}, start_value_option=place)
    assert api.requests == [("orders", {"after": 4})]
    assert done.slices[0].interval == {"start": 4}
    assert done.state == {"number": 9}


@pytest.mark.parametrize(
    ("start", "found"), [(None, 0), (0, 0), (5, 5), (Template("{{ config['first'] }}"), 7)]
)
def test_the_first_read_begins_at_the_start_value(start: Any, found: int) -> None:
    _, done = read([], start_value=start)
    assert done.slices[0].interval == {"start": found}
    assert done.state == {"number": found}


def test_the_number_0_is_put_into_requests() -> None:
    api, _ = read([], start_value_option=option("after"))
    assert api.requests == [("orders", {"after": 0})]


def test_the_state_never_goes_back() -> None:
    assert read([1, 2], {"number": 10})[1].state == {"number": 10}
    assert read([1, 2], {"number": 10}, start_value=20)[1].state == {"number": 20}


def test_numbers_may_be_texts_and_others_are_counted() -> None:
    _, done = read(["12", 9.0, 9.5, None, True, "many", 10])
    assert done.state == {"number": 12}
    assert done.warnings[0].startswith(
        "records without a usable value in the cursor field 'number': 4"
    )


def test_a_state_of_intervals_is_taken_over() -> None:
    written = {"start": 0, "end": 5, "most_recent_cursor_value": 8}
    _, done = read([], {"state_type": "integer", "slices": [written]})
    assert done.state == {"number": 8}


@pytest.mark.parametrize("state", [{"number": "many"}, {"number": 1.5}])
def test_a_state_that_is_no_number_is_an_error(state: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the state of the cursor 'number' has"):
        read([], state)


def test_a_start_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"there\.start_value gives 'soon', which is not a whole"):
        read([], start_value=Template("soon"))


def test_each_partition_has_a_number() -> None:
    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        return [[{"number": 10 * each.partition["shop"]}]]

    orders = stream(router=listed("{{ [1, 2] }}"), sync=counted(start_value_option=option("after")))
    api = Api(answer)
    state = api.read(orders).state
    assert [entry["cursor"] for entry in state["states"]] == [{"number": 10}, {"number": 20}]
    api.read(orders, state)
    assert [request for _, request in api.requests[2:]] == [{"after": 10}, {"after": 20}]


def test_options_have_the_value_as_a_number() -> None:
    progress = Api(lambda *_: []).begin(
        stream(sync=counted(start_value_option=option("after", "body_json")))
    )
    (each,) = progress.slices()
    assert progress.options(each) == [Option(Place("json", ("after",)), 0)]
