"""Protect this process's memory and environment from other processes of the same user."""

from __future__ import annotations

import ctypes
import os
import sys

ALLOWED = "ELT_ALLOW_INSPECTION"
"""The variable that, if set, allows debuggers and core dumps."""
_PR_SET_DUMPABLE = 4
"""The constant of Linux's prctl(2)."""


def deny_inspection() -> None:
    """Make this process undumpable.

    No unprivileged process can then read its memory, or its environment in /proc, and it leaves no core dump.
    Programs that it starts are dumpable again. Nothing is done if `ALLOWED` is set, or on systems other than
    Linux.
    """
    if sys.platform.startswith("linux") and not os.environ.get(ALLOWED):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
