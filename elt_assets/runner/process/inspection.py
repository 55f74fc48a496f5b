"""Keeping this process's memory and environment from other processes of the same user."""

from __future__ import annotations

import ctypes
import os
import sys

ALLOWED = "ELT_ALLOW_INSPECTION"
"""The variable that, where it is set, leaves the process open to debuggers and core dumps."""
_PR_SET_DUMPABLE = 4
"""Of Linux's prctl(2)."""


def deny_inspection() -> None:
    """Make this process undumpable: no other process without privileges can read its memory, or its
    environment in /proc, and it leaves no core dump. Programs that it starts are dumpable again.

    Does nothing where `ALLOWED` is set, or on other systems than Linux.
    """
    if sys.platform.startswith("linux") and not os.environ.get(ALLOWED):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
