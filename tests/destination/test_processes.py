"""`elt-destination` as a process: its streams, its signals, and what is left when it is gone."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from tests.destination.running import Destination, Json, lines, records, state, stream
from tests.support.project import BIN, REPOSITORY

pytestmark = pytest.mark.spark

EAGER = {"checkpoint": {"rows": 1}}
LONGEST = 300
"""Seconds, after which a process that says nothing is ended, and its test fails."""


@pytest.fixture
def destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Destination:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    return Destination(tmp_path, None, EAGER)


@pytest.fixture
def running(destination: Destination) -> Iterator[subprocess.Popen[bytes]]:
    """A `write` process that has written no output yet."""
    process = _start(destination, subprocess.PIPE)
    late = threading.Timer(LONGEST, process.kill)
    late.start()
    yield process
    late.cancel()
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _start(
    destination: Destination, stdin: int | IO[bytes], *streams: Json
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [BIN / "elt-destination", *destination.arguments(*(streams or [stream()]))],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )


def _say(process: subprocess.Popen[bytes], *messages: Json) -> None:
    assert process.stdin is not None
    process.stdin.write(lines(messages))
    process.stdin.flush()


def _next_state(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        message = json.loads(line)
        if message["type"] == "STATE":
            return message["state"]["stream"]["stream_state"]
    return None


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in child.name() for child in children)
    return children


def test_a_state_is_acknowledged_while_the_source_is_silent(
    destination: Destination, running: subprocess.Popen[bytes]
) -> None:
    _say(running, *records(1), state(1))
    assert _next_state(running) == 1  # no other output, and stdin stays open
    assert destination.ids() == [1]


@pytest.mark.spec("protocol.35")
def test_acknowledged_records_survive_a_kill_during_a_sync(
    destination: Destination, running: subprocess.Popen[bytes]
) -> None:
    _say(running, *records(1), state(1))
    assert _next_state(running) == 1
    family = _family(running)
    for number in range(2, 50):
        _say(running, *records(number), state(number))
    acknowledged = _next_state(running)
    running.kill()
    while (later := _next_state(running)) is not None:
        acknowledged = later

    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert set(range(1, acknowledged + 1)) <= set(destination.ids())
    assert len(destination.ids()) == len(set(destination.ids()))


@pytest.mark.spec("protocol.36")
def test_a_killed_overwrite_without_a_generation_has_acknowledged_nothing(
    destination: Destination,
) -> None:
    """The next sync begins again; a source that resumed from a state would leave out what came before."""
    overwrite = stream(mode="overwrite")
    sent = lines([*records(1), state(1), *records(2), state(2)])
    process = _start(destination, subprocess.PIPE, overwrite)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(sent + lines(records(0, name="strangers")))
    process.stdin.flush()
    assert b"ignoring the records" in process.stdout.readline()  # all before them is read
    time.sleep(2)
    process.kill()
    output, _ = process.communicate()
    assert b'"STATE"' not in output

    again = _start(destination, subprocess.PIPE, overwrite)
    output, _ = again.communicate(sent, timeout=LONGEST)
    assert [json.loads(line)["type"] for line in output.splitlines()].count("STATE") == 2
    assert (again.returncode, destination.ids()) == (0, [1, 2])


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_signal_stops_the_process_before_another_commit(
    destination: Destination, running: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    _say(running, *records(1), state(1))
    assert _next_state(running) == 1
    family = _family(running)
    _say(running, *records(2))
    time.sleep(0.5)  # it is read, and waits for its state

    running.send_signal(number)

    assert running.wait(60) == 128 + number
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert destination.ids() == [1]
    assert list(destination.folder.glob("home/staging/*")) == []


@pytest.mark.spec("protocol.14")
def test_stdout_has_only_messages(destination: Destination, tmp_path: Path) -> None:
    """Whatever Spark, Java and this process say besides."""
    settings = tmp_path / "spark.conf"
    settings.write_text(
        "spark.driver.extraJavaOptions -XX:+PrintFlagsFinal\n"  # hundreds of lines, on stdout
    )
    destination.config = {**EAGER, "spark": str(settings)}
    (tmp_path / "in.jsonl").write_bytes(lines([*records(1), state(1)]))

    with (tmp_path / "in.jsonl").open("rb") as messages:
        process = _start(destination, messages)
        output, _ = process.communicate(timeout=300)

    assert process.returncode == 0
    assert {json.loads(line)["type"] for line in output.splitlines()} == {"LOG", "STATE"}
    assert destination.ids() == [1]


def test_the_process_ends_if_its_output_is_closed(
    destination: Destination, running: subprocess.Popen[bytes]
) -> None:
    assert running.stdout is not None
    running.stdout.close()
    _say(running, *records(1), state(1))
    assert running.wait(120) == 1


@pytest.mark.long  # some twenty minutes; tests/sync/test_session.py has the short form
def test_ten_thousand_streams_can_take_turns(destination: Destination, tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(10_000)]
    (tmp_path / "in.jsonl").write_bytes(
        lines([*(r for n in (1, 2) for s in names for r in records(n, name=s))])
        + lines([state(2, name) for name in names])
    )
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with (tmp_path / "in.jsonl").open("rb") as messages:
            process = _start(destination, messages, *map(stream, names))
            output, _ = process.communicate()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert process.returncode == 0
    assert output.count(b'"type":"STATE"') == len(names)
    assert {tuple(destination.ids(name)) for name in names[::1000]} == {(1, 2)}
