"""Log lines and figures from the LOG and TRACE messages of a source. None of these messages changes a row."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Mapping

from msgspec import Raw

from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import (
    INCOMPLETE,
    AnalyticsTrace,
    EstimateTrace,
    Message,
    StreamStatusTrace,
    log_line,
)
from elt_assets.sync.events import Estimated, Logged, Measured, SessionEvent
from elt_assets.sync.streams import StreamRun

RATE_LIMITED = "RATE_LIMITED"
SYNC = "SYNC"
MAX_TYPE = 100
"""Maximum number of characters of a trace's type that are logged."""

Runs = Mapping[StreamId, StreamRun]


def events_from(message: Message, runs: Runs) -> Iterator[SessionEvent]:
    """Yield the events of a LOG or TRACE message; update the progress of the streams that it names."""
    line = log_line(message)
    if line is not None:
        yield Logged(*line)
    if message.trace is not None and message.trace.analytics is not None:
        yield from _measure(message.trace.analytics)
    elif message.trace is not None and message.trace.stream_status is not None:
        yield from _status(message.trace.stream_status, runs)
    elif message.trace is not None and line is None and message.trace.estimate is not None:
        yield from _estimate(message.trace.estimate, runs)
    elif message.trace is not None and line is None:
        kind = message.trace.type[:MAX_TYPE]
        yield Logged(
            "WARN", f"ignored a trace of type {kind!r}: the type is unknown or the trace is empty"
        )


def _measure(analytics: AnalyticsTrace) -> Iterator[SessionEvent]:
    """Yield the number that a source reports; others report texts.

    Spec: AirbyteAnalyticsTraceMessage.
    """
    try:
        value = float(analytics.value or "")
    except ValueError:
        return
    if math.isfinite(value):
        yield Measured(analytics.type[:MAX_TYPE], int(value) if value.is_integer() else value)


def _status(trace: StreamStatusTrace, runs: Runs) -> Iterator[SessionEvent]:
    """Keep the status of a stream. A stream that has failed keeps its failure.

    Spec: AirbyteStreamStatusTraceMessage.
    """
    stream = trace.stream_descriptor.id
    run = runs.get(stream)
    if run is None or run.has_failed:
        return
    run.is_mentioned = True
    run.progress.status = trace.status
    if trace.status == INCOMPLETE:
        yield Logged("WARN", f"the source could not complete stream {str(stream)!r}")
    for reason in trace.reasons or []:
        if reason.type == RATE_LIMITED:
            until = _quota_reset(reason.rate_limited)
            yield Logged("WARN", f"the source is rate limited on stream {str(stream)!r}{until}")


def _quota_reset(rate_limited: Raw | None) -> str:
    """Return a text with the time when the source may continue; an empty text if it reports none.

    Args:
        rate_limited: JSON of the reason; its `quota_reset` is in epoch milliseconds.
    """
    try:
        reset = json.loads(bytes(rate_limited or b"{}"))["quota_reset"]
        time = dt.datetime.fromtimestamp(reset / 1000, dt.timezone.utc)
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return ""
    return f"; it continues at {time:%Y-%m-%d %H:%M:%S} UTC"


def _estimate(estimate: EstimateTrace, runs: Runs) -> Iterator[SessionEvent]:
    """Keep an estimate of one stream (STREAM), or of all that the sync reads (SYNC).

    Spec: AirbyteEstimateTraceMessage.
    """
    counts = [runs.get(StreamId(estimate.name or "", estimate.namespace))]
    if estimate.type == SYNC:
        counts = [*runs.values()]
    [run] = counts if len(counts) == 1 else [None]
    rows, size = estimate.row_estimate, estimate.byte_estimate
    if (run is None and estimate.type != SYNC) or (rows is None and size is None):
        return
    if run is not None and rows is not None:
        run.progress.estimate = int(rows)
    yield Estimated(
        None if run is None else run.configured.id,
        None if rows is None else int(rows),
        None if size is None else int(size),
    )
