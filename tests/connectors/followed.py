"""A log that is followed while its database works, and while something fails: the same for each database.

What has become of it is compared by the tests, with what the server did.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from elt_assets.failpoints import armed
from tests.connectors.logged import Failing
from tests.support.project import Project
from tests.support.runs import materialize

FOLLOW = {"for": "6s", "every": "0.3s", "report": "1s"}
FIRST = 2.0
"""Seconds from the start of a run until something happens."""


def find_children(parent: int, word: str) -> list[int]:
    """Return the processes with a word in their command line that a process has started, or its children."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            lines[pid] = (folder / "cmdline").read_bytes().decode(errors="replace")
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = []
    for pid, line in lines.items():
        ancestor = pid
        while ancestor in parents and ancestor != parent:
            ancestor = parents[ancestor]
        if ancestor == parent and pid != parent and word in line:
            found.append(pid)
    return found


def kill_children(parent: int, word: str) -> None:
    for pid in find_children(parent, word):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def working(work: Callable[[], object], fail: Callable[[], object], delay: float) -> Iterator[None]:
    """Let a server work while the block goes on, and something fail after a while."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            # A server that is down takes no statement: it has done what it says it has.
            with contextlib.suppress(AssertionError):
                work()
            ends.wait(0.3)

    def break_it() -> None:
        if not ends.wait(FIRST + delay):
            fail()

    threads = [threading.Thread(target=run), threading.Thread(target=break_it)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@dataclass
class Followed:
    """Runs that follow the log of a connection, of which some fail.

    Attributes:
        work: lets the server change some rows.
        faults: what can fail outside of the run, by name.
        word: what is in the command line of the connector's process.
    """

    own: Project
    random: random.Random
    work: Callable[[], object]
    faults: Mapping[str, Callable[[], object]]
    word: str

    def start(self) -> None:
        """Read the tables for the first time, up to the present end of the log."""
        assert materialize(self.own, op="log", follow=False).success

    def run_rounds(self, names: Sequence[str]) -> None:
        """Follow in this process; in each round something of a name fails."""
        for name in names:
            armed_at = self.random.randrange(20, 150) if name == "failpoint" else 0
            faults = {"connector": lambda: kill_children(os.getpid(), self.word), **self.faults}
            fail = faults.get(name, lambda: None)
            with (
                working(self.work, fail, self.random.uniform(0, 2)),
                armed(Failing(armed_at)),
            ):
                materialize(self.own)

    def run_processes(self, rounds: int) -> None:
        """Follow by `elt sync` in processes, which are killed like their JVM, their connector, the server and
        the connections."""
        for _ in range(rounds):
            sync = start_sync(self.own, "log", "--for", "12s")
            kills: dict[str, Callable[[], object]] = {
                "run": partial(os.killpg, sync.pid, signal.SIGKILL),
                "stop": partial(sync.send_signal, signal.SIGTERM),
                "JVM": partial(kill_children, sync.pid, "java"),
                "connector": partial(kill_children, sync.pid, self.word),
                **self.faults,
                "nothing": lambda: None,
            }
            fail = kills[self.random.choice(list(kills))]
            with working(self.work, fail, self.random.uniform(1, 10)):
                sync.wait(600)  # it reads what the log has when its time is over, also much
            time.sleep(1)  # what a killed run has started ends by itself

    def finish(self) -> None:
        """Read what is left, without a fault."""
        self.own.amend("log", follow=None)
        result = materialize(self.own)
        assert result.success


def start_sync(own: Project, *words: str) -> subprocess.Popen[bytes]:
    """Start `elt sync --follow` in a process group of its own."""
    command: list[Any] = [Path(sys.executable).parent / "elt", "sync", *words, "--follow"]
    with (own.root / "sync.log").open("ab") as log:
        return subprocess.Popen(
            command, env=own.environment, stdout=log, stderr=log, start_new_session=True
        )
