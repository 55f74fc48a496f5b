"""The status of a read: its streams, their failures, and the lines and records that do not belong to it.

First `events_from`, which turns the LOG and TRACE messages of a source into log lines and figures; then
`ReadStatus`, which the session and the relay ask how a read went. None of these messages changes a row.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import reduce

from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure, error_class
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import (
    INCOMPLETE,
    AnalyticsTrace,
    ErrorTrace,
    EstimateTrace,
    Message,
    PlainText,
    StreamStatusTrace,
    UndecodedLine,
    UnreadableError,
    log_line,
    root_error,
)
from elt_assets.sync.events import (
    NOT_AMONG_RECORDS,
    NOT_AMONG_STATUSES,
    QUIET,
    Estimated,
    Logged,
    Measured,
    SessionEvent,
)
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


MAX_STREAMS = 100
"""Maximum number of streams with a separate count; the records of all others are counted together."""
MAX_NAME = 1_000
"""Maximum length, in characters, of the name of a stream with a separate count."""


class StreamRoutes(Mapping[StreamId, StreamRun]):
    """A mapping from the stream name of a message to the configured stream.

    Some sources omit the namespace in their messages. Such a message belongs to the configured stream of
    that name, if there is exactly one. Iteration yields the configured names only.

    Attributes:
        direct: every name that was resolved so far; the hot path looks here first.
    """

    def __init__(self) -> None:
        self.direct: dict[tuple[str, str | None], StreamRun] = {}
        self._configured: dict[StreamId, StreamRun] = {}
        self._by_name: dict[str, list[StreamRun]] = {}

    def add(self, run: StreamRun) -> None:
        self._configured[run.configured.id] = run
        self.direct[run.configured.id] = run
        self._by_name.setdefault(run.configured.id.name, []).append(run)

    def __getitem__(self, stream: StreamId) -> StreamRun:
        if stream not in self.direct:
            namesakes = self.namesakes(stream)
            if len(namesakes) != 1:
                raise KeyError(stream)
            self.direct[stream] = namesakes[0]
        return self.direct[stream]

    def __iter__(self) -> Iterator[StreamId]:
        return iter(self._configured)

    def __len__(self) -> int:
        return len(self._configured)

    def namesakes(self, stream: StreamId) -> list[StreamRun]:
        """Return the configured streams of the same name; an empty list if `stream` has a namespace."""
        return self.same_name(stream) if stream.namespace is None else []

    def same_name(self, stream: StreamId) -> list[StreamRun]:
        """Return the configured streams of the same name, whatever their namespaces."""
        return self._by_name.get(stream.name, [])


class IgnoredRecords:
    """A counter of ignored records. Its memory does not grow with the stream names that a source sends."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[StreamId, int] = {}

    def add(self, stream: StreamId, count: int = 1) -> Iterator[Logged]:
        """Count records; yield a warning if they are the first of their stream."""
        self.total += count
        if stream in self._counts:
            self._counts[stream] += count
        elif len(self._counts) < MAX_STREAMS and len(str(stream)) <= MAX_NAME:
            self._counts[stream] = count
            yield Logged("WARN", f"ignoring the records of stream {str(stream)!r}: not configured")

    def summary(self) -> Iterator[Logged]:
        """Yield one warning with the count of each stream, and one with the count of all others."""
        for stream, count in self._counts.items():
            yield Logged("WARN", f"ignored {count} records of stream {str(stream)!r}")
        others = self.total - sum(self._counts.values())
        if others:
            yield Logged(
                "WARN", f"ignored {others} records of other streams that are not configured"
            )


