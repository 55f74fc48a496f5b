"""The read of an API that returns the newest records first, which ends at the start of the read.

The bookmark moves only when the read is complete, never in its middle: the greatest value comes with the
first record, and a read that is interrupted after it has not sent the older ones. So such a stream is one
that is not sorted, and its states in the middle of a partition cover nothing of it. Only the end of an
interval does.

Test: `tests/connectors/test_ranges.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from connectors.sdk.intervals import RecordsBetween
from connectors.sdk.items import Context, Record
from connectors.sdk.state.bookmark import InvalidStreamSortException
from connectors.sdk.state.replication_key import ReplicationKey


def stop_at_start(
    read: RecordsBetween, key: ReplicationKey, *, ends_by_page: bool
) -> RecordsBetween:
    """Return the function that reads a partition down to the start, this value included.

    Args:
        read: returns the records of a partition.
        key: the replication key.
        ends_by_page: whether `read` ends itself after the page with the first record before the start. The
            rest of that page then shows whether the order is as declared.
    """

    def records(context: Context | None, start: Any, end: Any) -> Iterator[Record]:
        past: Any = None
        for record in read(context, start, end):
            value = record.get(key.field)
            if key.is_before(value, start):
                if not ends_by_page:
                    return
                past = value
            elif past is not None and key.compare(value, start) in (0, 1):
                raise InvalidStreamSortException(
                    f"the records are not in descending order of {key.field!r}: {value!r} comes after "
                    f"{past!r}, which is before the start, {start!r}",
                    guidance="request the records in descending order, or leave out `is_descending`",
                )
            else:
                yield record

    return records


def is_past(records: Sequence[Record], key: ReplicationKey, start: Any) -> bool:
    """Return whether all records after those of a page are before the start: the last one that can be
    compared with it is."""
    orders = (key.compare(record.get(key.field), start) for record in reversed(records))
    return next((order for order in orders if order is not None), 0) == -1
