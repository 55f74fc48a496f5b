"""The report of the sync of one stream, and the interface of those that get it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from elt_assets.protocol.catalog import StreamId

Outcome = Literal["COMPLETE", "FAIL", "ABORT"]
"""The end of a sync, in the words of OpenLineage. ABORT: it was cancelled."""


@dataclass
class StreamReport:
    """The sync of one stream: its subject, and its figures so far."""

    connection: str  # the name of the connection, or of the program that syncs
    # the id of the run of the orchestrator that the sync is part of; None if there is none
    run_id: str | None
    stream: StreamId
    location: str  # the URI of the table
    fields: Sequence[tuple[str, str]]  # the stream's fields, each with its type as text
    read: int = 0  # the number of records that were read; the other counts are of records, too
    committed: int = 0
    rejected: int = 0
    changed: int = 0
    bytes: int = 0  # the number of bytes that were read
    outcome: Outcome | None = None
    error: str | None = None  # the message of the error that ended the sync
    started: float = field(default_factory=time.time)

    @property
    def seconds(self) -> float:
        """Seconds since the sync of the stream started."""
        return time.time() - self.started


@dataclass(frozen=True)
class SourceMeasure:
    """A number that the source of a connection reports."""

    connection: str
    name: str
    value: float


class Receiver(Protocol):
    """A receiver of reports. Its methods are called in one background thread, in order."""

    def start(self, report: StreamReport) -> None:
        """Report that the sync of a stream has started."""

    def measure(self, measure: SourceMeasure) -> None:
        """Report a number of the source."""

    def finish(self, report: StreamReport) -> None:
        """Report the outcome and the figures of a sync."""
