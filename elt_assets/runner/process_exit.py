"""Turn the end of a connector's process into success or an error."""

from __future__ import annotations

from elt_assets.protocol.messages import ErrorTrace
from elt_assets.runner.connector_log import ConnectorLog
from elt_assets.runner.failures import connector_failure, exit_description
from elt_assets.runner.process.child import Process


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
