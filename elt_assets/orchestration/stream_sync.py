"""The output of a stream's op for the IO manager: the syncs of one materialisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.orchestration.events.report import CompleteStream
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.read_plan import ReadPlan


@dataclass(frozen=True)
class CommittedRead:
    """A committed read: its partition, and the metadata of its event."""

    partition: str | None
    metadata: Mapping[str, Any]


ReportRead = Callable[[CommittedRead, StreamTables], None]
"""Reports a read to Dagster, given the stream's tables at the snapshot after its last commit."""


@dataclass(kw_only=True)
class SyncResult:
    """The result of one materialisation of a stream.

    `report`: is called with each read when it is complete. `reads`: the committed reads. `version_before`:
    the version of the table before the first read. `tables`: the tables after the last read.
    """

    asset: StreamAsset
    report: ReportRead
    reads: list[CommittedRead] = field(default_factory=list)
    version_before: int = -1
    tables: StreamTables | None = None

    def skip(self, read: CommittedRead) -> None:
        """Add a read of an earlier attempt. Its files are unknown, so the checks take all of the table."""
        self.version_before = -1
        self.reads.append(read)

    def add(self, complete: CompleteStream) -> None:
        """Add and report the result of a read. The plan of the read is not stored."""
        read = complete.read
        if not self.reads:
            self.version_before = read.version_before
        self.tables = read.tables
        self.reads.append(CommittedRead(read.partition, complete.metadata))
        self.report(self.reads[-1], read.tables)


@dataclass(kw_only=True)
class StreamSync(SyncResult):
    """One materialisation of a stream: a sync of the stream, or of some partitions one after the other.

    `partitions`: the partitions; a single None for a stream without partitions. `completed_read`: returns the
    read of a partition that an earlier attempt has completed, or None. `plan`: plans the read of a partition;
    it is called just before the read.
    """

    partitions: Sequence[str | None]
    completed_read: Callable[[str], CommittedRead | None]
    plan: Callable[[str | None], ReadPlan]
