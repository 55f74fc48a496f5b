"""The session's seams: what it asks of a sink, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import State
from elt_assets.sync.segments import Segment


@dataclass(frozen=True)
class Span:
    """Records of a stream by their places in it, which count from 0: from `first`, up to but not `end`."""

    stream: StreamId
    first: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class PendingState:
    """A state as received, and the records that were staged between it and the state before: of its
    stream, or, where it is shared, of all streams, those that had any."""

    state: State
    spans: tuple[Span, ...]

    @property
    def records(self) -> int:
        """How many they are."""
        return sum(span.records for span in self.spans)


@dataclass(frozen=True)
class Checkpoint:
    """What a sink is asked to publish: all segments written since the last one.

    `states` are the stream's states in the order received, the last one being the one to keep;
    `final` says that the stream is complete; `silent`, that the source ended well without a word of
    it (no record, state or status): that is not the same as saying that it is empty.
    """

    states: tuple[State, ...]
    final: bool
    silent: bool = False


@dataclass(frozen=True)
class Committed:
    """What a sink measured of one commit. Counts are of this commit alone; `state` is the stream's
    from here on, as JSON; `places`: those of the rejected records in their stream, ascending, where the
    sink was asked to tell them; `undeclared`: by field that the stream's schema does not declare, how many
    records had it."""

    sequence: int
    generation: int
    version: int
    records: int
    rejected: int
    changed: int
    state: str | None = None
    places: Sequence[int] = ()
    undeclared: Mapping[str, int] = field(default_factory=dict)


class Sink(Protocol):
    """Where one stream's segments go. Called from one thread, in order."""

    def write(self, segment: Segment) -> None:
        """Prepare a segment for the next commit; nothing of it is visible yet."""

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Publish what was written, and the state, atomically."""


@dataclass(frozen=True)
class Acknowledged:
    """A commit of one stream is durable.

    `states`: those of the stream that it covers, in the order received; `state`: the last one that it
    carries, a shared one perhaps (None: it carries none that is new).
    """

    stream: StreamId
    state: State | None
    commit: Committed
    final: bool
    states: tuple[PendingState, ...] = ()


@dataclass(frozen=True)
class SharedAcknowledged:
    """All that came before these states, which streams share, is durable, and so are they."""

    states: tuple[PendingState, ...]


@dataclass(frozen=True)
class Logged:
    """A line for the log. `level` as in the protocol."""

    level: str
    message: str


@dataclass(frozen=True)
class Estimated:
    """How much the source expects to send: of a stream, or, where that is None, of all streams."""

    stream: StreamId | None
    rows: int | None
    bytes: int | None

    @property
    def text(self) -> str:
        given = {"rows": self.rows, "bytes": self.bytes}
        amounts = [f"{amount:,} {unit}" for unit, amount in given.items() if amount is not None]
        whole = " in all streams" if self.stream is None else ""
        return f"the source estimates {', '.join(amounts)}{whole}"


SessionEvent = Acknowledged | SharedAcknowledged | Logged | Estimated


QUIET = "the source sent no message about it"
NOT_AMONG_STATUSES = "the source reported the status of other streams, but sent no message about it"
NOT_AMONG_RECORDS = (
    "the source sent records of streams that are not configured, but no message about it"
)


@dataclass
class StreamProgress:
    """One stream's figures, growing while the session runs.

    `counted`: how many records the source says that it sent, None if it never said; `estimate`: how many
    it thinks there are. Of a read that has ended: `ignored`, how many records it sent of streams that are
    not configured; `unmentioned`, QUIET, NOT_AMONG_STATUSES or NOT_AMONG_RECORDS for a stream that no
    record, state or status was about.
    """

    records_read: int = 0
    bytes_read: int = 0
    status: str | None = None
    counted: int | None = None
    estimate: int | None = None
    ignored: int = 0
    unmentioned: str | None = None
