"""How a connector's process ended: quietly, or as an error."""

from __future__ import annotations

from elt_assets.protocol.airbyte.messages import ErrorTrace
from elt_assets.runner.connector_log import ConnectorLog
from elt_assets.runner.failures import ending, failure
from elt_assets.runner.process.child import Process


def raise_for_end(what: str, process: Process, error: ErrorTrace | None, log: ConnectorLog) -> None:
    """Wait for a process to end, and raise what its end means.

    Args:
        what: names the process in the error, as in "`read` of connector x".
        error: the decisive ERROR trace that it sent.
        log: cleans what its stderr ended with.

    Raises:
        EltError: it did not end with exit code 0, or before it had read all that it was sent.
        Exception: what the lines that it was to be sent raised.
    """
    code, feeder = process.wait(), process.feeder
    if feeder is not None:
        feeder.end()
        if feeder.error is not None:
            raise feeder.error
    if code != 0:
        raise failure(f"{what} {ending(code)}", error, log.lines(process.stderr_tail))
    if feeder is not None and not feeder.complete:
        raise failure(f"{what} {ending(code)}, before it had read all that it was sent", error)
