"""Conversion of this project's errors to `dagster.Failure`, which the UI shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import dagster as dg

from elt_assets.errors import EltError, SystemFailure, TransientError


@contextlib.contextmanager
def as_dagster_failure() -> Iterator[None]:
    """Convert an error of this project to a `dagster.Failure`.

    Only a system failure keeps its cause with the stack trace, for maintainers. For other errors the stack
    trace is omitted, so the message is at the end of the output, where users look for it.
    """
    try:
        yield
    except EltError as error:
        raise _failure(error) from (error if isinstance(error, SystemFailure) else None)


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
