"""A run that fails says why, keeps what was committed, and the next one goes on from there."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import dagster as dg
import psutil
import pytest

from elt_assets.lake.session import SparkProvider
from tests.programs.hostile_source import gone
from tests.programs.scripted import record, script, state, status
from tests.programs.windowed_source import calls, windowed
from tests.support.project import Project
from tests.support.runs import (
    evaluations,
    failure_of,
    fetch_materializations,
    materialize,
    read_log,
)

pytestmark = pytest.mark.usefixtures("spark_provider")

FIRST = [status("STARTED"), record(id=1), record(id=2), state(2)]


def _states_given(project: Project) -> Any:
    """The state file of the source's last read is gone by now: its place shows that it got one."""
    arguments = json.loads((project.root / "scripted-source" / "arguments.json").read_text())
    return "--state" in arguments


@pytest.mark.spec("protocol.100")
@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (["!exit 3"], "exit code 3"),
        (["!kill"], "SIGKILL"),
        ([record(id=3)], "without completing stream 'things'"),
        ([status("INCOMPLETE"), state(99)], "without completing stream 'things'"),
        (['{"type":"RECORD","record":{"stream":"things","da'], "malformed RECORD"),
    ],
)
def test_a_failed_run_keeps_committed_rows_and_the_next_run_resumes(
    own: Project, ending: list[Any], reason: str
) -> None:
    script(own, [*FIRST, record(id=3), *ending])
    assert reason in failure_of(materialize(own))
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 2]
    assert own.committed_state("scripted", "things") == state(2)["state"]

    script(own, [status("STARTED"), record(id=3), state(3), status("COMPLETE")])
    assert materialize(own).success
    assert _states_given(own)
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 2, 3]


def test_the_failure_shows_the_last_error_trace(own: Project) -> None:
    error = {"message": "Your key has expired", "failure_type": "config_error"}
    trace = {"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}}
    script(own, [trace, "!exit 1"])
    text = failure_of(materialize(own))
    assert "Your key has expired" in text
    assert "exit code 1" in text


def test_a_failed_overwrite_keeps_the_former_table(own: Project) -> None:
    stream: dict[str, Any] = {
        "sync_mode": "full_refresh",
        "destination_sync_mode": "overwrite",
    }
    script(own, [record(id=1), record(id=2)], **stream)
    assert materialize(own).success
    script(own, [record(id=7), "!exit 1"], **stream)
    assert not materialize(own).success
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 2]
    script(own, [record(id=8)], **stream)
    assert materialize(own).success
    assert [row["id"] for row in own.rows("scripted", "things")] == [8]


@pytest.mark.usefixtures("details")
def test_lines_that_are_not_messages_are_logged(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain text with the details, what looks like a message as an event."""
    script(own, ["hello there", '{"type":"GOSSIP"}', '{"unfinished', *FIRST, status("COMPLETE")])
    result = materialize(own)
    assert result.success
    assert "INFO hello there\n" in capsys.readouterr().err
    assert "GOSSIP" in read_log(own, result)


@pytest.mark.spec("airbyte.11")
def test_a_config_that_violates_the_specification_fails_before_the_read(own: Project) -> None:
    specification = {
        "type": "object",
        "required": ["host"],
        "properties": {
            "port": {"type": "integer"},
            "password": {"type": "string", "airbyte_secret": True, "minLength": 30},
        },
    }
    config = {"port": "eighty", "password": "hunter2hunter2"}
    script(own, FIRST, specification=specification, config=config)
    result = materialize(own)
    text = failure_of(result) + read_log(own, result)
    assert "config.port" in text
    assert "'host' is a required property" in text
    assert "config.password" in text
    assert "hunter2" not in text
    assert not (own.root / "scripted-source" / "arguments.json").exists()


def test_only_warnings_of_a_connector_become_events_of_the_run(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else is shown, however much it is, unless the sync fails: then the last lines are."""
    levels = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "NEWER")
    lines = [
        {"type": "LOG", "log": {"level": level, "message": f"logged at {level}"}}
        for level in levels
    ]
    estimate = {"name": "things", "type": "STREAM", "row_estimate": 1}
    trace = {"type": "ESTIMATE", "emitted_at": 1, "estimate": estimate}
    script(own, [*lines, *[{"type": "TRACE", "trace": trace}] * 5_000, *FIRST, status("COMPLETE")])
    result = materialize(own)
    assert result.success
    events, rest = read_log(own, result), capsys.readouterr().err
    assert [level for level in levels if f"logged at {level}" in events] == ["WARN", "ERROR"]
    assert "logged at INFO" not in rest and "the source estimates" not in events + rest
    many = [{"type": "LOG", "log": {"level": "INFO", "message": f"step {n}"}} for n in range(100)]
    script(own, [*many, *FIRST, "!exit 3"])
    result = materialize(own)
    assert not result.success
    text = read_log(own, result).partition("the last lines of the connector's log:\n")[2]
    assert "INFO step 99\n" in text and "step 69\n" not in text and "step 70\n" in text


