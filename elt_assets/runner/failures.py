"""The error that a connector's end raises: its decisive ERROR trace, exit code, and the tail of its stderr.

spec: AirbyteErrorTraceMessage.
"""

from __future__ import annotations

import signal

from elt_assets.errors import EltError, SystemFailure, error_class
from elt_assets.protocol.messages import ErrorTrace


def failure(ending: str, error: ErrorTrace | None, stderr: str = "") -> EltError:
    """Return the error for a connector's decisive ERROR trace and the way it ended."""
    tail = f"its stderr ended with:\n{stderr}" if stderr else None
    if error is None:
        return SystemFailure(ending, detail=tail)
    parts = [error.internal_message, error.stack_trace, tail]
    return error_class(error.failure_type)(
        f"{error.text} ({ending})", detail="\n".join(filter(None, parts)) or None
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
