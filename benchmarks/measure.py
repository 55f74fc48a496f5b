"""The cost of work: wall time, processor time of all processes that take part, and memory.

A process that has ended is counted by the process that waited for it. A process whose parent has ended
becomes a child of the benchmark, which waits for it. The system counts no child of a process that ignores
SIGCHLD, such as the daemon of Spark's Python workers: only those are counted by samples.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

SAMPLE_SECONDS = 0.2
ORPHAN_SECONDS = 300
"""Time for the processes that a command leaves behind to end; what they do would disturb the next command."""
TAIL_CHARACTERS = 4_000
PR_SET_CHILD_SUBREAPER = 36
MEGABYTE = 1_000_000


class CommandFailed(Exception):
    """A command of the benchmark exited with another code than 0, or left something else than it should."""


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, and core-seconds: the processor time of all processes that took part."""

    seconds: float
    core: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.seconds - other.seconds, self.core - other.core)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.core + other.core)


FREE = Cost(0, 0)


class Turns:
    """The costs of the same work, done several times (`turns`, set by the subclass), and their medians."""

    turns: Sequence[Cost]

    @property
    def seconds(self) -> float:
        return statistics.median(turn.seconds for turn in self.turns)

    @property
    def core(self) -> float:
        return statistics.median(turn.core for turn in self.turns)


def least(costs: Sequence[Cost]) -> Cost:
    """Return the least seconds and the least core-seconds: other programs only add to them."""
    return Cost(min(cost.seconds for cost in costs), min(cost.core for cost in costs))


@dataclass(frozen=True)
class Run:
    """One run of one command; memory is resident set size, in megabytes of 10^6 bytes."""

    cost: Cost
    core_by_process: Mapping[str, float]
    """Core-seconds of the driver (the process that was started), the JVM, the Python workers and others, by
    samples: a process that lives for less than a sample is not in it."""
    python_mb: float  # the process that was started
    python_all_mb: float  # with its Python children: Spark's workers, connectors written in Python
    jvm_mb: float


DRIVER, JVM, WORKERS, OTHERS = "driver", "JVM", "workers", "others"

Sample = Callable[[psutil.Process], None]
"""Looks at a running command; called again and again with its first process."""


@dataclass
class _Peaks:
    python: int = 0
    python_all: int = 0
    jvm: int = 0
    core: dict[tuple[str, int], float] = field(default_factory=dict)
    uncounted: dict[int, float] = field(default_factory=dict)
    """Core-seconds of the processes that no process waits for, by process id."""

    def sample(self, root: psutil.Process) -> None:
        resident: Counter[str] = Counter()
        for role, process in by_role(root):
            resident[role] += resident_bytes(process)
            self.core[role, process.pid] = _core(process, with_children=False)
            if _is_never_waited_for(process):
                self.uncounted[process.pid] = _core(process)
        self.python = max(self.python, resident[DRIVER])
        self.python_all = max(self.python_all, resident[DRIVER] + resident[WORKERS])
        self.jvm = max(self.jvm, resident[JVM])

    @property
    def core_by_process(self) -> Mapping[str, float]:
        total: dict[str, float] = {}
        for (role, _), seconds in self.core.items():
            total[role] = total.get(role, 0) + seconds
        return total


def run(
    command: Sequence[str | Path],
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    *,
    stdin: Path | None = None,
    sample: Sample | None = None,
) -> Run:
    """Run `command` with exactly this environment, until its last process has ended.

    Children that this process has already are not counted, unless they end.

    Args:
        log: the file of its output.
        stdin: the file of its input.
        sample: called a few times a second, beside the measuring of memory.

    Raises:
        CommandFailed: with the end of the command's output.
    """
    peaks, over = _Peaks(), threading.Event()
    samples = [peaks.sample, *([sample] if sample else [])]
    _adopt_orphans()
    before, others = _core_of_children(), _list_children()
    with log.open("wb") as out, Path(stdin or os.devnull).open("rb") as given:
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            env=env,
            cwd=cwd,
            stdin=given,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        watched = psutil.Process(process.pid)
        watcher = threading.Thread(target=_watch, args=(watched, samples, over))
        watcher.start()
        try:
            code = process.wait()
        finally:
            seconds = time.perf_counter() - start
            over.set()
            watcher.join()
            if process.poll() is None:
                process.terminate()
    if code != 0:
        tail = log.read_text(errors="replace")[-TAIL_CHARACTERS:]
        raise CommandFailed(f"{' '.join(map(str, command))} exited with {code} ({log}):\n{tail}")
    counted = _wait_for_orphans(ORPHAN_SECONDS, others)
    uncounted = sum(core for pid, core in peaks.uncounted.items() if pid not in counted)
    return Run(
        cost=Cost(seconds, _core_of_children() - before + uncounted),
        core_by_process=peaks.core_by_process,
        python_mb=peaks.python / MEGABYTE,
        python_all_mb=peaks.python_all / MEGABYTE,
        jvm_mb=peaks.jvm / MEGABYTE,
    )


