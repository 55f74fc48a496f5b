"""End the processes that a connector started outside its process group.

`process` marks each child that it starts, and ends what is left.

A program can leave its group and its parent (`setsid`, a double fork), and it then survives the end of the
group. What it cannot leave unnoticed is the environment that it was started with: a variable there marks all
processes of one connector. A program that is started without this variable, after its parent has ended,
escapes; only a container ends it. Systems without /proc end the group only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

MARK = "ELT_PROCESS"
"""The variable that marks the processes of one connector."""
_PROC = Path("/proc")
_ROUNDS = 5
"""Maximum number of searches: a process may start another one before it is ended."""

WATCHDOG = f"""read group; read _; [ -z "$group" ] || kill -KILL -"$group"; for process in /proc/[0-9]*; do
grep -qsza "^{MARK}=$1$" "$process/environ" && kill -KILL "${{process#/proc/}}"; done; shift; "$@" """
"""A shell script that reads the number of a process group, waits for the end of its input, and then ends the
group, the processes with a mark ($1), and what the command in the other arguments ends."""


def new_mark() -> str:
    """Return a value of `MARK` that no other process has."""
    return uuid.uuid4().hex


def end_marked(mark: str) -> None:
    """End all processes with a mark by SIGKILL; this process may not have it."""
    for _ in range(_ROUNDS):
        if not [pid for pid in _pids() if _end(pid, f"{MARK}={mark}".encode())]:
            return


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())


def _end(pid: int, variable: bytes) -> bool:
    """End a process if it has a variable; return whether it had it and was running."""
    try:
        descriptor = os.pidfd_open(pid)  # from here on the number cannot mean another process
    except (OSError, AttributeError):
        return False
    try:
        if variable not in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
