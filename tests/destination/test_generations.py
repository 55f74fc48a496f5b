"""Overwrites and refreshes: the former rows stay until the new ones are whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.destination.running import (
    Destination,
    Json,
    make_shared_state,
    records,
    state,
    status,
    stream,
)

STARTED, COMPLETE, INCOMPLETE = status("STARTED"), status("COMPLETE"), status("INCOMPLETE")


def refresh(generation: int, mode: str = "overwrite", **more: Any) -> Json:
    """A stream whose rows of older generations go."""
    ids: Json = {"generation_id": generation, "minimum_generation_id": generation, "sync_id": 1}
    return stream(mode=mode, **ids, **more)


@pytest.fixture(params=["overwrite", "append", "overwrite_dedup"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [([], "its last status: STARTED"), ([INCOMPLETE, state(3)], "completing")],
)
def test_an_incomplete_overwrite_changes_nothing(
    destination: Destination, ending: list[Json], expected: str
) -> None:
    destination.config = {"checkpoint": {"rows": 1}}
    destination.write([stream(mode="overwrite")], [STARTED, *records(1, 2), COMPLETE])

    messages = [STARTED, *records(3), state(1), *records(4), *ending]
    answer = destination.write([stream(mode="overwrite")], messages, code=1)

    assert expected in answer.error["message"]
    assert answer.error["stream_descriptor"] == {"name": "users"}
    assert answer.values == []  # the next sync cannot know that it resumes from there
    assert destination.ids() == [1, 2]


def test_each_overwrite_without_a_generation_restarts(destination: Destination) -> None:
    resumable = stream(mode="overwrite")
    resumable["stream"]["is_resumable"] = True
    destination.write([resumable], [*records(1), COMPLETE])
    failed = destination.write([resumable], [*records(2), state(1), INCOMPLETE], code=1)
    assert failed.values == []

    answer = destination.write([resumable], [*records(3), state(2), COMPLETE])

    assert (answer.values, destination.ids()) == ([2], [3])


def test_the_end_of_the_input_completes_a_stream_without_a_status(destination: Destination) -> None:
    for number in (1, 2):
        destination.write([stream(mode="overwrite")], records(number))
    assert destination.ids() == [2]


@pytest.mark.spec("protocol.36")
def test_a_retry_of_the_same_generation_resumes(destination: Destination, mode: str) -> None:
    destination.write([refresh(1, mode)], [*records(1, 2), COMPLETE])
    failed = destination.write([refresh(2, mode)], [*records(3), state(3), STARTED], code=1)
    assert (failed.values, destination.ids()) == ([3], [1, 2])

    answer = destination.write([refresh(2, mode)], [*records(4), state(4), COMPLETE])

    assert (answer.values, destination.ids()) == ([4], [3, 4])
    generations = destination.table().to_pyarrow_table().column("_airbyte_generation_id")
    assert set(generations.to_pylist()) == {2}


def test_an_overwrite_without_a_generation_withholds_shared_states(
    destination: Destination,
) -> None:
    destination.config = {"checkpoint": {"rows": 1}}
    streams = [stream(mode="overwrite"), stream("orders")]
    came = [*records(1), *records(2, name="orders"), make_shared_state(1, "users", "orders")]

    failed = destination.write(streams, [STARTED, *came, *came, STARTED], code=1)
    answer = destination.write(
        streams, [*came, *records(3), make_shared_state(2, "users", "orders")]
    )

    assert (failed.values, answer.values) == ([], [1, 2])
    assert answer.counts == [(2, 0), (1, 0)]
    assert destination.ids() == [1, 3]


@pytest.mark.spec("protocol.85")
@pytest.mark.parametrize("mode", ["overwrite", "overwrite_dedup"])
def test_a_complete_generation_is_overwritten_by_each_sync(
    destination: Destination, mode: str
) -> None:
    """PyAirbyte gives the same generation to every sync."""
    overwrite = refresh(1, mode)
    for last in (3, 4, 5):
        answer = destination.write([overwrite], [*records(1, 2, last), state(last), COMPLETE])
        assert (answer.values, destination.ids()) == ([last], [1, 2, last])
    assert "its generation 1 is complete: the records of this sync replace its rows" in answer.logs

    failed = destination.write([overwrite], [*records(6), state(6), STARTED], code=1)
    assert (failed.values, destination.ids()) == ([6], [1, 2, 5])
    destination.write([overwrite], [*records(7), state(7), COMPLETE])
    assert destination.ids() == [6, 7]  # the unfinished one was resumed

    destination.write([refresh(2, mode)], [*records(8), state(8), COMPLETE])
    assert destination.ids() == [8]
    older = destination.write([overwrite], records(9), code=1)
    assert "generation_id 1 is older than the generation of its table, 2" in older.error["message"]


@pytest.mark.spec("protocol.82")
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_rows_are_appended_to_a_complete_generation(destination: Destination, mode: str) -> None:
    for number in (1, 2):
        destination.write([refresh(1, mode)], [*records(number), COMPLETE])
    assert destination.ids() == [1, 2]


def test_a_complete_overwrite_keeps_its_rows_if_the_source_has_no_more(
    destination: Destination,
) -> None:
    """Another stream of the sync had failed: the retry resumes from the last state."""
    destination.write([refresh(2)], [*records(1), state(1), COMPLETE])

    answer = destination.write([refresh(2)], [state(1), COMPLETE])

    assert (answer.values, destination.ids()) == ([1], [1])
    assert "the source sent a state and no record: the table keeps its rows" in answer.logs


def test_a_state_before_the_first_record_does_not_keep_the_rows(destination: Destination) -> None:
    destination.config = {"checkpoint": {"seconds": 0.001}}
    destination.write([refresh(1)], [*records(1), state(1), COMPLETE])

    answer = destination.write([refresh(1)], [state(0), *records(2), state(2), COMPLETE])

    assert (answer.values, destination.ids()) == ([0, 2], [2])


def test_an_overwrite_whose_source_is_empty_empties_the_table(destination: Destination) -> None:
    destination.write([refresh(1)], [*records(1), COMPLETE])
    destination.write([refresh(1)], [STARTED, COMPLETE])
    assert destination.ids() == []


def test_a_newer_generation_replaces_an_unfinished_one(destination: Destination) -> None:
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
def test_an_unfinished_refresh_with_other_settings_cannot_be_resumed(
    destination: Destination, again: Json
) -> None:
    """The acknowledged part of the sync would be lost."""
    destination.write([refresh(2)], [*records(1), state(1), STARTED], code=1)

    answer = destination.write([again], records(2), code=1)

    assert answer.error["failure_type"] == "config_error"
    assert "cannot be resumed" in answer.error["message"]
    destination.write([refresh(2)], [*records(2), COMPLETE])
    assert destination.ids() == [1, 2]


@pytest.mark.spec("protocol.75")
def test_a_generation_without_a_minimum_keeps_older_rows(destination: Destination) -> None:
    destination.write([stream(generation_id=1)], [*records(1), COMPLETE])
    destination.write([stream(generation_id=2)], [*records(2), COMPLETE])
    assert destination.ids() == [1, 2]
    rows = destination.table().to_pyarrow_table().to_pylist()
    assert sorted(row["_airbyte_generation_id"] for row in rows) == [1, 2]


@pytest.mark.spec("protocol.75")
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({"generation_id": 3, "minimum_generation_id": 2}, "minimum generation 2"),
        ({"minimum_generation_id": 3}, "without a `generation_id`"),
        (
            {"generation_id": 1, "minimum_generation_id": 0},
            "older than the generation of its table, 2",
        ),
    ],
)
def test_invalid_generations_are_refused(
    destination: Destination, ids: Json, expected: str
) -> None:
    destination.write([refresh(2)], [*records(1), COMPLETE])

    answer = destination.write([stream(**ids)], records(2), code=1)

    assert answer.error["failure_type"] == "config_error"
    assert expected in answer.error["message"]
    assert answer.error["stream_descriptor"] == {"name": "users"}
    assert destination.ids() == [1]
