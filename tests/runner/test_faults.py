"""Connectors that end badly, or not at all, and runs that do: in time, and without leaving anybody."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from elt_assets.errors import SystemFailure, TransientError
from elt_assets.protocol.messages import RawRecord
from elt_assets.runner.connector import Connector
from elt_assets.sync.events import Checkpoint, Committed
from tests.programs.hostile_source import gone, hostile_source
from tests.support.source import configure_streams
from tests.sync.doubles import MemorySink, Sync

CATALOG = configure_streams("users", sync_mode="incremental")
STATE = """
def state(n):
    blob = {"stream_descriptor": {"name": "users"}, "stream_state": {"n": n}}
    say("STATE", state={"type": "STREAM", "stream": blob})
def status(value):
    body = {"stream_descriptor": {"name": "users"}, "status": value}
    say("TRACE", trace={"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": body})
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen(["sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 1; done"], stdout=subprocess.PIPE)
child.stdout.readline()
open(PIDS, "w").write(f"{os.getpid()} {child.pid}")
"""  # noqa: E501
NO_LONGER = 60.0
"""Seconds after which nothing of a run that was ended may be left."""


def stubborn(folder: Path, then: str = "time.sleep(600)", **how: Any) -> Connector:
    """One that cannot be asked to end, with a child of the same kind."""
    script = f"PIDS = {str(folder / 'pids')!r}\n{STUBBORN}\nrecord({{}})\n{then}"
    return hostile_source(folder, script, **how)


def pids(folder: Path) -> list[int]:
    return [int(word) for word in (folder / "pids").read_text().split()]


def no_process_left(folder: Path, began: float) -> bool:
    found = all(map(gone, pids(folder)))
    return found and time.monotonic() - began < NO_LONGER


def test_a_silent_connector_is_stopped_with_all_its_children(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="sent no output for 1 seconds and was stopped"):
        list(stubborn(tmp_path, heartbeat=1).read(CATALOG))
    assert all(map(gone, pids(tmp_path)))


@pytest.mark.parametrize("end", ["exit(0)", "os.kill(os.getpid(), 9)"])
def test_the_end_of_a_connector_is_noticed_while_a_child_holds_its_pipes(
    end: str, tmp_path: Path
) -> None:
    script = f"""