class ReadStatus:
    """The streams of one read, which of them failed and why, and what the source sent besides."""

    def __init__(self) -> None:
        self.routes = StreamRoutes()
        self._ignored = IgnoredRecords()
        self._warnings: Counter[str] = Counter()
        self._error: ErrorTrace | None = None
        self._noise = 0
        self._message_received = False

    @property
    def runs(self) -> list[StreamRun]:
        return list(self.routes.values())

    @property
    def has_failures(self) -> bool:
        """Return whether the source reported a failure, with or without a stream."""
        return self._error is not None or any(run.has_failed for run in self.runs)

    def note(self, message: Message) -> Iterator[SessionEvent]:
        """Update the status from any message except a record; yield what is to be logged or shown."""
        if isinstance(message, UndecodedLine):
            self._noise += isinstance(message, PlainText)
        else:
            self._message_received = True
        error = message.reported_error or self._error_of_unknown_stream(message)
        if error:
            self._fail(error)
        yield from events_from(message, self.routes)

    def ignore(self, stream: StreamId, count: int = 1) -> Iterator[SessionEvent]:
        """Count records of a stream that is not configured.

        Raises:
            SystemFailure: the record may belong to a configured stream, whose state would move past it.
        """
        namesakes = self.routes.namesakes(stream)
        if namesakes:
            names = ", ".join(repr(str(run.configured.id)) for run in namesakes)
            raise SystemFailure(
                f"the connector sent a record of stream {str(stream)!r} without a namespace: "
                f"the record may belong to any of {names}",
                guidance="this is a defect of the connector; sync each of these streams in a separate "
                "connection",
            )
        yield from self._ignored.add(stream, count)

    def warn(self, text: str) -> Iterator[Logged]:
        """Yield a warning the first time; `conclude` says how often it was given.

        A source may send a million messages that are ignored, and each line of the log is stored. The texts
        must not be made of what a source sends: their number bounds the memory.
        """
        self._warnings[text] += 1
        if self._warnings[text] == 1:
            yield Logged("WARN", text)

    def incomplete_runs(self) -> list[StreamRun]:
        """Return the streams that are not complete, after the source has ended without an error.

        If the source printed lines but no message of the protocol, every stream is incomplete.
        """
        runs = self.runs
        has_messages = self._message_received or self._ignored.total > 0
        has_messages = has_messages or any(run.is_mentioned for run in runs)
        if self._noise and not has_messages:
            return runs
        return [run for run in runs if run.is_incomplete]

    def conclude(self) -> Iterator[Logged]:
        """Set the figures of each stream that concern the whole read; yield the warnings."""
        has_statuses = any(run.progress.status is not None for run in self.runs)
        for run in self.runs:
            run.progress.ignored = self._ignored.total
            if not run.is_mentioned:
                others = NOT_AMONG_RECORDS if self._ignored.total else QUIET
                run.progress.unmentioned = NOT_AMONG_STATUSES if has_statuses else others
                yield Logged(
                    "WARN", f"stream {str(run.configured.id)!r}: {run.progress.unmentioned}"
                )
        yield from self._ignored.summary()
        for text, count in self._warnings.items():
            if count > 1:
                yield Logged("WARN", f"{text} ({count:,} times)")

    def check(self, incomplete: list[StreamRun]) -> None:
        """Raise the error of the read if it failed.

        Raises:
            EltError: streams are incomplete, or the source reported an error without a stream.
        """
        if incomplete:
            raise self.failure(incomplete)
        if self._error is not None:
            raise as_failure(self._error, "the source reported an error")

    def failure(self, incomplete: list[StreamRun]) -> EltError:
        """Return the error for streams that were not completed."""
        names = ", ".join(repr(str(run.configured.id)) for run in incomplete)
        errors = (run.error for run in incomplete)
        error: ErrorTrace | None = reduce(root_error, errors, None)
        if error is not None:
            return as_failure(error, f"stream {names}")
        if not incomplete[0].is_mentioned:
            return SystemFailure(
                f"the connector sent no message about stream {names}, but printed {self._noise} lines that "
                "are not messages of the Airbyte Protocol (see the log)",
                guidance="check that the program is a connector: `command:` must write messages of the "
                "protocol to its stdout",
            )
        return SystemFailure(
            f"the connector ended without completing stream {names} "
            f"(its last status: {incomplete[0].progress.status})",
            guidance="what was committed up to the last state is kept; the next run resumes from there",
        )

    def _fail(self, error: ErrorTrace) -> None:
        """Fail the stream that an error names.

        An error without a stream, or with one that is not configured, fails all streams that are not
        complete. An error whose stream cannot be read may be that of any stream, so it fails all.

        Spec: AirbyteErrorTraceMessage.
        """
        descriptor = error.stream_descriptor
        failed: list[StreamRun] = []
        if descriptor is not None:
            run = self.routes.get(descriptor.id)
            # Without a stream of exactly this name, the failure may be that of one in any namespace.
            failed = self.routes.same_name(descriptor.id) if run is None else [run]
        if not failed:
            self._error = root_error(self._error, error)
            is_any = isinstance(error, UnreadableError)
            failed = [run for run in self.runs if is_any or not run.is_complete]
        for run in failed:
            run.error = root_error(run.error, error)

    def _error_of_unknown_stream(self, message: Message) -> ErrorTrace | None:
        """Return the error of a status INCOMPLETE whose stream is not configured; None for others."""
        status = message.trace.stream_status if message.trace is not None else None
        if status is None or status.status != INCOMPLETE:
            return None
        stream = status.stream_descriptor
        if self.routes.get(stream.id) is not None:
            return None
        text = f"the source could not complete stream {str(stream.id)!r}, which is not configured"
        return ErrorTrace(message=text, stream_descriptor=stream)


def as_failure(error: ErrorTrace, subject: str) -> EltError:
    """Return the failure that an ERROR trace reports."""
    return error_class(error.failure_type)(
        f"{subject}: {error.text}", detail=error.stack_trace or error.internal_message
    )
