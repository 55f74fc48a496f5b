"""Undeclared fields: fields of records that the stream's schema does not declare.

They are counted by name, and kept if the stream has `on_undeclared: keep`.

Spec: Airbyte Protocol: a record may hold fields that its stream's schema does not name; a destination may
ignore them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from elt_assets.lake.spark.parsing.undeclared_fields import MAX_NAMES, OTHERS

OTHER_REASONS = "(other reasons)"


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return the fields and how many records have each, the most frequent first, as text for the log."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{name} ({records:,} records)" for name, records in most[:10]]
    return ", ".join(parts) + (f" and {len(most) - 10} more" if len(most) > 10 else "")


def limit_counts(counts: Mapping[str, int], others: str = OTHERS) -> dict[str, int]:
    """Return the counts of the `MAX_NAMES` most frequent names, and one count for all others. If a source
    uses data as names, the counts must not fill the memory.

    Args:
        others: the name of the count of all others.
    """
    if len(counts) <= MAX_NAMES:
        return dict(counts)
    most = Counter(counts).most_common()
    most = [item for item in most if item[0] != others]
    rest = sum(records for _, records in most[MAX_NAMES:]) + counts.get(others, 0)
    return {**dict(most[:MAX_NAMES]), others: rest}
