"""The figures of one sync of one stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from elt_assets.lake.parse.undeclared_counts import limit_counts
from elt_assets.sync.events import Committed


@dataclass
class SyncFigures:
    """The figures of one sync of one stream, summed over its commits.

    Counts are of records. `filtered`: read, but not stored because of the conditions of `filter`. `bytes`: as
    read. `documents`, `document_bytes`: files that records have beside their data. `undeclared`: number of
    records by field that the catalog does not declare.
    """

    read: int = 0
    filtered: int = 0
    committed: int = 0
    rejected: int = 0
    changed: int = 0
    bytes: int = 0
    documents: int = 0
    document_bytes: int = 0
    seconds: float = 0.0
    undeclared: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Records read per second."""
        return self.read / self.seconds if self.seconds else 0.0

    def add(self, commit: Committed) -> None:
        self.committed += commit.records
        self.rejected += commit.rejected
        self.changed += commit.changed
        self.undeclared = limit_counts(Counter(self.undeclared) + Counter(commit.undeclared))

    def __add__(self, other: SyncFigures) -> SyncFigures:
        """Return the figures of two syncs of the stream together."""
        return SyncFigures(
            read=self.read + other.read,
            filtered=self.filtered + other.filtered,
            committed=self.committed + other.committed,
            rejected=self.rejected + other.rejected,
            changed=self.changed + other.changed,
            bytes=self.bytes + other.bytes,
            documents=self.documents + other.documents,
            document_bytes=self.document_bytes + other.document_bytes,
            seconds=self.seconds + other.seconds,
            undeclared=limit_counts(Counter(self.undeclared) + Counter(other.undeclared)),
        )
