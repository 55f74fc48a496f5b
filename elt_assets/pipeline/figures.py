"""The figures of one sync of one stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from elt_assets.lake.worker.blocks import OTHER_CHANGES
from elt_assets.lake.worker.job import OTHERS
from elt_assets.lake.write.parsing import OTHER_REASONS, limit_counts
from elt_assets.sync.events import Committed


@dataclass
class SyncFigures:
    """The figures of one sync of one stream, summed over its commits.

    Counts are of records.
    """

    read: int = 0
    filtered: int = 0  # read, but not stored because of the conditions of `filter`
    committed: int = 0
    rejected: int = 0
    changed: int = 0
    bytes: int = 0  # as read
    # `documents`, `document_bytes`: files that records have beside their data
    documents: int = 0
    document_bytes: int = 0
    seconds: float = 0.0
    # number of records by field that the catalog does not declare
    undeclared: Mapping[str, int] = field(default_factory=dict)
    # number of records by what was changed in them (see `change_counts`)
    changed_fields: Mapping[str, int] = field(default_factory=dict)
    # number of rejected records by reason
    rejected_reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Records read per second."""
        return self.read / self.seconds if self.seconds else 0.0

    def add(self, commit: Committed) -> None:
        self.committed += commit.records
        self.rejected += commit.rejected
        self.changed += commit.changed
        for name, counts in _add_counts(self, commit).items():
            setattr(self, name, counts)

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
            **_add_counts(self, other),
        )


_OTHERS = {
    "undeclared": OTHERS,
    "changed_fields": OTHER_CHANGES.name,
    "rejected_reasons": OTHER_REASONS,
}
"""The counts by name, and the name of the count of all that are beyond their limit."""


def _add_counts(
    figures: SyncFigures, other: SyncFigures | Committed
) -> dict[str, Mapping[str, int]]:
    """Return the sums of two sets of counts."""
    return {
        name: limit_counts(Counter(getattr(figures, name)) + Counter(getattr(other, name)), others)
        for name, others in _OTHERS.items()
    }
