"""Run a child process, read its output to the end, and end it with all processes that it started.

`source_kind` starts connectors with it, `connector` and `singer_tap` read them, and `uv` runs uv; `failures`
and `packages` explain how one ended.

Every wait has a limit, and `cancel` ends every wait of the reader:

| wait for | limit |
|---|---|
| output | `heartbeat` without a byte, or `deadline` |
| the exit, once stdout is closed | `EXIT_SECONDS` or `heartbeat` without progress of its input; `deadline` |
| the rest of stderr, after the exit | `_DRAIN_SECONDS` |
| the end of the process group | `_GRACE_SECONDS` after SIGTERM, and after SIGKILL |
| the lines of its input to end | those of `Feeder.end` |
| the removal command | `_REMOVAL_SECONDS` |

A child that nobody watches does not run: the watchdog, which ends it if this process is killed, starts before
it, and a child whose watchdog or threads cannot start, or whose watchdog ends, is ended.
`tests/runner/test_process.py::test_a_child_that_cannot_be_watched_does_not_run`
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO

from elt_assets.errors import ConfigError, TransientError
from elt_assets.machine_faults import EXHAUSTED, translated
from elt_assets.protocol.lines import MAX_LINE, blocks, split
from elt_assets.runner.feeding import Feeder
from elt_assets.runner.marked_processes import MARK, WATCHDOG, end_marked, new_mark

ALLOWED = "ELT_ALLOW_INSPECTION"
"""The variable that, if set, allows debuggers and core dumps."""
_PR_SET_DUMPABLE = 4
"""The constant of Linux's prctl(2)."""
CHUNK = 1 << 20
_GATHER_MS = 10
"""Time in milliseconds for which lines that were received wait for more output."""
STDERR_LINES = 50
"""Number of last lines of stderr that are kept."""
STDERR_WIDTH = 16_000
"""Maximum number of characters of such a line. Before it is shown, it is masked and then cut further."""
_STDERR_NEW = 200
"""Maximum number of lines of stderr that are kept for `new_stderr`."""
_IDLE_MS = 500
"""Interval in milliseconds at which a reader without output checks whether the child is still running."""
_REMOVAL_SECONDS = 30
"""Time limit for the removal command."""
_NOTHING_LEFT = re.compile(rb"no such container", re.IGNORECASE)
"""What a container client says if there is no container to remove."""
_MAX_REASON = 300
_GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL, and for which the end is waited for after SIGKILL."""
EXIT_SECONDS = 60.0
"""Time limit for the exit of a child that has closed its stdout."""
_DRAIN_SECONDS = 2.0
"""Time limit for reading the rest of stderr after the child's exit, if another process holds it open."""
_EMPTY_CHECKS, _EMPTY_SECONDS = 3, 0.05
"""The rest of stderr is read when the pipe is empty at so many checks in a row, so many seconds apart."""


class DeadlineError(TransientError):
    """A process did not end before its deadline."""


