"""Tests of `elt state`: show, list, set, restore and reset."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest

from tests.programs.scripted import script, state
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import Project

LIVE: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
BY_STATION = {"type": "static", "keys": ["north", "south"], "bind": "station"}
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
KEY = "scripted/things"


def test_a_stream_that_was_never_synced_has_no_state(own: Project, elt: Elt) -> None:
    script(own, [])
    answer = elt.json("state", "show", KEY)
    assert (answer["state"], answer["sequence"], answer["table_version"]) == (None, 0, None)
    assert elt.json("state", "history", KEY)["states"] == []
    assert "reads from the beginning" in elt("state", "show", KEY)
    assert not (own.home / "lake").exists()


def test_a_state_can_be_set_and_restored(own: Project, elt: Elt) -> None:
    script(own, [])
    first = elt.json("state", "set", KEY, '{"cursor": 1}')
    file = own.root / "state.json"
    file.write_text('{"cursor": 2}')
    elt("state", "set", KEY, f"@{file}")
    assert elt.json("state", "show", KEY)["state"] == {"cursor": 2}

    elt("state", "set", KEY, "--sequence", str(first["sequence"]))
    answer = elt.json("state", "show", KEY)
    assert (answer["state"], answer["sequence"]) == ({"cursor": 1}, first["sequence"] + 2)
    past = elt.json("state", "history", KEY)["states"]
    assert [commit["state"]["cursor"] for commit in past] == [1, 2, 1]
    assert [commit["sequence"] for commit in past] == [3, 2, 1]
    assert set(past[0]) == {"sequence", "time", "table_version", "generation", "run_id", "state"}
    assert len(elt.json("state", "history", KEY, "-n", "2")["states"]) == 2
    assert '{"cursor": 2}' in elt("state", "history", KEY)
    assert own.rows("scripted", "things") == []


def test_a_state_with_texts_that_are_no_text_is_shown_with_escapes(own: Project, elt: Elt) -> None:
    script(own, [])
    state = '{"cut": "a \\ud83d\\u0000", "n": NaN}'
    answer = elt.json("state", "set", KEY, state)
    assert answer["state"] == {"cut": "a \ud83d\x00", "n": "NaN"}
    assert elt.json("state", "show", KEY)["state"] == answer["state"]
    assert "a \\ud83d" in elt("state", "show", KEY)
    assert "a \\ud83d" in elt("state", "history", KEY)
    stored = own.committed_state("scripted", "things")
    assert stored["stream"]["stream_state"]["cut"] == "a \ud83d\x00"


def test_a_state_can_be_set_from_a_whole_message(own: Project, elt: Elt) -> None:
    script(own, [])
    for message in (state(7), state(7)["state"]):
        answer = elt.json("state", "set", KEY, json.dumps(message))
        assert answer["state"] == {"cursor": 7}
        assert own.committed_state("scripted", "things") == state(7)["state"]
    legacy = elt.json("state", "set", KEY, '{"type": "STATE", "state": {"data": {"cursor": 8}}}')
    assert legacy["state"] == {"cursor": 8}


@pytest.mark.spec("protocol.118")
def test_a_reset_starts_from_the_beginning(own: Project, elt: Elt) -> None:
    script(own, [])
    before = elt.json("state", "set", KEY, '{"cursor": 1}')
    assert "appends all records that it reads" in elt("state", "reset", KEY)
    answer = elt.json("state", "show", KEY)
    assert answer["state"] is None and answer["generation"] == before["generation"] + 1
    script(own, [], **LIVE, primary_key=[["id"]])
    assert "appends" not in elt("state", "reset", KEY)


def test_setting_a_state_does_not_add_columns(own: Project, elt: Elt) -> None:
    """The command checks `on_schema_change` first."""
    script(own, [])
    elt("state", "set", KEY, '{"cursor": 1}')
    before = own.table("scripted", "things").schema().to_json()
    script(own, [], schema={"id": {"type": "integer"}, "new": {"type": "string"}})
    elt("state", "set", KEY, '{"cursor": 2}')
    assert own.table("scripted", "things").schema().to_json() == before


def test_a_partition_has_a_state_of_its_own(own: Project, elt: Elt) -> None:
    windowed(own, partitions=BY_STATION, **LIVE)
    key = "weather/readings"
    elt("state", "set", key, '{"at": "x"}', "--partition", "north")
    assert elt.json("state", "show", key, "--partition", "north")["state"] == {"at": "x"}
    assert elt.json("state", "show", key, "--partition", "south")["state"] is None
    for words in (["show"], ["history"], ["reset"]):
        error = elt.refuse("state", *words, key)
        assert "no partition is given" in error["message"] and "north, south" in error["guidance"]
    error = elt.refuse("state", "reset", key, "--partition", "east")
    assert "has no partition 'east'" in error["message"]


def test_dynamic_partitions_are_read_from_the_instance(own: Project, elt: Elt) -> None:
    windowed(own, partitions={"type": "dynamic", "name": "stations", "bind": "station"}, **LIVE)
    words = ("state", "show", "weather/readings", "--partition", "north")
    assert "it has no partitions yet" in elt.refuse(*words)["guidance"]
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        instance.add_dynamic_partitions("stations", ["north"])
    assert elt.json(*words)["partition"] == "north"


@pytest.mark.spec("protocol.81")
@pytest.mark.parametrize(
    "how",
    [
        {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"},
        {**LIVE, "partitions": DAILY},
    ],
)
def test_a_state_is_refused_for_a_stream_that_is_read_as_a_whole(
    own: Project, elt: Elt, how: Any
) -> None:
    windowed(own, **how)
    partition = ["--partition", "2026-01-01"] if "partitions" in how else []
    error = elt.refuse("state", "set", "weather/readings", '{"at": "x"}', *partition)
    assert "cannot start from a state" in error["message"]
    assert not (own.home / "lake").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["show", "scripted/thongs"], "'scripted/thongs'"),
        (["show", "nowhere/things"], "'nowhere/things'"),
        (["show", KEY, "--partition", "a"], "has no partitions"),
        (["set", KEY], "either a state or --sequence"),
        (["set", KEY, "{}", "--sequence", "1"], "either a state or --sequence"),
        (["set", KEY, "{}"], "must be a JSON object"),
        (["set", KEY, "null"], "must be a JSON object"),
        (["set", KEY, "{'a': 1}"], "is not JSON"),
        (["set", KEY, "--sequence", "9"], "no state with sequence 9"),
        (["history", KEY, "-n", "many"], "'many' is not a valid integer range"),
    ],
)
def test_invalid_arguments_are_refused(
    own: Project, elt: Elt, words: list[str], expected: str
) -> None:
    script(own, [])
    error = elt.refuse("state", *words)
    assert expected in error["message"] and error["guidance"]
    assert not (own.home / "lake").exists()


def test_an_unknown_key_is_refused_with_the_known_keys(own: Project, elt: Elt) -> None:
    script(own, [])
    windowed(own)
    guidance = elt.refuse("state", "show", "nowhere/things")["guidance"]
    assert "scripted/things, weather/readings" in guidance


def test_a_key_of_a_translator_is_accepted(own: Project, elt: Elt) -> None:
    script(own, [])
    own.amend("scripted", translation={"key": "raw/{{ stream.name }}"})
    assert elt.json("state", "show", "raw/things")["asset"] == "raw/things"


def test_a_broken_connection_does_not_affect_other_connections(own: Project, elt: Elt) -> None:
    script(own, [])
    script(own, [], name="broken", destination_sync_mode="append_dedup", primary_key=[["nowhere"]])
    assert elt.json("state", "show", KEY)["sequence"] == 0
    assert "are not valid" in elt.refuse("state", "show", "broken/things")["message"]
    assert "not loadable: broken" in elt.refuse("state", "show", "other/things")["guidance"]


def test_a_stream_name_may_contain_a_slash(own: Project, elt: Elt) -> None:
    script(own, [])
    path = own.root / "defs" / "scripted" / "catalog.json"
    path.write_text(path.read_text().replace('"things"', '"a/b"'))
    own.amend("scripted", streams=[{"name": "a/b"}])
    assert elt.json("state", "show", "scripted/a/b")["asset"] == "scripted/a/b"
    assert elt.json("state", "show", r"scripted/a\/b")["asset"] == "scripted/a/b"
    catalog = json.loads(path.read_text())
    catalog["streams"].append({**catalog["streams"][0], "name": "b", "namespace": "a"})
    path.write_text(json.dumps(catalog))
    own.amend("scripted", streams=[{"name": "a/b"}, {"name": "b", "namespace": "a"}])
    tables = [elt.json("state", "show", f"scripted/{key}")["table"] for key in ("a/b", r"a\/b")]
    assert tables[0].endswith("/scripted/a/b") and tables[1] != tables[0]
