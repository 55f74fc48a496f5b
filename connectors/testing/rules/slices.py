"""Rules about streams that are read by slices: tasks get the same records as any other reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from connectors.testing.comparison import Difference, canonical
from connectors.testing.findings import Finding, NotApplicable
from connectors.testing.observations import READ, REFRESH, SLICE_CUTS, SLICES, Observations
from connectors.testing.rules.rule import MAX_SHOWN, Results, rule
from connectors.testing.rules.states import NEW_DATA, describe_difference
from connectors.testing.scopes import SlicedRead
from connectors.testing.slices import SeenSlice


def _require_slices(seen: Observations) -> Sequence[SlicedRead]:
    """Return the reads by slices.

    Raises:
        NotApplicable: the connector has no slices, or they cannot be read here.
    """
    if not seen.connector.can_converse:
        raise NotApplicable("slices are read of a connector that is a module of Python")
    if not seen.sliced_reads:
        raise NotApplicable("no stream is read by slices")
    return seen.sliced_reads


@rule(SLICES)
def slices_are_read_elsewhere(seen: Observations) -> Results:
    """Each slice can be read in another process, which knows the config and the data of the slice."""
    for read in _require_slices(seen):
        failed = [part for part in _slices(read) if part.first.error or part.second.error]
        for part in failed[:MAX_SHOWN]:
            yield Finding(
                "its records",
                f"slice {part.key}: {part.first.error or part.second.error}",
                "put all that `read_slice` needs into the `data` of the slice, and define the class of the "
                "source at the top level of a module that can be imported; keep what slices need, such as a "
                "snapshot, until `Wait` returns",
                str(part.stream),
                read.by_slices.purpose,
                part.line,
            )


@rule(SLICES)
def slices_are_read_again_alike(seen: Observations) -> Results:
    """A slice has the same records when it is read again, in another order: tasks may be tried again."""
    for read in _require_slices(seen):
        for part in _slices(read):
            first, second = (
                Counter(_identify(seen, record) for record in reading.records)
                for reading in (part.first, part.second)
            )
            if part.first.error is None is part.second.error and first != second:
                yield Finding(
                    f"the {first.total():,} records of slice {part.key} again",
                    describe_difference(Difference(first - second, second - first)),
                    "read a slice from its `data` alone, and leave nothing behind for the next one; "
                    + NEW_DATA,
                    str(part.stream),
                    read.by_slices.purpose,
                    part.line,
                )


@rule(READ, REFRESH, SLICES)
def slices_have_the_same_records(seen: Observations) -> Results:
    """A read by slices has the same records as a read without slices."""
    for read in _require_slices(seen):
        run = read.by_slices
        if not run.succeeded:
            yield _make_finding(
                "a read that succeeds, as without slices", f"it {run.ended.text}", read
            )
            continue
        for stream in run.streams:
            name = str(stream.id)
            records, sliced = (
                Counter(_identify(seen, r.data) for r in way.records if r.stream == stream.id)
                for way in (read.as_records, read.by_slices)
            )
            if records != sliced:
                text = describe_difference(Difference(records - sliced, sliced - records))
                expected = f"the {records.total():,} records of a read without slices"
                yield _make_finding(expected, text, read, name)


@rule(SLICES)
def waits_end_when_slices_are_read(seen: Observations) -> Results:
    """A connector that waits for its slices to be read sends nothing until this is done."""
    reads = _require_slices(seen)
    if not any(run.transcript.has_barriers for run in (read.by_slices for read in reads)):
        raise NotApplicable("the connector does not wait for its slices")
    for read in reads:
        slices = read.by_slices.slices
        if slices is not None and slices.hasty is not None:
            yield Finding(
                "no message after BARRIER before a line on stdin",
                "another message",
                "wait for a line on stdin; the SDK does so for `Wait`",
                run=read.by_slices.purpose,
                line=slices.hasty,
            )


@rule(SLICES, SLICE_CUTS)
def slices_and_records_share_states(seen: Observations) -> Results:
    """A read from any state has the same records by slices and without them, whichever way sent the state."""
    _require_slices(seen)
    if not seen.slice_cuts:
        raise NotApplicable("no state was sent")
    for slice_cut in seen.slice_cuts:
        cut, run = slice_cut.cut, slice_cut.read
        place = f"state {cut.number} of {len(cut.scope.states)}, of {cut.scope.run.purpose}"
        missing, extra = cut.resumed - slice_cut.resumed, slice_cut.resumed - cut.resumed
        flaw = None
        if not run.succeeded:
            flaw = f"the read by slices from {place} {run.ended.text}"
        elif missing or extra:
            flaw = f"by slices from {place}: {describe_difference(Difference(missing, extra))}"
        elif cut.difference and cut.run.succeeded:
            flaw = f"with a read from {place}: {describe_difference(cut.difference)}"
        if flaw is not None:
            yield Finding(
                "the records after the state, by slices and without them",
                flaw,
                "let a `Checkpoint` cover the slices before it, and start `slices` right after them; "
                + NEW_DATA,
                cut.scope.name,
                run.purpose,
            )


def _slices(read: SlicedRead) -> Sequence[SeenSlice]:
    return [] if read.by_slices.slices is None else read.by_slices.slices.slices


def _identify(seen: Observations, record: object) -> str:
    if isinstance(record, dict):
        record = {name: v for name, v in record.items() if name not in seen.options.ignore}
    return canonical(record)


def _make_finding(expected: str, flaw: str, read: SlicedRead, stream: str | None = None) -> Finding:
    return Finding(
        expected,
        flaw,
        "yield each record in one slice; " + NEW_DATA,
        stream,
        read.by_slices.purpose,
    )
