"""The interfaces of a session and a relay: the sinks that they write to, and the events that they report.

The sinks are those of the lake and of `destination`; `pipeline.read` hands the events on, to
`orchestration.report` or `destination`, and to `telemetry.observation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import State
from elt_assets.sync.pending import PendingState, SliceGroup
from elt_assets.sync.segments import Segment


@dataclass(frozen=True)
class Checkpoint:
    """A request to a sink to publish all segments written since the last checkpoint."""

    states: tuple[State, ...]  # the stream's states in the order received; the last one is stored
    final: bool  # the stream is complete
    # the source ended without an error and sent no record, state or status of the stream, which
    # does not mean that the stream is empty
    silent: bool = False


@dataclass(frozen=True)
class Committed:
    """The result of one commit, as the sink measured it. Counts are of this commit only."""

    sequence: int
    generation: int
    version: int
    records: int
    rejected: int
    changed: int
    state: str | None = None  # the stream's state from now on, as JSON
    # positions of the rejected records in their stream, ascending; empty unless the sink was
    # asked to report them
    places: Sequence[int] = ()
    # number of records by field that the stream's schema does not declare
    undeclared: Mapping[str, int] = field(default_factory=dict)
    # number of records by what was changed in them
    changed_fields: Mapping[str, int] = field(default_factory=dict)
    # number of rejected records by reason
    rejected_reasons: Mapping[str, int] = field(default_factory=dict)
    # number of records among `records` and `rejected` that are not stored: their keys were erased for good
    suppressed: int = 0
    # number of records among `records` that the table had already, with the same values: they rewrote nothing
    unchanged: int = 0


class Sink(Protocol):
    """The writer of one stream's segments. It is called in order, by one thread at a time."""

    def write(self, segment: Segment) -> None:
        """Prepare a segment for the next commit; its records stay invisible to readers until then."""

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Publish what was written and the state, atomically."""


@dataclass(frozen=True)
class SlicesRead:
    """What a sink has read of a group of slices."""

    slices: int  # how many of the first slices of the group are in the next commit
    rows: int  # the number of their rows
    error: Exception | None = None  # why the others are not; None if there are no others


@runtime_checkable
class SliceSink(Sink, Protocol):
    """A sink that can also read slices."""

    def read(self, group: SliceGroup) -> SlicesRead:
        """Read slices for the next commit, as `write` does with records.

        If a slice cannot be read, those up to the last state before it are kept: `SliceGroup.count_covered`.

        Raises:
            EltError: a slice cannot be read, and no state is before it.
        """


@dataclass(frozen=True)
class Acknowledged:
    """An event: a commit of one stream is durable."""

    stream: StreamId
    # the last state in the commit, which may be a shared one; None if the commit has no new state
    state: State | None
    commit: Committed
    completes: bool  # the commit completes the stream's sync
    # the stream's own states that the commit covers, in the order received
    states: tuple[PendingState, ...] = ()


@dataclass(frozen=True)
class SharedAcknowledged:
    """An event: shared states, and all records before them, are durable."""

    states: tuple[PendingState, ...]


@dataclass(frozen=True)
class Logged:
    """An event: a line for the log."""

    level: str  # as in the protocol
    message: str


@dataclass(frozen=True)
class Measured:
    """An event: the source reports a number that it has measured."""

    name: str
    value: float


@dataclass(frozen=True)
class Estimated:
    """An event: the source estimates how much it will send of a stream; of all streams if that is None."""

    stream: StreamId | None
    rows: int | None
    bytes: int | None

    @property
    def text(self) -> str:
        estimates = {"rows": self.rows, "bytes": self.bytes}
        amounts = [f"{amount:,} {unit}" for unit, amount in estimates.items() if amount is not None]
        scope = " in all streams" if self.stream is None else ""
        return f"the source estimates {', '.join(amounts)}{scope}"


@dataclass(frozen=True)
class Settled:
    """An event: the source waits, and what a state covers of all that it has sent is durable."""


SessionEvent = Acknowledged | SharedAcknowledged | Logged | Measured | Estimated | Settled


QUIET = "the source sent no message about it"
NOT_AMONG_STATUSES = "the source reported the status of other streams, but sent no message about it"
NOT_AMONG_RECORDS = (
    "the source sent records of streams that are not configured, but no message about it"
)


@dataclass
class StreamProgress:
    """The figures of one stream, updated while the session runs."""

    records_read: int = 0
    records_filtered: int = 0  # records among those read that a filter kept from being stored
    bytes_read: int = 0
    # `documents`, `document_bytes`: the documents of records that are stored, and their bytes
    documents: int = 0
    document_bytes: int = 0
    status: str | None = None
    counted: int | None = None  # records that the source reports it sent; None if it reports none
    estimate: int | None = None  # records that the source expects to send
    # Set when the read has ended:
    ignored: int = 0  # records that the source sent of streams that are not configured
    # QUIET, NOT_AMONG_STATUSES or NOT_AMONG_RECORDS if no record, state or status of the stream
    # was received
    unmentioned: str | None = None
