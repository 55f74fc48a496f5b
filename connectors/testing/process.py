"""Run a command as a process, with its output in files, and end its whole process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from elt_assets.errors import ConfigError

GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL."""


@dataclass(frozen=True)
class Ended:
    """The end of a process.

    Args:
        code: the exit code; negative: the number of the signal that ended it; None: it exceeded the time
            limit and was stopped.
        seconds: the time that it ran.
    """

    code: int | None
    seconds: float

    @property
    def text(self) -> str:
        """The end in words, after "the process"."""
        if self.code is None:
            return f"was stopped after {self.seconds:.0f} seconds, the time limit"
        if self.code < 0:
            return f"was ended by signal {-self.code}"
        return f"ended with exit code {self.code}"


def run_process(command: Sequence[str], stdout: Path, stderr: Path, seconds: float) -> Ended:
    """Run a command to its end, with an empty stdin.

    Args:
        stdout: the file for its output; `stderr`: the file for its log.
        seconds: the time limit.

    Raises:
        ConfigError: the command cannot be started.
    """
    begin = time.monotonic()
    with stdout.open("wb") as out, stderr.open("wb") as log:
        process = _start(command, out.fileno(), log.fileno())
        ended, expired = threading.Event(), threading.Event()

        def stop() -> None:
            expired.set()
            _signal(process.pid, signal.SIGTERM)
            if not ended.wait(GRACE_SECONDS):
                _signal(process.pid, signal.SIGKILL)

        limit = threading.Timer(seconds, stop)
        limit.daemon = True
        limit.start()
        try:
            code = process.wait()
        finally:
            ended.set()
            limit.cancel()
            _signal(process.pid, signal.SIGKILL)  # what it has started and left
            process.wait()
    return Ended(None if expired.is_set() else code, time.monotonic() - begin)


class Listener(Protocol):
    """What answers a process that waits for lines on its stdin.

    `environment`: variables that the process gets besides its own.
    """

    @property
    def environment(self) -> Mapping[str, str]: ...

    def take(self, line: bytes) -> bool:
        """Take a line of its output; return whether it waits for an answer now."""

    def read(self) -> None:
        """Do what it waits for."""

    def note_haste(self) -> None:
        """Take notice that it has written more without an answer."""


def converse(
    command: Sequence[str], stdout: Path, stderr: Path, seconds: float, listener: Listener
) -> Ended:
    """Run a command to its end; answer with an empty line wherever it waits.

    Args:
        stdout, stderr, seconds: as for `run_process`.

    Raises:
        ConfigError: the command cannot be started.
    """
    begin = time.monotonic()
    expired = threading.Event()
    with stdout.open("wb") as out, stderr.open("wb") as log:
        environment = {**os.environ, **listener.environment}
        process = _start(command, subprocess.PIPE, log.fileno(), subprocess.PIPE, environment)
        assert process.stdin is not None and process.stdout is not None

        def stop() -> None:
            expired.set()
            _signal(process.pid, signal.SIGKILL)

        limit = threading.Timer(seconds, stop)
        limit.daemon = True
        limit.start()
        try:
            for line in process.stdout:
                out.write(line)
                if listener.take(line):
                    listener.read()
                    if _has_more(process.stdout):
                        listener.note_haste()
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.write(b"\n")
                        process.stdin.flush()
            code = process.wait()
            listener.read()
        finally:
            limit.cancel()
            _signal(process.pid, signal.SIGKILL)
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
    return Ended(None if expired.is_set() else code, time.monotonic() - begin)


def _has_more(output: IO[bytes]) -> bool:
    """Return whether a process has written more than the lines that were read."""
    os.set_blocking(output.fileno(), False)
    try:
        return bool(output.peek(1))  # type: ignore[attr-defined]  # of a buffered reader
    finally:
        os.set_blocking(output.fileno(), True)


