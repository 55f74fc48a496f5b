"""`elt status`: when each stream was synced last, how that ended, and what its table has."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

import pytest

from elt_assets.cli import main
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import BIN, REPOSITORY, Project
from tests.support.runs import materialize

DAILY = {"type": "daily", "start": "2026-01-01", "end": "2026-01-06"}
BIND = {"bind": {"start": "from", "end": "to"}}
THINGS = 'key:"scripted/things"'


def status(elt: Elt, connection: str = "scripted", code: int = 0) -> Any:
    (stream,) = elt.json("status", connection, code=code)["streams"]
    return stream


def fail(message: str) -> list[Any]:
    error = {"message": f"{message}\nand more", "failure_type": "config_error"}
    return [
        {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}},
        "!exit 1",
    ]


@pytest.mark.usefixtures("spark")
def test_a_failure_after_a_complete_sync_is_told_with_both_times(own: Project, elt: Elt) -> None:
    script(own, [record(id=1), record(id="?"), state(2)], checks={"not_null": "name"})
    elt.json("sync", "scripted", code=3)
    stream = status(elt)
    assert (stream["result"], stream["last_failure"], stream["rows"]) == ("complete", None, 2)
    assert {(check["check"], check["severity"]) for check in stream["failed_checks"]} == {
        ("changed", "WARN"), ("not_null_name", "ERROR"),
    }  # fmt: skip
    assert stream["figures"]["changed_fields"][0]["field"] == "id"
    last = dt.datetime.fromisoformat(stream["last_sync"])
    assert last.tzinfo == dt.timezone.utc and 0 <= stream["seconds_ago"] < 300
    assert stream["seconds_ago"] <= (dt.datetime.now(dt.timezone.utc) - last).total_seconds() + 1
    script(own, fail("the token has expired"))
    assert main(["sync", "scripted"]) == 2
    elt.capture.readouterr()
    stream = status(elt)
    assert (stream["result"], stream["last_sync"]) == ("failed", last.isoformat())
    assert "the token has expired" in stream["last_failure"]["message"]
    assert "and more" not in str(stream["last_failure"])
    assert dt.datetime.fromisoformat(stream["last_failure"]["time"]) >= last
    output = elt("status", "scripted")
    assert f"{last:%Y-%m-%d %H:%M} UTC (" in output and " s ago)" in output
    assert "failed things: " in output and "the token has expired" in output
    script(own, [state(3)])
    elt("sync", "scripted")
    stream = status(elt)
    assert (stream["result"], stream["last_failure"], stream["figures"]["read"]) == (
        "complete",
        None,
        0,
    )
    shutil.rmtree(own.home / "lake" / "scripted")
    stream = status(elt)
    assert (stream["result"], stream["has_table"], stream["rows"]) == ("complete", False, 0)
    assert "no table" in elt("status", "scripted")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("width", ["80", "180"])
def test_the_table_has_no_state_and_no_path_and_fits_a_narrow_terminal(
    own: Project, elt: Elt, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elt_assets.cli.output._WIDTH", int(width))
    script(own, [record(id=1), record(id="?"), state({"long": "x" * 300})])
    elt("sync", "scripted")
    output = elt("status", "scripted")
    assert "xxx" not in output and str(own.home) not in output
    assert max(map(len, output.splitlines())) <= int(width)
    for part in ("complete", "1 failed", "UTC", "ago"):
        assert part in output
    assert "1 changed" in output.replace("\n", "") or "changed" in output
    state_table = elt("status", "scripted", "--state")
    assert "xxx" in state_table and "incremental" in state_table


@pytest.mark.usefixtures("spark")
def test_partitions_are_counted_by_their_state(own: Project, elt: Elt) -> None:
    windowed(own, partitions={**DAILY, **BIND})
    assert status(elt, "weather")["partitions"] == {
        "all": 5,
        "complete": 0,
        "failed": 0,
        "running": 0,
    }
    assert materialize(
        own, 'key:"weather/readings"', partition="2026-01-02", through="2026-01-03"
    ).success
    own.amend("weather", source={"command": ["false"]})
    assert not materialize(own, 'key:"weather/readings"', partition="2026-01-04").success
    stream = status(elt, "weather")
    assert stream["partitions"] == {"all": 5, "complete": 2, "failed": 1, "running": 0}
    assert (stream["result"], stream["last_failure"] is None) == ("failed", False)
    assert "2 of 5 partitions, 1 failed" in elt("status", "weather")


@pytest.mark.usefixtures("spark")
def test_a_blocking_check_makes_no_failed_sync_and_a_new_name_no_sync(
    own: Project, elt: Elt
) -> None:
    script(own, [record(id=1), state(1)], checks={"fail_run": True, "not_null": "name"})
    assert main(["sync", "scripted"]) == 3
    elt.capture.readouterr()
    stream = status(elt)
    assert (stream["result"], len(stream["failed_checks"])) == ("complete", 1)
    catalog = own.root / "defs" / "scripted" / "catalog.json"
    catalog.write_text(catalog.read_text().replace('"things"', '"goods"'))
    own.amend("scripted", streams=[{"name": "goods", "sync_mode": "incremental"}])
    elt("rename", "scripted", "things", "goods")
    stream = status(elt)
    assert (stream["result"], stream["rows"], stream["figures"]) == ("unknown", 1, None)
    assert stream["last_sync"] is not None and stream["state"] == {"cursor": 1}


@pytest.mark.usefixtures("spark")
def test_a_table_that_cannot_be_read_hides_no_other_stream(own: Project, elt: Elt) -> None:
    script(own, [record(id=1), state(1)])
    script(own, [record(id=1), state(1)], name="other")
    for name in ("scripted", "other"):
        elt("sync", name)
    log = own.home / "lake" / "scripted" / "things" / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text("{")
    answer = elt.json("status", code=1)
    by_name = {entry["connection"]: entry["streams"][0] for entry in answer["connections"]}
    assert by_name["other"]["rows"] == 1 and by_name["scripted"]["rows"] is None
    assert by_name["scripted"]["error"] and by_name["scripted"]["result"] == "complete"
    assert "things: the table cannot be read" in answer["warnings"][0]


def test_a_running_sync_and_a_killed_one_are_told_apart(own: Project, elt: Elt) -> None:
    script(own, ["!sleep 600"])
    arguments = own.root / "scripted-source" / "arguments.json"
    process = subprocess.Popen(
        [BIN / "elt", "sync", "scripted"], cwd=REPOSITORY, env=own.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 300
    while process.poll() is None and not arguments.exists() and time.monotonic() < end:
        time.sleep(0.05)
    stream = status(elt)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (stream["result"], stream["last_sync"]) == ("running", None)
    for _ in range(2):  # before a later run marks it, and after
        stream = status(elt)
        assert stream["result"] == "failed", json.dumps(stream)
        assert "it was probably killed" in stream["last_failure"]["message"]
        script(own, fail("later"), name="later")
        main(["sync", "later"])
        elt.capture.readouterr()
