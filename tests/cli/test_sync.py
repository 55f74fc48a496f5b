"""`elt sync` and `elt list`: streams synced from the command line, and what there is to sync."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from elt_assets.cli import main
from elt_assets.cli.live import LiveProgress
from elt_assets.pipeline.progress import Phase, Progress
from tests.programs.scripted import record, script, state, status
from tests.programs.shared_source import append, connection, given
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import BIN, REPOSITORY, Project
from tests.support.runs import failure_of, materialize
from tests.support.small_disk import mounted

DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}


@pytest.mark.usefixtures("spark")
def test_a_sync_writes_rows_and_the_next_one_resumes_from_its_state(own: Project, elt: Elt) -> None:
    script(own, [record(id=1), record(id=2), state(2)])
    answer = elt.json("sync", "scripted")
    (stream,) = answer["streams"]
    assert stream == {
        "stream": "things",
        "complete": True,
        "read": 2,
        "committed": 2,
        "rejected": 0,
        "filtered": 0,
        "changed": 0,
        "changed_fields": [],
        "rejected_reasons": {},
        "undeclared_fields": {},
        "ignored_records": 0,
        "schema_changes": [],
    }
    assert (answer["complete"], answer["failed_checks"], answer["unchecked"]) == (True, [], [])
    assert answer["errors"] == []
    metadata = own.metadata("scripted", "things")
    assert (metadata["elt/records_read"], metadata["elt/state"]) == (
        2,
        own.committed_state("scripted", "things"),
    )
    script(own, [record(id=3), state(3)])
    output = elt("sync", "scripted", "things")
    assert re.search(r"things +│ +1 │ +1 │ +0 │ +0 │ complete", output)
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 2, 3]


@pytest.mark.usefixtures("spark")
def test_a_refresh_replaces_the_rows(own: Project, elt: Elt) -> None:
    script(own, [record(id=1), state(1)])
    elt("sync", "scripted")
    script(own, [record(id=2), state(2)])
    elt("sync", "scripted", "--refresh", "truncate")
    assert [row["id"] for row in own.rows("scripted", "things")] == [2]


@pytest.mark.usefixtures("spark")
def test_streams_with_a_shared_state_are_refreshed_together(own: Project, elt: Elt) -> None:
    log = connection(own)
    append(log, ("users", 1), ("orders", 2))
    assert elt.json("sync", "shop")["errors"] == []
    log.write_text("users 3\norders 4\n")
    answer = elt.json("sync", "shop", "--refresh", "truncate")
    assert [stream["complete"] for stream in answer["streams"]] == [True, True]
    assert [call["state"] for call in given(log)] == [None, None]
    assert [row["id"] for name in ("users", "orders") for row in own.rows("shop", name)] == [3, 4]


@pytest.mark.usefixtures("spark")
def test_one_partition_is_synced(own: Project, elt: Elt) -> None:
    windowed(own, partitions=DAILY)
    assert elt.json("sync", "weather", "--partition", "2026-01-05")["errors"] == []
    partitions = {row["_elt_partition"] for row in own.rows("weather", "readings")}
    assert partitions == {"2026-01-05"}
    assert "has partitions" in elt.refuse("sync", "weather")["message"]
    script(own, [])
    error = elt.refuse("sync", "scripted", "--partition", "2026-01-05")
    assert "has no partitions" in error["message"]


@pytest.mark.usefixtures("spark")
def test_failed_streams_and_warnings_are_reported(
    own: Project, elt: Elt, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = {"type": "LOG", "log": {"level": "WARN", "message": "the API is slow"}}
    script(own, [warning, record(id=1), "!exit 3"])
    answer = elt.json("sync", "scripted", code=1)
    assert answer["streams"][0]["complete"] is False
    assert answer["errors"][0]["failure_type"] == "system_error"
    assert "the API is slow" in answer["warnings"]
    assert main(["sync", "scripted"]) == 1
    output = capsys.readouterr()
    assert "failed" in output.out and "exit code 3" in output.out
    assert "warning: the API is slow" in output.err


@pytest.mark.usefixtures("spark")
def test_a_quiet_sync_says_little_and_a_verbose_one_all(
    own: Project, elt: Elt, capsys: pytest.CaptureFixture[str]
) -> None:
    news = [{"type": "LOG", "log": {"level": "INFO", "message": f"page {n}"}} for n in range(40)]
    measure = {"type": "slot_retained_bytes", "value": "56"}
    analytics = {
        "type": "TRACE",
        "trace": {"type": "ANALYTICS", "emitted_at": 1, "analytics": measure},
    }
    lines = [*news, "plain text", analytics, record(id=1), state(1), status("COMPLETE")]
    script(own, [status("STARTED"), *lines])
    assert main(["sync", "scripted"]) == 0
    quiet = [line for line in capsys.readouterr().err.splitlines() if " so far" not in line]
    quiet = [line for line in quiet if not line.startswith(("WARNING: Using", "reading", "2026-"))]
    assert len(quiet) <= 3 and not [line for line in quiet if "page" in line or "slot_" in line], (
        quiet
    )
    assert main(["sync", "scripted", "--verbose"]) == 0
    verbose = capsys.readouterr().err
    for part in ("INFO page 39\n", "INFO plain text\n", "slot_retained_bytes = 56\n"):
        assert part in verbose
    script(own, [*news, record(id=2), "!exit 3"])
    assert main(["sync", "scripted"]) == 1
    output = capsys.readouterr()
    assert "INFO page 39\n" in output.err and "INFO page 0\n" not in output.err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("retries", [0, 1])
def test_a_failed_stream_has_its_true_numbers(own: Project, elt: Elt, retries: int) -> None:
    """The second attempt reads the same lines again, since the source ignores its state."""
    failure = {
        "type": "ERROR",
        "emitted_at": 1,
        "error": {"message": "x", "failure_type": "transient_error"},
    }
    lines = [record(id=1), state(1), record(id=2), state(2), record(id=3)]
    script(own, [*lines, {"type": "TRACE", "trace": failure}, "!exit 1"])
    own.amend("scripted", checkpoint={"rows": 1}, retry={"attempts": retries, "delay": "0.1s"})
    answer = elt.json("sync", "scripted", code=1)
    (stream,) = answer["streams"]
    attempts = retries + 1
    counts = [stream[name] for name in ("complete", "read", "committed", "rejected")]
    assert counts == [False, 3 * attempts, 2 * attempts, 0]
    assert len(own.rows("scripted", "things")) == 2 * attempts


def test_an_unknown_partition_is_refused_before_a_sync_starts(own: Project, elt: Elt) -> None:
    keys = {"type": "static", "keys": ["north", "south"], "bind": "station"}
    for partitions, key, expected in [
        (DAILY, "2025-12-31", "partitions, from '2026-01-01' to '"),
        (DAILY, "yesterday", "partitions, from '2026-01-01' to '"),
        ({**DAILY, "start": "2999-01-01"}, "2026-01-01", "it has no partitions yet"),
        (keys, "west", "it has 'north', 'south'"),
        ({"type": "dynamic", "bind": "station"}, "west", "it has no partitions yet"),
        ({"type": "multi", "window": DAILY, "key": keys}, "west|2026-01-01", "partitions, from"),
        ({"type": "multi", "window": DAILY, "key": keys}, "2026-01-01", "partitions, from"),
        ({"type": "multi", "window": DAILY, "key": keys}, "a|b|c", "partitions, from"),
    ]:
        windowed(own, partitions=partitions)
        error = elt.refuse("sync", "weather", "--partition", key)
        assert f"stream 'readings' has no partition {key!r}" in error["message"], partitions
        assert expected in error["message"]


@pytest.mark.usefixtures("spark")
def test_streams_of_different_partitions_are_synced_in_a_run_for_each(
    own: Project, elt: Elt
) -> None:
    windowed(own)
    later = {**DAILY, "start": "2026-01-03"}
    streams = [("readings", DAILY), ("stations", later)]
    own.amend(
        "weather",
        streams=[{"name": name, "partitions": partitions} for name, partitions in streams],
    )
    answer = elt.json("sync", "weather", "--partition", "2026-01-05")
    assert [stream["complete"] for stream in answer["streams"]] == [True, True]
    assert len(set(answer["run_ids"])) == 2 and answer["run_ids"][0] == answer["run_id"]
    error = elt.refuse("sync", "weather", "--partition", "2026-01-02")
    assert "stream 'stations' has no partition '2026-01-02'" in error["message"]
    assert len(own.rows("weather", "stations")) == 2


def test_invalid_arguments_are_refused_before_a_sync_starts(own: Project, elt: Elt) -> None:
    script(own, [])
    assert "did you mean 'things'?" in elt.refuse("sync", "scripted", "thing")["guidance"]
    assert (
        "Invalid value for '--refresh'"
        in (elt.refuse("sync", "scripted", "--refresh", "all")["message"])
    )


BARS = """
import sys, time
from types import SimpleNamespace as Some
from elt_assets.cli.live import LiveProgress
from elt_assets.pipeline.progress import Phase, Progress
steps = [Progress(Phase.READING, read=250, estimate=1000), Progress(Phase.WRITING, read=1000, estimate=1000)]
def current_progress():
    return steps[0] if len(steps) == 1 else steps.pop(0)
