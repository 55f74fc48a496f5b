"""Overwrites and refreshes: the former rows stay until the new ones are whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.destination.running import Destination, Json, records, state, status, stream

STARTED, COMPLETE, INCOMPLETE = status("STARTED"), status("COMPLETE"), status("INCOMPLETE")


def refresh(generation: int, mode: str = "overwrite", **more: Any) -> Json:
    """A stream whose rows of older generations go."""
    ids: Json = {"generation_id": generation, "minimum_generation_id": generation, "sync_id": 1}
    return stream(mode=mode, **ids, **more)


@pytest.fixture(params=["overwrite", "append", "overwrite_dedup"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("ending", "told"), [([], "its last status: STARTED"), ([INCOMPLETE, state(3)], "completing")]
)
def test_an_overwrite_that_is_not_completed_changes_nothing(
    destination: Destination, ending: list[Json], told: str
) -> None:
    destination.config = {"checkpoint": {"rows": 1}}
    destination.write([stream(mode="overwrite")], [STARTED, *records(1, 2), COMPLETE])

    messages = [STARTED, *records(3), state(1), *records(4), *ending]
    answer = destination.write([stream(mode="overwrite")], messages, code=1)

    assert told in answer.error["message"]
    assert answer.error["stream_descriptor"] == {"name": "users"}
    assert answer.values == [1]
    assert destination.ids() == [1, 2]


def test_without_generations_each_overwrite_begins_anew(destination: Destination) -> None:
    resumable = stream(mode="overwrite")
    resumable["stream"]["is_resumable"] = True
    destination.write([resumable], [*records(1), COMPLETE])
    destination.write([resumable], [*records(2), state(1), INCOMPLETE], code=1)

    answer = destination.write([resumable], [*records(3), state(2), COMPLETE])

    assert (answer.values, destination.ids()) == ([2], [3])


def test_without_a_status_the_end_of_the_input_completes(destination: Destination) -> None:
    for number in (1, 2):
        destination.write([stream(mode="overwrite")], records(number))
    assert destination.ids() == [2]


def test_a_retry_of_the_same_generation_goes_on(destination: Destination, mode: str) -> None:
    destination.write([refresh(1, mode)], [*records(1, 2), COMPLETE])
    failed = destination.write([refresh(2, mode)], [*records(3), state(3), STARTED], code=1)
    assert (failed.values, destination.ids()) == ([3], [1, 2])

    answer = destination.write([refresh(2, mode)], [*records(4), state(4), COMPLETE])

    assert (answer.values, destination.ids()) == ([4], [3, 4])
    generations = destination.table().to_pyarrow_table().column("_airbyte_generation_id")
    assert set(generations.to_pylist()) == {2}


def test_a_retry_of_what_was_complete_adds_to_it(destination: Destination) -> None:
    """Its source goes on from the last state, and has nothing more."""
    destination.write([refresh(2)], [*records(1), state(1), COMPLETE])

    answer = destination.write([refresh(2)], [state(1), COMPLETE])

    assert (answer.values, destination.ids()) == ([1], [1])


def test_a_newer_generation_leaves_the_one_that_was_begun(destination: Destination) -> None:
    destination.write([refresh(1)], [*records(1), COMPLETE])
    destination.write([refresh(2)], [*records(2), state(2), STARTED], code=1)

    destination.write([refresh(3)], [*records(3), COMPLETE])

    assert destination.ids() == [3]


def test_a_minimum_of_zero_keeps_older_generations(destination: Destination) -> None:
    for generation in (0, 0, 4):
        ids: Json = {"generation_id": generation, "minimum_generation_id": 0, "sync_id": 1}
        destination.write([stream(**ids)], [*records(generation), COMPLETE])
    assert destination.ids() == [0, 0, 4]


def test_an_overwrite_with_a_minimum_of_zero_overwrites(destination: Destination) -> None:
    """Whoever knows of no refreshes sends zeros."""
    ids: Json = {"generation_id": 0, "minimum_generation_id": 0, "sync_id": 0}
    for number in (1, 2):
        destination.write([stream(mode="overwrite", **ids)], [*records(number), COMPLETE])
    assert destination.ids() == [2]


@pytest.mark.parametrize(
    "again",
    [
        refresh(2, properties={"id": {"type": "integer"}}),
        refresh(2, "append"),
        stream(mode="append", generation_id=2, minimum_generation_id=0, sync_id=1),
    ],
    ids=["schema", "mode", "minimum"],
)
def test_a_begun_refresh_is_not_gone_on_with_in_another_way(
    destination: Destination, again: Json
) -> None:
    """What of it was acknowledged would be lost."""
    destination.write([refresh(2)], [*records(1), state(1), STARTED], code=1)

    answer = destination.write([again], records(2), code=1)

    assert answer.error["failure_type"] == "config_error"
    assert "cannot be gone on with" in answer.error["message"]
    destination.write([refresh(2)], [*records(2), COMPLETE])
    assert destination.ids() == [1, 2]


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ({"generation_id": 3, "minimum_generation_id": 2}, "minimum generation 2"),
        ({"generation_id": 3}, "minimum generation None"),
        ({"generation_id": 1, "minimum_generation_id": 0}, "older than what its table has, 2"),
    ],
)
def test_invalid_generations_are_refused(destination: Destination, ids: Json, told: str) -> None:
    destination.write([refresh(2)], [*records(1), COMPLETE])

    answer = destination.write([stream(**ids)], records(2), code=1)

    assert answer.error["failure_type"] == "config_error"
    assert told in answer.error["message"]
    assert answer.error["stream_descriptor"] == {"name": "users"}
    assert destination.ids() == [1]
