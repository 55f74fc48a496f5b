"""Work of a job on several streams, of which one may fail without the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import dagster as dg

from elt_assets.machine_faults import translate
from elt_assets.orchestration.failures import is_explained

S = TypeVar("S")


def select_streams(requested: Collection[str], streams: Mapping[str, S]) -> dict[str, S]:
    """Return the requested streams by asset key; all of them, in the order of their keys, if none is named.

    Raises:
        dagster.Failure: a key is not that of a stream.
    """
    unknown = sorted(set(requested) - set(streams))
    if unknown:
        raise dg.Failure(
            f"these assets are not streams of a connection: {', '.join(unknown)}",
            allow_retries=False,
        )
    return {key: streams[key] for key in requested or sorted(streams)}


def try_each(
    context: dg.OpExecutionContext,
    work: str,
    streams: Mapping[str, S],
    run: Callable[[S], None],
) -> list[str]:
    """Run a function for each stream, and return the keys of the streams for which it failed.

    Any error is logged, and the next stream follows: a table that a library cannot read, or a full disk, may
    concern one stream only. An interruption ends the job.

    Args:
        work: what the function does, as a noun for messages.
        streams: the streams by their asset key.
    """
    return [key for key in streams if not _try(context, f"the {work} of {key}", run, streams[key])]


def _try(context: dg.OpExecutionContext, what: str, run: Callable[[S], None], stream: S) -> bool:
    try:
        run(stream)
    except Exception as error:  # libraries raise errors of many types
        translated = translate(error)
        has_trace = translated is None or not is_explained(translated)
        text = f"{what} failed: {translated or error}"
        context.log.error(text, exc_info=has_trace)  # noqa: TRY400 - not always with a stack trace
        return False
    return True


def refuse_failures(work: str, failed: list[str]) -> None:
    """Raise a dagster.Failure that lists the streams for which the work failed, if there are any."""
    if failed:
        raise dg.Failure(f"the {work} of these assets failed: {', '.join(failed)} (see the log)")
