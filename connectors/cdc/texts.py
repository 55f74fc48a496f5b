"""What users see of a log: the time of a change, and what they can do if the log has not told everything.

A log has the columns that the table had when a row was written. The catalog has those that the table had when
it was discovered, and the lake stores these. So values can be on one side alone, and a row is never silently
incomplete: each side has a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UPDATED_AT = "_ab_cdc_updated_at"
"""The field with the time of a change, as other sources of Airbyte name it."""
RESET = "reset the stream (`elt reset`), so that it is read in full"
RESET_ALL = "reset the streams of the connection (`elt reset`), so that they are read in full"
OVER = (
    "the time for which the log is followed was over before its present end: what is stored is whole, and "
    "the next sync goes on from there. If this comes again and again, let `for` be longer"
)


def describe_absent(columns: Iterable[str]) -> str:
    """Return the warning about columns that rows of a log do not have."""
    return (
        f"the log has rows without the columns {', '.join(sorted(columns))}, which were added or renamed "
        f"after it was written: their values are null. To have them, {RESET}"
    )


def describe_unstored(counts: Mapping[str, int]) -> str:
    """Return the warning about values of columns that the catalog does not have.

    Args:
        counts: how many changes have a value of each column.
    """
    listed = ", ".join(f"{name} ({counts[name]})" for name in sorted(counts))
    return (
        f"changes of the log have values of columns that the catalog does not have, and they are not stored: "
        f"{listed}. To have them, run `elt discover`, and then {RESET}"
    )


def describe_taken(columns: Iterable[str]) -> str:
    """Return why a table is not read from the log: its columns have names of fields that the log adds."""
    return (
        f"it has columns with names of fields that the log adds ({', '.join(columns)}); rename them, or "
        "read the table in full"
    )