@dataclass(frozen=True)
class Stopped:
    """The end of a process that got SIGTERM.

    Args:
        ended: its end; the code is None if it had to be killed.
        lines: the number of lines that it wrote, before and after the signal.
    """

    ended: Ended
    lines: int


def stop_process(command: Sequence[str], stderr: Path, after: float) -> Stopped | None:
    """Send SIGTERM to a process that waits for a reader of its output; return None if it ended before.

    The output is a full pipe, so the process cannot end as long as it has something to write. A process that
    wants to end in an orderly way may write after the signal: from `GRACE_SECONDS` on, its output is read.

    Args:
        stderr: the file for its log.
        after: the time of the signal after the start, in seconds.

    Raises:
        ConfigError: the command cannot be started.
    """
    begin = time.monotonic()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output, stderr.open("wb") as log:
        try:
            _fill(writing)
            process = _start(command, writing, log.fileno())
        finally:
            os.close(writing)
        try:
            if _has_ended(process, after):
                return None
            _signal(process.pid, signal.SIGTERM)
            _has_ended(process, GRACE_SECONDS)
            killer = threading.Timer(GRACE_SECONDS, _signal, (process.pid, signal.SIGKILL))
            killer.start()
            lines = sum(chunk.count(b"\n") for chunk in iter(lambda: output.read1(1 << 16), b""))
            _has_ended(process, GRACE_SECONDS)
            killer.cancel()
        finally:
            _signal(process.pid, signal.SIGKILL)
            code = process.wait()
    was_killed = code == -signal.SIGKILL
    return Stopped(Ended(None if was_killed else code, time.monotonic() - begin), lines)


def _fill(pipe: int) -> None:
    """Fill a pipe, so that the next write waits for a reader."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b" " * 512)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b" ")
    os.set_blocking(pipe, True)


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _start(
    command: Sequence[str],
    stdout: int,
    stderr: int,
    stdin: int = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env=environment,
            preexec_fn=_receive_sigterm,  # noqa: PLW1509 - it takes no lock that a thread may hold
        )
    except OSError as error:
        raise ConfigError(
            f"the command {command[0]!r} cannot be started: {error.strerror}",
            guidance="correct the command; a script must be executable, and begin with `#!` and the path "
            "of its interpreter",
        ) from None


def _receive_sigterm() -> None:
    """Let SIGTERM end the process, also if this one was started with the signal ignored or blocked."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


NAME = "{container}"
"""Stands for the name of the container, in the command that starts it and in the one that removes it."""

_REMOVAL_SECONDS = 60.0
"""Time limit for the removal of a container."""


@dataclass(frozen=True)
class Containers:
    """Runs commands that start a container. `removal`: the command that removes one, in any state.

    Raises:
        ConfigError: the container has no name in `removal`.
    """

    removal: Sequence[str]

    def __post_init__(self) -> None:
        _require_name(self.removal, "the command of --removal")

    def run(self, command: Sequence[str], stdout: Path, stderr: Path, seconds: float) -> Ended:
        """Run a command as `run_process` does, in a container with a name of its own.

        Raises:
            ConfigError: the command cannot be started, or the container has no name in it.
        """
        _require_name(command, "the command of the connector")
        name = f"elt-{uuid.uuid4().hex[:16]}"
        ended = None
        try:
            ended = run_process(_name(command, name), stdout, stderr, seconds)
        finally:
            if ended is None or ended.code is None or ended.code < 0:
                self._remove(name)
        return ended

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                _name(self.removal, name),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_REMOVAL_SECONDS,
                check=False,
            )


def _name(command: Sequence[str], name: str) -> list[str]:
    return [word.replace(NAME, name) for word in command]


def _require_name(command: Sequence[str], what: str) -> None:
    if not any(NAME in word for word in command):
        raise ConfigError(
            f"{what} has no {NAME}, which stands for the name of the container",
            guidance=f"write --removal 'docker rm --force {NAME}' -- docker run --rm --name {NAME} …",
        )
