"""`elt reset`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import Project

LIVE: Any = {
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
}
BY_STATION = {"type": "static", "keys": ["north", "south"], "bind": "station"}
KEY = "scripted/things"


@pytest.mark.usefixtures("spark")
def test_rows_history_and_rejected_records_go_with_the_state(own: Project, elt: Elt) -> None:
    rejected = record(name="without a key")
    script(own, [record(id=1), record(id=2), rejected, state(2)], **LIVE)
    elt("sync", "scripted")
    tables = ("things", "things_history", "things_dead_letter")
    assert [len(own.rows("scripted", table)) for table in tables] == [2, 2, 1]

    assert "add --yes" in elt.refuse("reset", "scripted", "--data")["guidance"]
    assert len(own.rows("scripted", "things")) == 2
    answer = elt.json("reset", "scripted", "things", "--data", "--yes")
    assert answer["streams"] == [{"asset": KEY, "partitions": None, "rows": 2}]
    assert [len(own.rows("scripted", table)) for table in tables] == [0, 0, 0]
    after = elt.json("state", "show", KEY)
    assert (after["state"], after["generation"]) == (None, 2)

    script(own, [record(id=1), record(id=3), state(3)], **LIVE)
    elt("sync", "scripted")
    assert sorted(row["id"] for row in own.rows("scripted", "things")) == [1, 3]
    assert sorted(row["id"] for row in own.rows("scripted", "things_history")) == [1, 3]
    assert own.metadata("scripted", "things")["dagster/row_count"] == 2


def test_the_state_of_every_stream_and_partition_is_reset(own: Project, elt: Elt) -> None:
    windowed(own, partitions=BY_STATION, sync_mode="incremental", destination_sync_mode="append")
    elt("state", "set", "weather/readings", '{"at": "x"}', "--partition", "north")
    answer = elt.json("reset", "weather")
    assert answer["streams"] == [{"asset": "weather/readings", "partitions": 1}]
    north = elt.json("state", "show", "weather/readings", "--partition", "north")
    assert north["state"] is None
    assert elt.json("reset", "weather")["streams"][0]["partitions"] == 0
    refused = elt.refuse("reset", "weather", "--data", "--yes")
    assert "has partitions" in refused["message"] and "move the table" in refused["guidance"]
    assert "has no stream 'reading'" in elt.refuse("reset", "weather", "reading")["message"]


def test_rows_that_are_not_there_need_no_commit(own: Project, elt: Elt) -> None:
    script(own, [])
    assert elt.json("reset", "scripted", "--data", "--yes")["streams"][0]["rows"] == 0
    assert not (own.home / "lake").exists()


@pytest.mark.usefixtures("spark")
def test_a_type_that_the_history_cannot_take_is_taken_after_a_reset(own: Project, elt: Elt) -> None:
    """What the error says, as commands: a refresh, which it does not offer, is refused as well."""
    text: Any = {"id": {"type": "integer"}, "value": {"type": "string"}}
    nested: Any = {**text, "value": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    script(own, [record(id=1, value="a"), state(1)], schema=text, **LIVE)
    elt("sync", "scripted")
    script(own, [record(id=1, value={"x": 1}), state(2)], schema=nested, **LIVE)
    for refresh in ((), ("--refresh", "truncate")):
        (error,) = elt.json("sync", "scripted", *refresh, code=2)["errors"]
        assert "cannot take the catalog's types" in error["message"]
    elt("reset", "scripted", "things", "--data", "--yes")
    elt("sync", "scripted")
    for table in ("things", "things_history"):
        assert [row["value"] for row in own.rows("scripted", table)] == [{"x": 1}]


@pytest.mark.usefixtures("spark")
def test_partitions_are_read_again_as_the_errors_say(own: Project, elt: Elt) -> None:
    windowed(own, partitions=BY_STATION, sync_mode="incremental", destination_sync_mode="append")
    sync = ("sync", "weather", "readings", "--partition", "north")
    elt(*sync)
    rows = len(own.rows("weather", "readings"))
    (refused,) = elt.json(*sync, "--refresh", "truncate", code=2)["errors"]
    assert "`refresh` is for streams without partitions" in refused["message"]
    elt("state", "reset", "weather/readings", "--partition", "north")
    elt(*sync)
    assert len(own.rows("weather", "readings")) == 2 * rows
    assert "move the table" in elt.refuse("reset", "weather", "--data", "--yes")["guidance"]
    lake = own.home / "lake" / "weather"
    for table in lake.iterdir():
        table.rename(own.root / table.name)
    elt(*sync)
    assert len(own.rows("weather", "readings")) == rows
