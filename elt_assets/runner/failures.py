"""Errors for failed connectors, made from the ERROR trace of the cause, the exit code and the end of stderr.

Used by `connector` and `singer_tap`; `source_kind` takes the default time limits of the verbs (`DEADLINES`).

`raise_for_exit`, at the end, turns the end of a connector's process into success or an error.

Spec: AirbyteErrorTraceMessage.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import MappingProxyType

from elt_assets.errors import EltError, SystemFailure, TransientError, error_class
from elt_assets.protocol.messages import ErrorTrace
from elt_assets.runner.connector_log import ConnectorLog
from elt_assets.runner.process import Process

DEADLINES: Mapping[str, float] = MappingProxyType(
    {"spec": 900, "check": 900, "discover": 3600, "partitions": 3600}
)
"""Default time limit of each verb in seconds. Other verbs have no time limit."""
USAGE_ERROR = 2
"""The exit code of most programs for arguments that they do not know."""


class UsageFailure(SystemFailure):
    """A connector that ended with the exit code `USAGE_ERROR` and sent no ERROR trace: it may not know the
    verb."""


def connector_failure(
    problem: str,
    error: ErrorTrace | None,
    stderr: str = "",
    code: int | None = None,
    output: str = "",
) -> EltError:
    """Return the error for a failed connector.

    Args:
        problem: what failed, such as "`read` of connector x ended with exit code 1".
        error: the ERROR trace of the cause (see `root_error`); its `failure_type` selects the class.
        stderr: the last lines of stderr, for the detail of the error.
        code: the exit code, if it is the reason.
        output: the first lines of stdout that are not messages, for the detail of the error.
    """
    head = f"its output is not a message:\n{output}\n" if output else ""
    tail = head + (f"its stderr ended with:\n{stderr}" if stderr else "") or None
    failure: EltError
    if error is None:
        failure = (UsageFailure if code == USAGE_ERROR else SystemFailure)(problem, detail=tail)
    else:
        parts = [error.internal_message, error.stack_trace, tail]
        failure = error_class(error.failure_type)(
            f"{error.text} ({problem})", detail="\n".join(filter(None, parts)) or None
        )
    failure.exit_code = code
    return failure


def deadline_failure(verb: str, action: str, seconds: float) -> TransientError:
    """Return the error for a verb that did not end in time; `action` is as for `raise_for_exit`."""
    return TransientError(
        f"{action} took longer than {seconds:g} seconds and was stopped",
        guidance=f"if it needs longer, set a longer `deadlines.{verb}` in the connection's YAML",
    )


def exit_description(code: int) -> str:
    """Return an exit code in words. A negative code is the number of the signal that ended the process."""
    if code < 0:
        return f"was terminated by {_signal_name(-code)}"
    # A shell or docker adds 128 to the number of the signal that ended its child.
    after = f" (128 + {_signal_name(code - 128)})" if code > 128 else ""
    return f"ended with exit code {code}{after}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def raise_for_exit(
    action: str, process: Process, error: ErrorTrace | None, log: ConnectorLog
) -> None:
    """Wait for a process to end, and raise an error unless it succeeded.

    Args:
        action: what the process did, for the error: "`read` of connector x".
        error: the ERROR trace of the cause (see `root_error`) that the process sent.
        log: masks and cuts the last lines of stderr.

    Raises:
        EltError: the exit code is not 0, or the process ended before it read all of its input.
        Exception: the error that the iterator of input lines raised.
    """
    code, feeder = process.wait(), process.feeder
    if feeder is not None:
        feeder.end()
        if feeder.error is not None:
            raise feeder.error
    if code != 0:
        stderr = log.lines(process.stderr_tail)
        raise connector_failure(f"{action} {exit_description(code)}", error, stderr, code)
    if feeder is not None and not feeder.complete:
        text = f"{action} {exit_description(code)} before it read all of its input"
        raise connector_failure(text, error)
