"""Counts of records by what was changed in them: the field, the kind of the change, and its reason.

Only records with changes cost time here: the others have no entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from elt_assets.lake.spark.parsing.row_metadata import Entry
from elt_assets.lake.spark.parsing.undeclared_fields import MAX_NAMES, OTHERS

MAX_TEXT = 300
"""Maximum characters of each part of a count's name: a source reports changes in its own words."""
_UNKNOWN = "UNKNOWN"


class FieldChange(NamedTuple):
    """What was changed."""

    field: str  # its dotted name; "" for the whole record
    change: str
    reason: str

    @property
    def name(self) -> str:
        """The name of its count: one text, since results of tasks are JSON. See `parse_name`."""
        return f"{self.change} {self.reason} {self.field}"


OTHER_CHANGES = FieldChange(OTHERS, _UNKNOWN, _UNKNOWN)
"""All changes beyond the first `MAX_NAMES`."""


def parse_name(name: str) -> FieldChange:
    """Return the change that a count is of."""
    change, reason, field = name.split(" ", 2)
    return FieldChange(field, change, reason)


def count_changes(counts: Counter[str], entries: Mapping[Entry, int], ignored: str) -> None:
    """Count changes; those beyond the first `MAX_NAMES` together.

    Args:
        entries: how many records have each change.
        ignored: a reason that is not counted.
    """
    for (field, change, reason), records in entries.items():
        if reason == ignored:
            continue
        name = FieldChange(_cut(field), _word(change), _word(reason)).name
        is_known = name in counts or len(counts) < MAX_NAMES
        counts[name if is_known else OTHER_CHANGES.name] += records


def count_entries(rows: Iterable[Iterable[Entry]]) -> Counter[Entry]:
    """Return how many rows have each change: one that a source reports twice counts once."""
    return Counter(entry for row in rows if row for entry in dict.fromkeys(row))


def _word(text: str | None) -> str:
    """Return a name of the protocol, or of a source, as one word."""
    return "_".join(_cut(text).split()) or _UNKNOWN


def _cut(text: str | None) -> str:
    return (text or "")[:MAX_TEXT]
