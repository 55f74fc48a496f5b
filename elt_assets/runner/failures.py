"""The error that a connector's end raises: its decisive ERROR trace, exit code, and the tail of its stderr.

spec: AirbyteErrorTraceMessage.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import MappingProxyType

from elt_assets.errors import EltError, SystemFailure, TransientError, error_class
from elt_assets.protocol.airbyte.messages import ErrorTrace

DEADLINES: Mapping[str, float] = MappingProxyType({"spec": 900, "check": 900, "discover": 3600})
"""Seconds that a verb may take; those that are not named may take for ever."""


def failure(ending: str, error: ErrorTrace | None, stderr: str = "") -> EltError:
    """Return the error for a connector's decisive ERROR trace and the way it ended."""
    tail = f"its stderr ended with:\n{stderr}" if stderr else None
    if error is None:
        return SystemFailure(ending, detail=tail)
    parts = [error.internal_message, error.stack_trace, tail]
    return error_class(error.failure_type)(
        f"{error.text} ({ending})", detail="\n".join(filter(None, parts)) or None
    )


def too_slow(verb: str, name: str, seconds: float) -> TransientError:
    """The failure of a verb that did not end before its deadline."""
    return TransientError(
        f"`{verb}` of connector {name} took longer than {seconds:g} seconds, and was ended",
        guidance=f"if it needs longer, set a longer `deadlines.{verb}` in the connection's YAML",
    )


def ending(code: int) -> str:
    """An exit code in words; negative: of the signal that ended it."""
    if code < 0:
        return f"was ended by {_signal_name(-code)}"
    # A shell, or docker, tells in this way how its child ended.
    after = f" (128 + {_signal_name(code - 128)})" if code > 128 else ""
    return f"ended with exit code {code}{after}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
