"""What an asset hands to the IO manager: the syncs of a stream that one materialisation is to make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.orchestration.events.report import Complete
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.read_plan import ReadPlan


@dataclass(frozen=True)
class Done:
    """A read that was committed: its partition, what its event says, and how many records it rejected."""

    partition: str | None
    metadata: Mapping[str, Any]
    rejected: int


@dataclass(kw_only=True)
class Landed:
    """What one materialisation did to a stream.

    `done`: the reads that were committed; `files_before`: paths of the table's files before the first of
    them; `tables`: as they stand after the last.
    """

    asset: StreamAsset
    done: list[Done] = field(default_factory=list)
    files_before: frozenset[str] = frozenset()
    tables: StreamTables | None = None

    def keep(self, complete: Complete) -> None:
        """Remember what a read did, and let go of its plan."""
        read = complete.read
        if not self.done:
            self.files_before = read.files_before
        self.tables = read.tables
        self.done.append(Done(read.partition, complete.metadata, complete.rejected))


@dataclass(kw_only=True)
class StreamSync(Landed):
    """What one materialisation reads: a stream, or some partitions of it, one after the other.

    `plan`: plans the read of one of them when its turn comes; `tell`: puts metadata on the asset's
    event.
    """

    partitions: Sequence[str | None]
    plan: Callable[[str | None], ReadPlan]
    tell: Callable[[str | None, Mapping[str, Any]], None]

    def keep(self, complete: Complete) -> None:
        super().keep(complete)
        self.tell(complete.read.partition, complete.metadata)
