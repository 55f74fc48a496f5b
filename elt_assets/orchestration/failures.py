"""Our errors as what the user reads in the UI."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import dagster as dg

from elt_assets.errors import EltError, SystemFailure, TransientError


@contextlib.contextmanager
def as_dagster_failure() -> Iterator[None]:
    """Turn an error of this project into a `dagster.Failure`.

    Where our code ran into it is shown of a system failure alone: the others are for people who look for the
    message at the end of the output, not for maintainers.
    """
    try:
        yield
    except EltError as error:
        raise _failure(error) from (error if isinstance(error, SystemFailure) else None)


def _failure(error: EltError) -> dg.Failure:
    """What the user reads in the UI; what does not pass is not worth a retry."""
    metadata = {"failure_type": error.failure_type}
    if error.guidance:
        metadata["what to do"] = error.guidance
    return dg.Failure(
        description=str(error),
        metadata=metadata,
        allow_retries=isinstance(error, TransientError),
    )
