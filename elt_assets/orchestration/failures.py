"""Conversion of this project's errors to `dagster.Failure`, which the UI shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import dagster as dg

from elt_assets.errors import EltError, SystemFailure, TransientError
from elt_assets.machine_faults import translate


@contextlib.contextmanager
def as_dagster_failure() -> Iterator[None]:
    """Convert an error of this project, or a fault of the machine, to a `dagster.Failure`.

    Only a system failure keeps its cause with the stack trace, for maintainers. For other errors the stack
    trace is omitted, so the message is at the end of the output, where users look for it.

    An interruption is not retried. Dagster applies the retry policy of an op to it, so that Ctrl-C would
    start the sync again; an error of Dagster's own is exempt from the policy.
    """
    try:
        yield
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interruption:
        raise Interrupted("the run was interrupted") from interruption
    except Exception as error:
        project_error = translate(error)
        if project_error is None:
            raise
        raise _failure(project_error) from (None if is_explained(project_error) else project_error)


def is_explained(error: EltError) -> bool:
    """Return whether the message of an error suffices, so that its stack trace is omitted."""
    return error.is_machine_fault or not isinstance(error, SystemFailure)


class Interrupted(dg.DagsterError, dg.DagsterExecutionInterruptedError):
    """The end of a step by a signal: the run is cancelled, and the retry policy of the op does not apply."""


def one_line(error: Exception) -> str:
    """Return an error as one line, for the reason of a skipped tick."""
    if isinstance(error, EltError):
        return " ".join(filter(None, [error.message, error.guidance]))
    return f"{type(error).__name__}: {error}"


def _failure(error: EltError) -> dg.Failure:
    """Return the failure with the message for the UI; only a transient error allows retries."""
    metadata = {"failure_type": error.failure_type}
    if error.guidance:
        metadata["what to do"] = error.guidance
    return dg.Failure(
        description=str(error),
        metadata=metadata,
        allow_retries=isinstance(error, TransientError),
    )
