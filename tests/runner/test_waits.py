"""Every wait for a connector has a limit, a cancel ends it, and no process of a connector survives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from elt_assets.errors import TransientError
from elt_assets.protocol.catalog import AirbyteStream, ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.messages import SLICES, Message
from elt_assets.protocol.singer_catalog import read_catalog
from elt_assets.runner.connector import Connector
from elt_assets.runner.locks import exclusive
from elt_assets.runner.marked_processes import MARK
from elt_assets.runner.process import Process
from elt_assets.runner.singer_tap import SingerTap
from tests.programs.hostile_source import gone, hostile_source, program
from tests.support.connector_specs import command_spec
from tests.support.source import USERS

CLOSED = "os.close(1)\ntime.sleep(600)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.close(1)\nos.close(2)\ntime.sleep(600)"
ENDED = "closed its output, but did not end within 1 seconds, and was stopped"

Verb = Callable[[Connector], Any]
VERBS: dict[str, Verb] = {
    "check": lambda source: source.check(),
    "discover": lambda source: source.discover(),
    "read": lambda source: list(source.read(USERS)),
    "read whole": lambda source: list(source.read(USERS, whole=True)),
    "read runs": lambda source: list(source.read(USERS, runs=True)),
    "write": lambda source: list(source.write(USERS, [b"{}\n"])),
    "partitions": lambda source: list(source.partitions(USERS)),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_program_that_closes_its_output_and_lives_is_ended(verb: Verb, tmp_path: Path) -> None:
    script = f"say('CONNECTION_STATUS', connectionStatus={{'status': 'SUCCEEDED'}})\n{CLOSED}"
    with pytest.raises(TransientError, match=ENDED):
        verb(hostile_source(tmp_path, script, heartbeat=1))


TAP = read_catalog(
    b'{"streams": [{"tap_stream_id": "users", "stream": "users", "schema": {"properties": {}}}]}'
)
TAP_VERBS: dict[str, Verb] = {
    "check": lambda tap: tap.check(),
    "discover": lambda tap: tap.discover(),
    "read": lambda tap: list(
        tap.read(
            ConfiguredCatalog([ConfiguredStream(stream=TAP.streams[0], sync_mode="full_refresh")])
        )
    ),
}


@pytest.mark.parametrize("verb", TAP_VERBS.values(), ids=TAP_VERBS)
def test_a_tap_that_closes_its_output_and_lives_is_ended(verb: Verb, tmp_path: Path) -> None:
    command = [program(tmp_path, "if '--about' in sys.argv: exit(1)\n" + CLOSED)]
    tap = SingerTap(command_spec(command, {}, tmp_path / "work", "tap", heartbeat=1))
    with pytest.raises(TransientError, match=ENDED):
        verb(tap)


def test_a_deadline_ends_the_wait_for_the_exit(tmp_path: Path) -> None:
    source = hostile_source(tmp_path, DEAF, deadlines={"discover": 1})
    with pytest.raises(TransientError, match="took longer than 1 seconds"):
        source.discover()


def test_a_cancel_ends_the_wait_for_the_exit(tmp_path: Path) -> None:
    source = hostile_source(tmp_path, f"record({{}})\n{DEAF}")
    failures: list[Exception] = []
    read = threading.Event()

    def run() -> None:
        try:
            for _ in source.read(USERS):
                read.set()
        except TransientError as error:
            failures.append(error)

    reader = threading.Thread(target=run)
    reader.start()
    assert read.wait(30)
    source.cancel()
    reader.join(45)  # less than the limit of the exit
    assert not reader.is_alive() and "was stopped" in str(failures[0])


@pytest.mark.parametrize(
    "start", ["setsid sleep 600", "(setsid sh -c 'sleep 600 & echo $!; wait' &)", "nohup sleep 600"]
)
def test_no_process_that_left_its_group_or_its_parent_survives(start: str) -> None:
    script = f"{start} & echo $!; sleep 0.5; exit 0" if "echo" not in start else f"{start}; sleep 1"
    with Process(["sh", "-c", script]) as process:
        strays = [int(line) for line in process.lines()]
        process.wait()
    assert strays and all(map(gone, strays))


RUN = """
import sys
from elt_assets.runner.process import Process
with Process(["sh", "-c", "setsid sleep 600 & echo $!; wait"]) as process:
    for line in process.lines():
        print(line.decode(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_survives_the_end_of_the_run(number: signal.Signals) -> None:
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        stray = int(run.stdout.readline())
        run.send_signal(number)
        run.wait(30)
    assert gone(stray)


def test_only_processes_of_the_same_connector_are_ended() -> None:
    with subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: "of-another"}) as other:
        with Process(["true"]) as process:
            process.wait()
        assert other.poll() is None
        other.kill()


def test_the_wait_for_a_lock_has_a_limit(tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock"):
        began = time.monotonic()
        with (
            pytest.raises(TransientError, match="has held the lock"),
            exclusive(tmp_path / "lock", 0.3),
        ):
            pass
        assert time.monotonic() - began >= 0.3
    with exclusive(tmp_path / "lock", 0):
        pass


SLICED = ConfiguredCatalog(
    streams=[
        ConfiguredStream(
            stream=AirbyteStream(name="users", json_schema={}),
            sync_mode="full_refresh",
            extra={SLICES: Raw(b"true")},
        )
    ]
)
WAITS = "say('BARRIER', barrier={})\nsys.stdin.readline()\n"
BYE = "say('LOG', log={'level': 'INFO', 'message': 'bye'})\n"


def test_a_source_of_slices_waits_for_its_reader_and_not_the_other_way_round(
    tmp_path: Path,
) -> None:
    """The time in which slices are read does not count as silence of the source; its own silence does."""
    received = []
    for message in hostile_source(tmp_path, WAITS + BYE, heartbeat=1).read(SLICED):
        assert isinstance(message, Message)
        received.append(message.type)
        if message.type == "BARRIER":
            time.sleep(2)
    assert received == ["BARRIER", "LOG"]
    with pytest.raises(TransientError, match="heartbeat"):
        list(hostile_source(tmp_path, WAITS + "time.sleep(600)", heartbeat=1).read(SLICED))