read = Some(streams={"users": None}, partition=None, current_progress=current_progress)
with LiveProgress(is_enabled=True) as live:
    assert live.is_shown
    with live.watch(read):
        live.line("warning: slow")
        print("noise", file=sys.stderr, flush=True)
        time.sleep(1.2)
print("after", file=sys.stderr)
"""


def test_progress_bars_show_phase_rows_and_percentage_on_a_terminal() -> None:
    """The command runs in a process of its own, since the progress bars replace stderr."""
    ours, theirs = pty.openpty()
    blocks: list[bytes] = []

    def read() -> None:
        try:
            while block := os.read(ours, 65536):
                blocks.append(block)
        except OSError:  # the end of a pseudo-terminal
            pass

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    done = subprocess.run([sys.executable, "-c", BARS], stderr=theirs, env=environment, check=False)
    os.close(theirs)
    reader.join()
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(blocks).decode())
    assert done.returncode == 0, text
    for part in ("users", "reading", " 25%", "250 rows", "writing", "done", "1,000 rows", "100%"):
        assert part in text
    assert "warning: slow" in text and "after" in text
    assert "noise" not in text


def test_no_progress_bars_are_shown_without_a_terminal() -> None:
    with LiveProgress(is_enabled=True) as live:
        assert not live.is_shown
    assert Progress(Phase.READING).first_line() == "reading"


def test_connections_and_their_streams_are_listed(own: Project, elt: Elt) -> None:
    assert "there are no connections" in elt("list")
    script(own, [])
    windowed(own, partitions=DAILY)
    own.amend("scripted", schedule="0 6 * * *")
    connections = {entry["connection"]: entry for entry in elt.json("list")["connections"]}
    assert set(connections) == {"scripted", "weather"}
    assert connections["scripted"]["schedule"] == "0 6 * * *"
    assert (connections["weather"]["streams"], connections["weather"]["destination"]) == (1, "lake")
    (stream,) = elt.json("list", "weather")["streams"]
    assert (stream["asset"], stream["partitions"]) == ("weather/readings", "daily")
    assert "weather/readings" in elt("list", "weather")
    own.connection("typo", sauce={"connector": "faker"}, streams=[{"name": "users"}])
    answer = elt.json("list", code=1)
    assert len(answer["connections"]) == 2 and "typo cannot be loaded" in answer["warnings"][0]


def test_the_shell_completes_commands_options_and_connections(
    own: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [])
    monkeypatch.setenv("_ELT_COMPLETE", "bash_complete")
    for words, number, expected in (
        ("elt s", 1, ["sync", "status", "sql", "state"]),
        ("elt discover --d", 2, ["--dry-run"]),
        ("elt check scr", 2, ["scripted"]),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(number))
        with pytest.raises(SystemExit, match="0"):
            main([])
        lines = capsys.readouterr().out.splitlines()
        assert [line.partition(",")[2] for line in lines] == expected


# Faults of the machine


def test_a_full_disk_ends_all_partitions(
    own: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others would fail in the same way, after the source was read for each."""
    windowed(own, partitions={**DAILY, "end": "2026-01-06", "partitions_per_run": 5})
    with mounted(tmp_path / "staging", "4k") as staging:
        monkeypatch.setenv("ELT_STAGING", str(staging))
        result = materialize(
            own, 'key:"weather/readings"', partition="2026-01-01", through="2026-01-05"
        )
    assert "the disk is full, while records were staged in" in failure_of(result)
    assert "1 of 5 partitions failed" in failure_of(result)


def test_an_interruption_ends_the_sync_and_is_not_retried(own: Project) -> None:
    script(own, [record(id=1), state(1), "!sleep 600"])
    own.amend("scripted", retry={"attempts": 3, "delay": 0})
    arguments = own.root / "scripted-source" / "arguments.json"
    process = subprocess.Popen(
        [BIN / "elt", "sync", "scripted"],
        cwd=REPOSITORY,
        env=own.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    late = threading.Timer(300, process.kill)
    late.start()
    while process.poll() is None and not arguments.exists():
        time.sleep(0.05)
    arguments.unlink(missing_ok=True)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    late.cancel()
    assert process.returncode == 130, output
    assert "the sync was interrupted; what was committed is kept" in output
    assert "Traceback" not in output
    assert not arguments.exists()
