"""`elt status` of many streams: who needs a person, in which order, and that each next step resolves it."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from typing import Any

import dagster as dg
import pytest

from elt_assets.cli import main
from elt_assets.orchestration.days import Day, to_json
from tests.orchestration.ticking import instance_of, run_job
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import materialize

TIME = dt.datetime.now(dt.timezone.utc)


def fail(message: str) -> list[Any]:
    error = {"message": message, "failure_type": "config_error"}
    return [
        {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}},
        "!exit 1",
    ]


def age(project: Project, connection: str, ago: dt.timedelta, **metadata: Any) -> None:
    """Let the last sync of a stream be one that ended before, with other metadata."""
    with instance_of(project) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey([connection, "things"]))
        assert event is not None and event.dagster_event is not None
        data: Any = event.dagster_event.event_specific_data
        changed = data.materialization.with_metadata({**data.materialization.metadata, **metadata})
        entry = event._replace(
            timestamp=(TIME - ago).timestamp(),
            dagster_event=event.dagster_event._replace(
                event_specific_data=data._replace(materialization=changed)
            ),
        )
        instance.event_log_storage.store_event(entry)


def needs(elt: Elt, *words: str, code: int = 0) -> dict[str, Any]:
    """Return the most pressing concern of each stream, by its connection."""
    answer = elt.json("status", *words, code=code)
    return {
        entry["connection"]: stream["needs"]
        for entry in answer["connections"]
        for stream in entry["streams"]
    }


def next_step(elt: Elt, connection: str, code: int = 0) -> str:
    (stream,) = elt.json("status", connection, code=code)["streams"]
    step: str = stream["concerns"][0]["next_step"]
    return step


def take(elt: Elt, connection: str, code: int = 0) -> None:
    """Do what the status says is the next step: a command."""
    program, *words = shlex.split(next_step(elt, connection))
    assert program == "elt"
    assert main(words) == code, words
    elt.capture.readouterr()


def test_each_next_step_resolves_its_need(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elt_assets.cli.output._WIDTH", 80)
    script(own, [state(1)], name="fine")
    script(own, fail("the password of the user crm is wrong, and of no other one"), name="wrong")
    script(own, [state(1)], name="late", schedule="0 * * * *")
    script(own, [state(1)], name="new_one")
    for name in ("fine", "late"):
        elt("sync", name)
    assert main(["sync", "wrong"]) == 2
    elt.capture.readouterr()
    assert needs(elt, "--stale") == {}  # it has had the time that a sync has
    age(own, "late", dt.timedelta(days=2))
    expected = {"wrong": "failed", "late": "stale", "new_one": "never", "fine": None}
    assert needs(elt) == expected
    text = elt("status")
    assert text.splitlines()[0] == (
        "4 streams: 1 fine; 3 need a person: 1 failed, 1 stale, 1 never synced"
    )
    assert max(map(len, text.splitlines()[1:])) <= 80
    places = [text.index(f" {name}/things") for name in ("wrong", "late", "new_one", "fine")]
    assert places == sorted(places)
    words = " ".join(text.split())
    assert "the password of the user crm is wrong" in words, text
    assert "next: elt sync wrong things" in words
    assert "late__things_schedule is off in Dagster: turn it on" in words
    # For cron: exit code 1 as long as there is something.
    assert needs(elt, "--failed", code=1) == {"wrong": "failed"}
    assert needs(elt, "--stale", code=1) == {"late": "stale"}
    assert needs(elt, "--failed", "--stale", code=1).keys() == {"wrong", "late"}
    script(own, [state(1)], name="wrong")
    for name in ("wrong", "late", "new_one"):
        take(elt, name)
    assert set(needs(elt, "--failed", "--stale").values()) == set()
    assert elt("status").splitlines()[0] == "4 streams: 4 fine"


@pytest.mark.usefixtures("spark")
def test_failed_checks_and_growth_have_a_next_step(own: Project, elt: Elt) -> None:
    script(own, [record(id=1, name="a"), state(1)], checks={"not_null": {"columns": ["name"]}})
    elt("sync", "scripted")
    days = {
        (TIME - dt.timedelta(days=n)).date().isoformat(): Day(1, seconds=30)
        for n in range(9, 0, -1)
    }
    history = {"elt/days": dg.MetadataValue.json(to_json(days)), "elt/seconds": 100.0}
    age(own, "scripted", dt.timedelta(), **history)
    (stream,) = elt.json("status", "scripted")["streams"]
    assert stream["needs"] == "growing"
    assert (
        stream["concerns"][0]["text"]
        == "duration of a sync: 100 s; at most 30 s on the 9 days before"
    )
    assert stream["concerns"][0]["next_step"].startswith("elt preview scripted things, or set")
    elt("preview", "scripted", "things")
    own.amend("scripted", streams=[{"name": "things", "sync_mode": "incremental",
              "destination_sync_mode": "append", "checks": {"row_count": {"max": 10}}}])  # fmt: skip
    script(own, [record(id=2, name=None), state(2)], checks={"not_null": ["name"]})
    assert main(["sync", "scripted"]) == 3
    elt.capture.readouterr()
    (stream,) = elt.json("status", "scripted")["streams"]
    assert [concern["kind"] for concern in stream["concerns"]] == [
        "check"
    ]  # and of normal duration
    assert stream["concerns"][0]["text"] == "check failed: not_null_name"
    take(elt, "scripted", code=3)  # the row is still there


@pytest.mark.usefixtures("spark")
def test_rejected_records_and_unmaintained_tables_have_a_next_step(own: Project, elt: Elt) -> None:
    own_stream: Any = {
        "checks": {"rejected": {"severity": "error"}, "small_files": {"max": 1}},
        "destination_sync_mode": "append_dedup",
        "primary_key": [["id"]],
    }
    for number in range(3):
        script(own, [record(id=number), record(name="x"), state(number)], **own_stream)
        assert main(["sync", "scripted"]) == 3
    elt.capture.readouterr()
    (stream,) = elt.json("status", "scripted")["streams"]
    steps = {concern["kind"]: concern["next_step"] for concern in stream["concerns"]}
    assert stream["needs"] == "check" and steps["check"] == "elt replay scripted things"
    elt("replay", "scripted", "things")
    assert "elt_maintenance" in steps["warning"] and "maintenance_schedule" in steps["warning"]
    assert run_job(own, "elt_maintenance").success
    (stream,) = elt.json("status", "scripted")["streams"]
    assert "warning" not in [concern["kind"] for concern in stream["concerns"]]


@pytest.mark.usefixtures("spark")
def test_a_failed_partition_is_synced_by_the_next_step(own: Project, elt: Elt) -> None:
    daily = {"type": "daily", "start": "2026-01-01", "end": "2026-01-03"}
    windowed(own, partitions={**daily, "bind": {"start": "from", "end": "to"}})
    definition = (own.root / "defs" / "weather" / "defs.yaml").read_text()
    own.amend("weather", source={"command": ["false"]})
    assert not materialize(own, 'key:"weather/readings"', partition="2026-01-02").success
    (own.root / "defs" / "weather" / "defs.yaml").write_text(definition)
    assert next_step(elt, "weather") == "elt sync weather readings --partition 2026-01-02"
    take(elt, "weather")
    (stream,) = elt.json("status", "weather")["streams"]
    assert stream["needs"] is None and stream["partitions"]["failed"] == 0


def test_streams_with_one_cause_share_a_paragraph(own: Project, elt: Elt) -> None:
    names = [f"s{number}" for number in range(7)]
    script(own, [], name="shop")
    folder = own.root / "defs" / "shop"
    catalog = json.loads((folder / "catalog.json").read_text())
    (things,) = catalog["streams"]
    catalog["streams"] = [{**things, "name": name} for name in names]
    (folder / "catalog.json").write_text(json.dumps(catalog))
    own.amend("shop", streams=[{"name": name, "sync_mode": "incremental"} for name in names])
    text = elt("status")
    assert "7 streams: 0 fine; 7 need a person: 7 never synced" in text
    (line,) = [line for line in text.splitlines() if line.startswith("never synced ")]
    assert line == (
        "never synced shop/s0, shop/s1, shop/s2, shop/s3, shop/s4 and 2 more: never synced"
    )
    assert "  next: elt sync shop s0 (and so on)" in text


def test_without_connections_there_is_nothing_to_say(own: Project, elt: Elt) -> None:
    assert elt("status") == "0 streams: 0 fine\n"
    (own.root / "defs" / "broken").mkdir()
    (own.root / "defs" / "broken" / "defs.yaml").write_text("type: elt_assets.ConnectionComponent")
    answer = elt.json("status", code=1)
    assert answer["summary"] == {"streams": 0, "fine": 0, "states": {}}