def test_secrets_are_masked_in_the_log(
    own: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THE_KEY", "s3cr3t-value")
    leak = {"type": "LOG", "log": {"level": "INFO", "message": "key is s3cr3t-value"}}
    trace = {"type": "ERROR", "emitted_at": 1, "error": {"message": "bad key s3cr3t-value"}}
    script(
        own,
        [*FIRST, leak, {"type": "TRACE", "trace": trace}, "!exit 1"],
        config={"k": {"env": "THE_KEY"}},
    )
    result = materialize(own)
    text = failure_of(result) + read_log(own, result) + capsys.readouterr().err
    assert "key is ****" in text
    assert "s3cr3t" not in text
    files = [path for path in own.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".parquet" for path in files)  # what was committed before
    assert not [path for path in files if b"s3cr3t" in bytes(path) + path.read_bytes()]


def test_the_failure_names_an_environment_variable_that_is_not_set(own: Project) -> None:
    script(own, FIRST, config={"k": {"env": "SURELY_NOT_SET"}})
    assert "SURELY_NOT_SET" in failure_of(materialize(own))


def test_the_failure_names_a_missing_connector(own: Project) -> None:
    script(own, FIRST, command=["no-such-connector"])
    assert "'no-such-connector' was not found" in failure_of(materialize(own))


def test_the_failure_of_a_global_state_names_the_required_setting(own: Project) -> None:
    shared = {"type": "GLOBAL", "global": {"stream_states": [], "shared_state": {"lsn": 1}}}
    script(own, [record(id=1), {"type": "STATE", "state": shared}])
    path = own.root / "scripted-source" / "catalog.json"
    (things,) = json.loads(path.read_text())["streams"]
    for catalog in (path, own.root / "defs" / "scripted" / "catalog.json"):
        catalog.write_text(json.dumps({"streams": [things, {**things, "name": "others"}]}))
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    own.amend("scripted", streams=[{"name": name, **modes} for name in ("things", "others")])
    result = materialize(own, 'key:"scripted/things"')
    assert "read_together" in failure_of(result)


def test_an_unwritable_staging_folder_fails_the_run_without_losing_rows(
    own: Project, spark_provider: SparkProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, FIRST)
    monkeypatch.setenv("ELT_STAGING", "/dev/full/staging")
    assert not materialize(own).success
    monkeypatch.delenv("ELT_STAGING")
    assert materialize(own, select="*").success is False  # STARTED, never COMPLETE
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 2]


@pytest.mark.parametrize("variable", ["ELT_LAKE", "ELT_STAGING"])
def test_an_unwritable_folder_is_reported_before_the_source_is_read(
    own: Project, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (own.root / "file").touch()
    place = own.root / "file" / "below"
    monkeypatch.setenv(variable, str(place))
    file = windowed(own)
    own.amend("weather", retry={"attempts": 2, "delay": "1h"})
    text = failure_of(materialize(own, 'key:"weather/readings"'))
    assert f"cannot be written to: {place}" in text
    assert f"or change {variable}" in text
    assert not calls(file)


def test_the_error_of_the_default_lake_names_dagster_home(own: Project) -> None:
    windowed(own)
    (own.home / "lake").touch()
    text = failure_of(materialize(own, 'key:"weather/readings"'))
    assert f"cannot be written to: {own.home / 'lake'}" in text
    assert "DAGSTER_HOME (or ELT_LAKE)" in text


OVERWRITE: dict[str, Any] = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}


@pytest.mark.spec("protocol.95")
def test_a_stream_without_messages_keeps_its_rows(own: Project) -> None:
    script(own, [record(id=1)], **OVERWRITE)
    assert materialize(own).success
    script(own, [], **OVERWRITE)
    result = materialize(own)
    assert result.success
    assert "stream 'things': the source sent no message about it" in read_log(own, result)
    completed = evaluations(result)["completed"]
    assert (completed.passed, completed.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]

    script(own, [status("STARTED"), status("COMPLETE")], **OVERWRITE)
    assert materialize(own).success
    assert own.rows("scripted", "things") == []


@pytest.mark.spec("protocol.94")
def test_a_stream_that_the_source_renamed_fails_its_check(own: Project) -> None:
    renamed = {"type": "RECORD", "record": {"stream": "stuff", "data": {"id": 2}, "emitted_at": 1}}
    script(own, [renamed, renamed])
    result = materialize(own)
    assert result.success
    completed = evaluations(result)["completed"]
    assert (completed.passed, completed.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert fetch_materializations(own, "scripted", "things")[None]["elt/records_ignored"] == 2


def test_a_program_without_messages_fails_the_run(own: Project) -> None:
    script(own, ["usage: do-something [FILE]", "no such verb: read"])
    text = failure_of(materialize(own))
    assert "2 lines that are not messages" in text


def test_a_terminated_run_leaves_no_processes(own: Project) -> None:
    script(own, [record(id=1), state(1), "!sleep 600"])
    run = own.start('key:"scripted/things"')
    processes: list[psutil.Process] = []
    try:
        _wait(lambda: _is_running(str(own.root / "scripted-source"), "read"), seconds=180)
        processes = psutil.Process(run.pid).children(recursive=True)
        run.terminate()
        assert run.wait(180) != 0
        assert [process for process in processes if not gone(process.pid)] == []
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        run.kill()
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.FAILURE]


def _is_running(*words: str) -> bool:
    lines = (
        " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
    )
    return any(
        "tests.programs.scripted" in line and all(word in line for word in words) for line in lines
    )


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