class Process:
    """Runs a command in its own process group; use it as a context manager.

    Its stdout is read with `lines` or `blocks`. A thread reads its stderr, and keeps the last `STDERR_LINES`
    lines. Leaving the context always ends the process group.

    Args:
        command: the program and its arguments.
        environment: the environment variables; default: those of this process.
        deadline: the time at which the process must have ended, by `time.monotonic`.
        heartbeat: maximum seconds without output while the output is read. The time in which the process
            waits for input does not count.
        removal: a command that ends what the end of the process group does not end: a container.
        lines: the lines of its stdin; default: an empty stdin.
        stop: as for `Feeder`.
        on_left: receives a text if the removal command fails.

    Raises:
        ConfigError: the program is missing or cannot be executed, or there is no shell for the watchdog.
        EltError: the machine has no room for another process; see `machine_faults`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        deadline: float | None = None,
        heartbeat: float | None = None,
        removal: Sequence[str] = (),
        lines: Iterable[bytes] | None = None,
        stop: Callable[[], None] | None = None,
        on_left: Callable[[str], None] | None = None,
    ):
        self._on_left = on_left
        self._deadline = deadline
        self._heartbeat = heartbeat
        self._removal = removal
        self._environment = dict(environment) if environment is not None else None
        self._mark = new_mark()
        self._cancelled = threading.Event()
        deny_inspection()
        self._ended: float | None = None
        self.exhausted = False
        """True if stdout was read to its end."""
        self._stderr_tail: deque[str] = deque(maxlen=STDERR_LINES)
        self._stderr_new: deque[str] = deque(maxlen=_STDERR_NEW)
        self._stderr_count = 0
        self._stderr_reported = 0
        self.feeder: Feeder | None = None
        self._drain = threading.Thread(target=self._drain_stderr, name="stderr", daemon=True)
        place = f"while {command[0]!r} was started"
        with translated(place), contextlib.ExitStack() as undo:
            self._watchdog = _start_watchdog(command[0], self._mark, removal, self._environment)
            undo.callback(self._end_watchdog)
            variables = {**(os.environ if environment is None else environment), MARK: self._mark}
            stdin = subprocess.DEVNULL if lines is None else subprocess.PIPE
            self._child = _start_child(command, variables, stdin)
            undo.callback(self.end)
            self._name_group()
            self._drain.start()
            if lines is not None and self._child.stdin is not None:
                _enlarge(self._child.stdin)
                self.feeder = Feeder(self._child.stdin, lines, stop)
            undo.pop_all()
        _enlarge(self._child.stdout)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def failed(self) -> bool:
        """Return whether the process has ended with another exit code than 0."""
        return bool(self._child.poll())

    @property
    def stderr_tail(self) -> str:
        return "\n".join(self._stderr_tail)

    def new_stderr(self) -> tuple[list[str], int]:
        """Return the lines of stderr since the last call, and the number of older ones that were not kept."""
        count, lines = self._stderr_count, []
        with contextlib.suppress(IndexError):
            while True:
                lines.append(self._stderr_new.popleft())
        lost = max(0, count - self._stderr_reported - len(lines))
        self._stderr_reported += lost + len(lines)
        return lines, lost

    def lines(self) -> Iterator[bytes]:
        r"""Yield the lines of stdout without their newline, split only at byte `\n`, without empty lines.

        Raises:
            SystemFailure: a line is longer than `MAX_LINE`.
            TransientError: the deadline has passed, the process sent no output for longer than `heartbeat`,
                or it was cancelled.
        """
        return split(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """Yield the same lines, with their newlines, in blocks of lines that arrived together.

        Raises:
            SystemFailure: as for `lines`.
            TransientError: as for `lines`.
        """
        return filter(None, blocks(self._read_into, MAX_LINE))

    def _read_into(self, buffer: memoryview, has_lines: bool) -> int | None:
        """Read output into a buffer. Return 0 if stdout is closed, or the child has ended and no more output
        arrives: another process may hold stdout open after the child has ended.

        If there are lines to pass on, this waits for a short time only, and then returns None.
        """
        assert self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if has_lines:  # at the end of stdout too they are passed on first
            return (os.readv(descriptor, [buffer]) or None) if poll.poll(_GATHER_MS) else None
        since = time.monotonic()  # not earlier: the consumer may have kept the connector waiting
        while True:
            # Checked before the read, so that the read finds all that the child wrote before its end.
            has_ended = self._child.poll() is not None
            self._raise_if_stopped()
            count = os.readv(descriptor, [buffer]) if poll.poll(_IDLE_MS) else None
            if count == 0 or (count is None and has_ended):
                self.exhausted = True
                return 0
            if count is not None:
                return count
            if self._heartbeat is not None and self._silent_seconds(since) >= self._heartbeat:
                raise TransientError(
                    f"the connector sent no output for {self._heartbeat:g} seconds and was stopped",
                    guidance="if it may be silent for longer, set a longer `heartbeat` in the connection's "
                    "YAML",
                )

    def _raise_if_stopped(self) -> None:
        """Raise an error if the deadline has passed, or the process was cancelled."""
        if self._watchdog.poll() is not None:
            raise _watchdog_error()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise DeadlineError("the connector exceeded its time limit and was stopped")
        if self._cancelled.is_set():
            raise TransientError(
                "the connector was stopped: its output is no longer needed",
                guidance="no action is needed; if the run failed, its first error names the cause",
            )

    def _silent_seconds(self, since: float) -> float:
        """Return the seconds since `since`, or since the last progress of its input if that is later."""
        return time.monotonic() - max(since, self.feeder.last_progress if self.feeder else 0)

    def cancel(self) -> None:
        """Make `lines` and `wait`, in another thread, end with an error within half a second."""
        self._cancelled.set()

    def wait(self) -> int:
        """Return the exit code. A negative code is the number of the signal that ended the process.

        Read stdout to its end first.

        Raises:
            TransientError: the deadline has passed, the process was cancelled, or it did not end in time.
        """
        limit = min(EXIT_SECONDS, self._heartbeat or EXIT_SECONDS)
        since = time.monotonic()
        while (code := self._child.poll()) is None:
            self._raise_if_stopped()
            if self._silent_seconds(since) >= limit:
                raise TransientError(
                    f"the connector closed its output, but did not end within {limit:g} seconds, and was "
                    "stopped",
                    guidance="this is a defect of the connector; report it to its maintainer",
                )
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(min(_IDLE_MS / 1000, limit))
        self._ended = self._ended or time.monotonic()
        self._drain_rest(self._ended + _DRAIN_SECONDS)
        return code

    def end(self) -> None:
        """End the whole process group, by SIGTERM, then by SIGKILL after a grace period, and all other
        processes that the child started."""
        had_ended = self._child.poll() is not None
        if self._signal(signal.SIGTERM):
            deadline = time.monotonic() + _GRACE_SECONDS
            while time.monotonic() < deadline and (self._child.poll() is None or self._signal(0)):
                time.sleep(0.02)
            self._signal(signal.SIGKILL)
        end_marked(self._mark)
        if self.feeder is not None:
            self.feeder.end()
        self._end_watchdog()
        _wait_briefly(self._child)
        if self._child.stdout is not None:
            self._child.stdout.close()
        if self._drain.ident is None and self._child.stderr is not None:
            self._child.stderr.close()
        if self._removal and not had_ended:
            self._remove()

    def _name_group(self) -> None:
        """Tell the watchdog which process group it ends; without this it knows the mark alone."""
        assert self._watchdog.stdin is not None
        try:
            self._watchdog.stdin.write(b"%d\n" % self._child.pid)
            self._watchdog.stdin.flush()
        except BrokenPipeError:
            raise _watchdog_error() from None

    def _end_watchdog(self) -> None:
        """End the watchdog before its pipe closes: the number of the group may be reused by then."""
        self._watchdog.kill()
        _wait_briefly(self._watchdog)
        if self._watchdog.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._watchdog.stdin.close()

    def _remove(self) -> None:
        """Run the removal command, and report it if that fails: a container may be left."""
        try:
            done = subprocess.run(
                self._removal,
                capture_output=True,
                timeout=_REMOVAL_SECONDS,
                check=False,
                env=self._environment,
            )
        except subprocess.TimeoutExpired:
            reason = f"the command took more than {_REMOVAL_SECONDS} seconds"
        except OSError as error:
            reason = str(error.strerror)
        else:
            if done.returncode == 0 or _NOTHING_LEFT.search(done.stderr):
                return
            reason = done.stderr.decode(errors="replace").strip()[:_MAX_REASON]
        if self._on_left is not None:
            command = shlex.join(self._removal)
            self._on_left(
                f"what it started may still run: `{command}` failed: {reason}; run it again"
            )

    def _signal(self, number: int) -> bool:
        """Send a signal to the process group, and return whether it still has processes."""
        try:
            os.killpg(self._child.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _drain_rest(self, deadline: float) -> None:
        """Wait until the stderr of the ended child is read. Another process may hold the pipe open."""
        empty = 0
        while self._drain.is_alive() and empty < _EMPTY_CHECKS and time.monotonic() < deadline:
            self._drain.join(_EMPTY_SECONDS)
            empty = 0 if self._unread_stderr() else empty + 1

    def _unread_stderr(self) -> int:
        """Return the number of unread bytes in the pipe of stderr."""
        unread = array("i", [0])
        with contextlib.suppress(OSError, ValueError):  # the thread has closed it
            fcntl.ioctl(self._child.stderr or -1, termios.FIONREAD, unread)
        return unread[0]

    def _drain_stderr(self) -> None:
        # Closed by this thread: another one would wait for a read that a remaining process can block.
        pipe: IO[bytes] | None = self._child.stderr
        assert pipe is not None
        with contextlib.suppress(OSError), pipe:
            is_continued = False
            for line in iter(lambda: pipe.readline(CHUNK), b""):
                # The rest of a longer line is left out: it may begin in the middle of a secret.
                if not is_continued:
                    text = line.decode("utf-8", "replace").rstrip()
                    self._stderr_tail.append(text[:STDERR_WIDTH])
                    self._stderr_new.append(text[:STDERR_WIDTH])
                    self._stderr_count += 1
                is_continued = not line.endswith(b"\n")


def _enlarge(pipe: IO[bytes] | None) -> None:
    """Enlarge a pipe to the size of a chunk, if the system allows it: sixteen times fewer reads."""
    with contextlib.suppress(OSError, AttributeError):
        assert pipe is not None
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, CHUNK)


def _start_watchdog(
    name: str, mark: str, removal: Sequence[str], environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a shell that ends all processes of a child, and runs its removal command, if this process ends
    first.

    The shell reads the number of the child's group from a pipe that only this process holds open, and then
    its end. The kernel closes it when this process ends.

    Args:
        name: the program that is watched, for the error.
    """
    try:
        return subprocess.Popen(
            ["sh", "-c", WATCHDOG, "sh", mark, *(removal or ["true"])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment if removal else {"PATH": os.defpath},
        )
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        raise ConfigError(
            f"{name!r} was not started: the shell `sh`, which ends it if this process is killed, cannot be "
            f"started: {error.strerror}",
            guidance="install a POSIX shell as `sh`, and let the PATH of Dagster contain its folder",
        ) from error


def _start_child(
    command: Sequence[str], environment: Mapping[str, str], stdin: int
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
    except FileNotFoundError:
        raise ConfigError(
            f"the connector {command[0]!r} was not found",
            guidance="install it, or correct `source` in the connection's YAML",
        ) from None
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        raise ConfigError(
            f"the connector {command[0]!r} cannot be executed: {error.strerror}",
            guidance="make the file executable (`chmod +x`) for the user of Dagster; a script "
            "must begin with `#!` and the path of its interpreter",
        ) from error


def _wait_briefly(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may not let it go
        process.wait(_GRACE_SECONDS)


def _watchdog_error() -> TransientError:
    return TransientError(
        "the connector was stopped: the process that watches it has ended",
        guidance="check that `sh` on the PATH of Dagster is a POSIX shell, and whether the system killed it "
        "for its memory (see the log of the kernel)",
    )


def deny_inspection() -> None:
    """Make this process undumpable.

    No unprivileged process can then read its memory, or its environment in /proc, and it leaves no core dump.
    Programs that it starts are dumpable again. Nothing is done if `ALLOWED` is set, or on systems other than
    Linux.
    """
    if sys.platform.startswith("linux") and not os.environ.get(ALLOWED):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
