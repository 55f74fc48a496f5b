"""What the jobs of this project share: one op, and work on several streams, of which one may fail alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import dagster as dg

from elt_assets.machine_faults import translate
from elt_assets.orchestration.failures import is_explained

S = TypeVar("S")


def make_job(
    name: str, op: dg.OpDefinition, description: str, tags: Mapping[str, Any] | None = None
) -> dg.JobDefinition:
    """Return a job of one op."""

    @dg.job(name=name, description=description, tags=tags)
    def job() -> None:
        op()

    return job


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
    failed = []
    for key, stream in streams.items():
        try:
            run(stream)
        except Exception as error:  # noqa: PERF203 - libraries raise errors of many types
            failed.append(key)
            translated = translate(error)
            has_trace = translated is None or not is_explained(translated)
            text = f"the {work} of {key} failed: {translated or error}"
            context.log.error(text, exc_info=has_trace)  # noqa: TRY400 - not always with a trace
    return failed


def refuse_failures(work: str, failed: list[str]) -> None:
    """Raise a dagster.Failure that lists the streams for which the work failed, if there are any."""
    if failed:
        raise dg.Failure(f"the {work} of these assets failed: {', '.join(failed)} (see the log)")