def timed(work: Callable[[], T]) -> tuple[T, Cost]:
    """Return what a call returns, and its cost in this process and all its descendants.

    What was written before is on disk when the call begins.
    """
    os.sync()
    core, start = core_seconds(), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    return result, Cost(seconds, core_seconds() - core)


def core_seconds() -> float:
    """Return the processor time of this process and all its descendants, with those that have ended."""
    root = psutil.Process()
    return sum(_core(process) for process in [root, *_children(root)])


_END_SECONDS = 1
"""Seconds in which a server ends the processes of connections that are closed."""


def server_core(pid: int) -> float:
    """Return the core-seconds of a server's processes, also of those that have ended."""
    time.sleep(_END_SECONDS)
    root = psutil.Process(pid)
    times = root.cpu_times()
    total: float = times.user + times.system + times.children_user + times.children_system
    for process in root.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            own = process.cpu_times()
            total += own.user + own.system
    return total


def by_role(root: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the processes of a command that are alive, each with its role."""
    yield DRIVER, root
    for child in _children(root):
        name = _name(child)
        role = JVM if name.startswith("java") else WORKERS if name.startswith("python") else OTHERS
        yield role, child


@dataclass(frozen=True)
class Usage:
    """The use of one process: seconds of wall time and of processor time, and megabytes of resident memory at
    its highest. Its children are not counted."""

    seconds: float
    core: float
    peak_mb: float


def usage(command: Sequence[str | Path], output: Path) -> Usage:
    """Run a command, whose output goes to a file.

    Raises:
        CommandFailed: it ended with another code than 0.
    """
    start = time.perf_counter()
    with output.open("wb") as stdout:
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise CommandFailed(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return Usage(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MEGABYTE)


def environment() -> dict[str, str]:
    """The caller's environment, less what would lead a contender to the caller's own data."""
    ours = ("ELT_", "DAGSTER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has ended meanwhile
        return 0


def _watch(root: psutil.Process, samples: Sequence[Sample], over: threading.Event) -> None:
    while not over.wait(SAMPLE_SECONDS):
        for sample in samples:
            with contextlib.suppress(psutil.Error):
                sample(root)


def _children(root: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield from root.children(recursive=True)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _core(process: psutil.Process, *, with_children: bool = True) -> float:
    """Return the processor time of a process, with that of the children that it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0
    own = times.user + times.system
    return float(own + times.children_user + times.children_system) if with_children else float(own)


def _core_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends. Elsewhere than on Linux they are not counted."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _is_never_waited_for(process: psutil.Process) -> bool:
    """Return whether the parent of a process ignores SIGCHLD. Elsewhere than on Linux this is not known."""
    try:
        status = Path(f"/proc/{process.ppid()}/status").read_text()
    except (OSError, psutil.Error):
        return False
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> signal.SIGCHLD - 1 & 1)


def _list_children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def _wait_for_orphans(limit: float, others: set[int]) -> set[int]:
    """Wait for the processes whose parent has ended, and return their ids.

    Args:
        others: children of this process, such as servers, which are not waited for.
    """
    deadline = time.monotonic() + limit
    waited: set[int] = set()
    while time.monotonic() < deadline:
        orphans = _list_children() - others
        if not orphans:
            return waited
        waited |= {pid for pid in orphans if os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(0.02)
    raise CommandFailed(f"a command has left processes that run for more than {limit} seconds")