subprocess.Popen(["sleep", "60"], start_new_session=True)
record({{"at": time.monotonic()}})
{end}
"""
    messages = hostile_source(tmp_path, script).read(CATALOG)
    last = next(messages)
    assert isinstance(last, RawRecord)
    if end == "exit(0)":
        assert list(messages) == []
    else:
        with pytest.raises(SystemFailure, match="SIGKILL"):
            next(messages)
    ended = json.loads(bytes(last.data))["at"]
    assert time.monotonic() - ended < 30  # about a second, and what a busy machine adds


def test_a_read_can_be_cancelled_from_another_thread(tmp_path: Path) -> None:
    connector = stubborn(tmp_path)
    failures: list[Exception] = []
    started = threading.Event()

    def read() -> None:
        try:
            for _ in connector.read(CATALOG):
                started.set()
        except TransientError as ended:
            failures.append(ended)

    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(20)
    began = time.monotonic()
    connector.cancel()
    reader.join(20)
    assert not reader.is_alive() and len(failures) == 1
    assert no_process_left(tmp_path, began)


RUN = """
import pathlib, sys
from tests.runner.test_faults import CATALOG, stubborn
for message in stubborn(pathlib.Path(sys.argv[1])).read(CATALOG):
    print("reading", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_terminated_run_leaves_no_processes(number: signal.Signals, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with run:
        assert run.stdout is not None and run.stdout.readline() == b"reading\n"
        assert all(map(psutil.pid_exists, pids(tmp_path)))
        began = time.monotonic()
        run.send_signal(number)
        try:
            run.wait(20)
        finally:
            run.kill()
    assert no_process_left(tmp_path, began)


def test_a_record_may_have_a_hundred_megabytes(tmp_path: Path) -> None:
    [large] = hostile_source(tmp_path, "record({'x': 'y' * (100 << 20)})").read(CATALOG)
    assert isinstance(large, RawRecord) and len(bytes(large.data)) == (100 << 20) + 9


def sync(folder: Path, sink: MemorySink) -> Sync:
    (folder / "staging").mkdir()
    return Sync(folder / "staging", {"users": sink}, configured=CATALOG)


GARBAGE = """
record({"n": 1}); state(1)
print("Traceback, of sorts"); say("NEWER", x=1); print("{}"); print("[1, 2]")
sys.stdout.flush(); sys.stdout.buffer.write(b"\\xff\\xfe\\n\\n\\x00\\n"); sys.stdout.flush()
print("u2028: \\u2028 \\u0085 \\x0b", "." * 100_000)
record({"n": 2, "text": "a\\u2028b\\u0085c\\x0bd\\x00e"}); state("1\\x00")
status("COMPLETE")
"""


def test_a_sync_continues_after_lines_that_are_not_messages(tmp_path: Path) -> None:
    sink = MemorySink()
    done = sync(tmp_path, sink).run(hostile_source(tmp_path, STATE + GARBAGE).read(CATALOG))
    assert done.failure is None
    assert sink.numbers == [1, 2]
    assert sink.rows[1]["text"] == "a\u2028b\u0085c\x0bd\0e"
    assert sink.state == {"n": "1\0"}
    logs = done.logs()
    for part in ("Traceback, of sorts", "unknown type 'NEWER'", "[1, 2]", "u2028: ", "...."):
        assert part in logs
    assert len(logs) < 10_000


@pytest.mark.parametrize(
    "end",
    [
        'print(\'{"type":"RECORD","record":{"stream":"users","data":{"n"\', end="")',
        'print(\'{"type":"STATE","state":{"type":"STREAM","str\', end="")',
        'print(\'{"type":"RECORD","record":{"stream":"users","data":\' + "[" * 100_000)',
        'record(0); print(\'{"type":"RECORD","record":{"stream":"users","data":%s\' % ("[{},"*40_000))',
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 15)",
        "exit(0)",
        'status("INCOMPLETE"); state(3)',
        "fail('broken', stream_descriptor={'name': 'users'}); state(3)",
    ],
    ids=["record", "state", "deep", "deeper", "SIGKILL", "SIGTERM", "silent", "partial", "error"],
)
def test_only_records_before_the_last_state_are_kept(end: str, tmp_path: Path) -> None:
    sink = MemorySink()
    script = STATE + 'status("STARTED"); record({"n": 1}); state(1); record({"n": 2})\n' + end
    done = sync(tmp_path, sink).run(hostile_source(tmp_path, script).read(CATALOG))
    assert isinstance(done.failure, SystemFailure) and len(str(done.failure)) < 10_000
    assert (sink.numbers, done.acknowledged("users")) == ([1], [{"n": 1}])


class Slow(MemorySink):
    """Sink with slow commits, which signals that a commit has started."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.go_on = threading.Event(), threading.Event()

    def commit(self, checkpoint: Checkpoint) -> Committed:
        self.started.set()
        assert self.go_on.wait(60)
        return super().commit(checkpoint)


def test_a_run_that_is_interrupted_during_a_commit_commits_nothing_twice(tmp_path: Path) -> None:
    """No more states are acknowledged; commits queued behind that one may still be made, rows and state."""
    script = STATE + "for n in range(1, 4): record({'n': n}); state(n)\ntime.sleep(600)"
    sink = Slow()
    run = sync(tmp_path, sink)

    def interrupt() -> None:
        assert sink.started.wait(60)
        time.sleep(1)  # by then most likely all is read, and the source waited for; it need not be
        signal.pthread_kill(reader, signal.SIGINT)
        time.sleep(1)
        sink.go_on.set()

    before, reader = set(psutil.Process().children()), threading.get_ident()
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run.run(hostile_source(tmp_path, script).read(CATALOG))
    finally:
        signal.signal(signal.SIGINT, former)
    assert sink.numbers == list(range(1, len(sink.commits) + 1))
    assert sink.state == {"n": len(sink.commits)}
    assert run.acknowledged("users") == []
    assert set(psutil.Process().children()) <= before
