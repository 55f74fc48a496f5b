"""Runs a command to its end: how long it took, and the most memory it held."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.1
TAIL_CHARACTERS = 4_000
MEGABYTE = 1_000_000


class CommandFailed(Exception):
    """A command of the benchmark exited with another code than 0, or left something else than it should."""


@dataclass(frozen=True)
class Run:
    """One run of one command; memory is resident set size, in megabytes of 10^6 bytes."""

    seconds: float
    python_mb: float  # the process that was started
    python_all_mb: float  # with its Python children: Spark's workers, connectors written in Python
    jvm_mb: float


@dataclass
class _Peaks:
    python: int = 0
    python_all: int = 0
    jvm: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def sample(self, root: psutil.Process) -> None:
        main, children = _resident(root), list(_children(root))
        pythons = sum(_resident(child) for child in children if _is(child, "python"))
        jvms = sum(_resident(child) for child in children if _is(child, "java"))
        self.python = max(self.python, main)
        self.python_all = max(self.python_all, main + pythons)
        self.jvm = max(self.jvm, jvms)

    def watch(self, root: psutil.Process) -> None:
        while not self.over.wait(SAMPLE_SECONDS):
            with contextlib.suppress(psutil.Error):
                self.sample(root)


def run(command: Sequence[str | Path], env: Mapping[str, str], cwd: Path, log: Path) -> Run:
    """Run `command` with exactly this environment; its output goes to `log`.

    Raises:
        CommandFailed: with the end of what the command said.
    """
    peaks = _Peaks()
    with log.open("wb") as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], env=env, cwd=cwd, stdout=out, stderr=subprocess.STDOUT
        )
        watcher = threading.Thread(target=peaks.watch, args=(psutil.Process(process.pid),))
        watcher.start()
        try:
            code = process.wait()
        finally:
            seconds = time.perf_counter() - start
            peaks.over.set()
            watcher.join()
            if process.poll() is None:
                process.terminate()
    if code != 0:
        tail = log.read_text(errors="replace")[-TAIL_CHARACTERS:]
        raise CommandFailed(f"{' '.join(map(str, command))} exited with {code} ({log}):\n{tail}")
    return Run(
        seconds=seconds,
        python_mb=peaks.python / MEGABYTE,
        python_all_mb=peaks.python_all / MEGABYTE,
        jvm_mb=peaks.jvm / MEGABYTE,
    )


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


def _children(root: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield from root.children(recursive=True)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has ended meanwhile
        return 0


def _is(process: psutil.Process, name: str) -> bool:
    try:
        return process.name().startswith(name)
    except psutil.Error:
        return False
