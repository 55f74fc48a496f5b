"""A child process whose output is read to the end and whose whole group ends with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO

from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.airbyte.lines import MAX_LINE, blocks, split
from elt_assets.runner.process.account import Account
from elt_assets.runner.process.feeding import Feeder
from elt_assets.runner.process.inspection import deny_inspection

CHUNK = 1 << 20
STDERR_LINES = 50
STDERR_WIDTH = 16_000
"""Characters that are kept of each; whoever shows them masks them first, and then cuts them further."""
_STDERR_NEW = 200
"""Lines of stderr that are kept for `new_stderr`."""
_IDLE_MS = 500
"""How often to look, while nothing comes, whether the child still lives."""
_REMOVAL = 30
"""Seconds that a removal may take."""
_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""
_LAST_WORDS = 2.0
"""Seconds at most in which to read what a dead child left on stderr, if somebody else holds that open."""
_EMPTY, _PAUSE = 3, 0.05
"""That pipe is read to its end once it was found empty so many times, with so many seconds in between."""


class DeadlineError(TransientError):
    """A process has not ended in the time that it was given."""


class Process:
    """Runs `command` in a process group of its own; use as a context manager.

    Its stdout is read line by line with `lines`; a thread drains its stderr, keeping the last
    `STDERR_LINES` lines. Leaving the context ends the group, whatever the reason. `deadline`: when it must
    have ended, by `time.monotonic`; `silence`: seconds for which it may say nothing while it is listened to.
    `removal`: a command that ends what the group's end does not: a container. `lines`: what its stdin is fed,
    which is empty otherwise; while it waits for more of them, it is not silent. `stop`: as of `Feeder`.
    `account`: the user that it runs as; default this process's.

    Raises:
        ConfigError: the program is missing or cannot be executed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        deadline: float | None = None,
        silence: float | None = None,
        removal: Sequence[str] = (),
        lines: Iterable[bytes] | None = None,
        stop: Callable[[], None] | None = None,
        account: Account | None = None,
    ):
        self._deadline = deadline
        self._silence = silence
        self._removal = removal
        self._environment = dict(environment) if environment is not None else None
        self._cancelled = threading.Event()
        deny_inspection()
        self._ended: float | None = None
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if lines is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=self._environment,
                **(account.how if account is not None else {}),
            )
        except FileNotFoundError:
            raise ConfigError(
                f"the connector {command[0]!r} was not found",
                guidance="install it, or correct `source` in the connection's YAML",
            ) from None
        except OSError as error:
            raise ConfigError(
                f"the connector {command[0]!r} cannot be executed: {error.strerror}"
            ) from error
        _widen(self._child.stdout)
        self.exhausted = False
        """Whether stdout was read to its end."""
        self._watchdog = _watch(self._child.pid, removal, self._environment)
        self._tail: deque[str] = deque(maxlen=STDERR_LINES)
        self._new: deque[str] = deque(maxlen=_STDERR_NEW)
        self._written = 0
        self._taken = 0
        self._drain = threading.Thread(target=self._drain_stderr, name="stderr", daemon=True)
        self._drain.start()
        self.feeder: Feeder | None = None
        if lines is not None and self._child.stdin is not None:
            _widen(self._child.stdin)
            self.feeder = Feeder(self._child.stdin, lines, stop)

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
        """Whether it has ended, and not with exit code 0."""
        return bool(self._child.poll())

    @property
    def stderr_tail(self) -> str:
        return "\n".join(self._tail)

    def new_stderr(self) -> tuple[list[str], int]:
        """The newest lines of stderr since the last call, and how many before them were not kept."""
        written, lines = self._written, []
        with contextlib.suppress(IndexError):
            while True:
                lines.append(self._new.popleft())
        lost = max(0, written - self._taken - len(lines))
        self._taken += lost + len(lines)
        return lines, lost

    def lines(self) -> Iterator[bytes]:
        r"""The lines of stdout without their newline, split at byte `\n` alone, empty ones left out.

        Raises:
            SystemFailure: a line is longer than `MAX_LINE`.
            TransientError: the deadline has passed, it was silent for too long, or it was cancelled.
        """
        return split(self._to_the_end(), MAX_LINE)

    def blocks(self) -> Iterator[bytes]:
        """The same lines, as many as came at once.

        Raises:
            as `lines`.
        """
        return blocks(self._to_the_end(), MAX_LINE)

    def _to_the_end(self) -> Iterator[bytes]:
        yield from self._chunks()
        self.exhausted = True

    def _chunks(self) -> Iterator[bytes]:
        """What comes on stdout, until it is closed, or its child dead and what it left behind silent."""
        assert self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        since = time.monotonic()
        while True:
            ended = (
                self._child.poll() is not None
            )  # asked first: what it wrote before is there then
            if self._left() == 0:
                raise _late()
            if self._cancelled.is_set():
                raise TransientError("the connector was ended: nobody wants more of it")
            if poll.poll(_IDLE_MS):
                chunk = os.read(descriptor, CHUNK)
                if not chunk:
                    return
                yield chunk
                since = (
                    time.monotonic()
                )  # not of when it spoke: whoever listens may have kept it waiting
            elif ended:
                return
            elif self._silence is not None and self._silent_since(since) >= self._silence:
                raise _silent(self._silence)

    def _silent_since(self, spoke: float) -> float:
        """Seconds; one that waits for what it is fed, or takes of it, is not silent."""
        return time.monotonic() - max(spoke, self.feeder.moved if self.feeder else 0)

    def cancel(self) -> None:
        """Make whoever reads `lines`, in another thread, end with an error within half a second."""
        self._cancelled.set()

    def wait(self) -> int:
        """The exit code, once stdout has ended; negative: the signal that ended it.

        Raises:
            DeadlineError: the deadline has passed.
        """
        try:
            code = self._child.wait(self._left())
        except subprocess.TimeoutExpired:
            raise _late() from None
        self._ended = self._ended or time.monotonic()
        self._drain_rest(self._ended + _LAST_WORDS)
        return code

    def end(self) -> None:
        """End the whole group: SIGTERM, then SIGKILL after a grace."""
        went_by_itself = self._child.poll() is not None
        if self._signal(signal.SIGTERM):
            deadline = time.monotonic() + _GRACE
            while time.monotonic() < deadline and (self._child.poll() is None or self._signal(0)):
                time.sleep(0.02)
            self._signal(signal.SIGKILL)
        if self.feeder is not None:
            self.feeder.end()
        self._watchdog.kill()  # before the child is reaped, so that its number is still its own
        self._watchdog.communicate()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        if self._removal and not went_by_itself:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    self._removal,
                    capture_output=True,
                    timeout=_REMOVAL,
                    check=False,
                    env=self._environment,
                )

    def _left(self) -> float | None:
        """Seconds to the deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _signal(self, number: int) -> bool:
        """Signal the group; False when nobody is left in it."""
        try:
            os.killpg(self._child.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _drain_rest(self, deadline: float) -> None:
        """Wait until all that a dead child wrote to stderr is read; a stray may hold the pipe open."""
        empty = 0
        while self._drain.is_alive() and empty < _EMPTY and time.monotonic() < deadline:
            self._drain.join(_PAUSE)
            empty = 0 if self._unread_stderr() else empty + 1

    def _unread_stderr(self) -> int:
        """Bytes that wait in the pipe."""
        waiting = array("i", [0])
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            fcntl.ioctl(self._child.stderr or -1, termios.FIONREAD, waiting)
        return waiting[0]

    def _drain_stderr(self) -> None:
        # Closed here: closing it elsewhere would wait for a read that a stray process can hold up.
        pipe: IO[bytes] | None = self._child.stderr
        assert pipe is not None
        with contextlib.suppress(OSError), pipe:
            for line in iter(lambda: pipe.readline(CHUNK), b""):
                text = line.decode("utf-8", "replace").rstrip()
                self._tail.append(text[:STDERR_WIDTH])
                self._new.append(text[:STDERR_WIDTH])
                self._written += 1


def _widen(pipe: IO[bytes] | None) -> None:
    """Let a pipe hold a whole chunk, where the system allows it: sixteen times fewer reads."""
    with contextlib.suppress(OSError, AttributeError):
        assert pipe is not None
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, CHUNK)


def _watch(
    group: int, removal: Sequence[str], environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """A shell that outlives us just long enough to end a process group, and what does not end with it: it
    reads a pipe that only we hold open, which the kernel closes however we end."""
    return subprocess.Popen(
        ["sh", "-c", f'read _; kill -KILL -{group}; "$@"', "sh", *(removal or ["true"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment if removal else {"PATH": os.defpath},
    )


def _silent(seconds: float) -> TransientError:
    return TransientError(
        f"the connector said nothing for {seconds:g} seconds, and was ended",
        guidance="if it may be silent for longer, set a longer `heartbeat` in the connection's YAML",
    )


def _late() -> DeadlineError:
    return DeadlineError("the connector took longer than it may")
