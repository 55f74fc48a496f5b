"""Rules about what a read reports of itself: statuses, estimates, and the numbers of records in states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from connectors.testing.comparison import decoded
from connectors.testing.connector import Run
from connectors.testing.findings import Finding, NotApplicable
from connectors.testing.observations import READ, REFRESH, Observations
from connectors.testing.protocols.protocol import Span
from connectors.testing.rules.rule import Results, rule
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import (
    COMPLETE,
    INCOMPLETE,
    RUNNING,
    STARTED,
    EstimateTrace,
    State,
)

FACTOR = 10
"""An estimate is plausible up to this factor, in either direction."""
SLACK = 10
"""Number of records by which an estimate may be wrong, whatever the factor."""

_ENDS = (COMPLETE, INCOMPLETE)
_NO_CURSOR = {"__ab_no_cursor_state_message": True}
"""The last state of a stream without a cursor, which the Airbyte CDK sends after COMPLETE. It has no position
that could be lost."""


@rule(READ)
def statuses_are_complete(seen: Observations) -> Results:
    """Each stream has the status STARTED before its first record, and COMPLETE or INCOMPLETE at its end."""
    if not seen.first_read.transcript.statuses:
        raise NotApplicable("the connector sends no stream statuses, which are optional")
    for run in seen.runs():
        if run.verb == "read" and run.succeeded:
            yield from _status_findings(run)


def _status_findings(run: Run) -> Iterator[Finding]:
    sent: dict[StreamId, list[tuple[str, int]]] = {stream.id: [] for stream in run.streams}
    for trace, line in run.transcript.statuses:
        stream = trace.stream_descriptor.id
        if stream not in sent:
            yield _status_finding(run, stream, line, "a status of a stream that is not configured")
        else:
            sent[stream].append((trace.status, line))
    for stream, statuses in sent.items():
        flaw = _status_flaw(statuses, run.transcript.spans.get(stream))
        if flaw is not None:
            yield _status_finding(run, stream, None, flaw)
        elif statuses:
            yield from _late_states(run, stream, statuses[-1][1])


def _late_states(run: Run, stream: StreamId, end: int) -> Iterator[Finding]:
    """Yield a finding for each state of a stream after its end that is neither the one before, sent
    again, nor the mark of a stream without a cursor."""
    before: object = None
    for state, line in run.transcript.states:
        if state.stream is None or state.stream.stream_descriptor.id != stream:
            continue
        blob = decoded(state.stream.stream_state)
        if line > end and blob not in (before, _NO_CURSOR):
            yield _status_finding(run, stream, line, f"another state after COMPLETE, in line {end}")
        before = blob


def _status_finding(run: Run, stream: StreamId, line: int | None, flaw: str) -> Finding:
    return Finding(
        "STARTED, RUNNING if there are records, all records and states, then COMPLETE",
        flaw,
        "send the statuses of each configured stream in this order; INCOMPLETE and an exit code other than "
        "0 if the stream failed",
        str(stream),
        run.purpose,
        line,
    )


def _status_flaw(statuses: Sequence[tuple[str, int]], span: Span | None) -> str | None:
    """Return what is wrong with the statuses of a stream in a read that succeeded."""
    names = [name for name, _ in statuses]
    status_names = ", ".join(names) or "no status"
    if not names or names[0] != STARTED or names.count(STARTED) != 1:
        return f"{status_names}: STARTED must be the first, and occur once"
    if names[-1] != COMPLETE or sum(name in _ENDS for name in names) != 1:
        return f"{status_names}: after exit code 0, COMPLETE must be the last, and occur once"
    if any(name not in (STARTED, RUNNING, *_ENDS) for name in names):
        return f"{status_names}: not a status of the protocol"
    if span is None:
        return None
    if span.first < statuses[0][1]:
        return f"a record before STARTED, in line {span.first}"
    if span.last > statuses[-1][1]:
        return f"a record after {names[-1]}, in line {span.last}"
    return None


@rule(READ, REFRESH)
def estimates_are_plausible(seen: Observations) -> Results:
    """The estimated number of records is a whole number that is not far from the number of records."""
    reads = [seen.first_read, seen.refresh]
    if not any(run.transcript.estimates for run in reads):
        raise NotApplicable("the connector sends no estimates, which are optional")
    for run in reads:
        last: dict[StreamId | None, tuple[EstimateTrace, int]] = {}
        for estimate, line in run.transcript.estimates:
            is_stream = estimate.type == "STREAM" and estimate.name is not None
            stream = StreamId(estimate.name or "", estimate.namespace) if is_stream else None
            last[stream] = (estimate, line)
        for stream, (estimate, line) in last.items():
            flaw = _estimate_flaw(run, stream, estimate)
            if flaw is not None:
                yield Finding(
                    f"an estimate within a factor of {FACTOR} of the number of records",
                    flaw,
                    "send the number of records that this read will send, or no estimate",
                    None if stream is None else str(stream),
                    run.purpose,
                    line,
                )


def _estimate_flaw(run: Run, stream: StreamId | None, estimate: EstimateTrace) -> str | None:
    rows = estimate.row_estimate
    if stream is not None and stream not in {stream.id for stream in run.streams}:
        return "an estimate for a stream that is not configured"
    if rows is None:
        return None
    if rows < 0 or rows != int(rows):
        return f"a `row_estimate` of {rows}, which is not a number of records"
    spans = run.transcript.spans
    total = sum(span.count for other, span in spans.items() if stream in (None, other))
    if rows > FACTOR * total + SLACK or total > FACTOR * rows + SLACK:
        return f"a `row_estimate` of {rows:,} for {total:,} records"
    return None


@rule(READ)
def record_counts_match_states(seen: Observations) -> Results:
    """`sourceStats.recordCount` of a state is the number of records since the state before it."""
    states = seen.first_read.transcript.states
    if not any(_count(state) is not None for state, _ in states):
        raise NotApplicable("the connector sends no `sourceStats`, which are optional")
    yield from _wrong_counts(seen.first_read)


def _wrong_counts(read: Run) -> Iterator[Finding]:
    before: dict[StreamId | None, int] = {}
    for state, line in read.transcript.states:
        stream = None if state.stream is None else state.stream.stream_descriptor.id
        since, before[stream] = before.get(stream, 0), line
        count = _count(state)
        seen = sum(
            since < record.line < line and stream in (None, record.stream)
            for record in read.records
        )
        if count is not None and count != seen:
            finding = Finding(
                f"`recordCount` {seen}, the number of records since the state before",
                f"`recordCount` {count:g}",
                "count the records of the stream since its last state; of all streams for a GLOBAL state",
                run=read.purpose,
                line=line,
            )
            yield finding if stream is None else replace(finding, stream=str(stream))


def _count(state: State) -> float | None:
    return None if state.sourceStats is None else state.sourceStats.recordCount
