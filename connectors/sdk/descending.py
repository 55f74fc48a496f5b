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


def stop_at_start(read: RecordsBetween, key: ReplicationKey) -> RecordsBetween:
    """Return the function that reads a partition down to the start, this value included."""

    def records(context: Context | None, start: Any, end: Any) -> Iterator[Record]:
        for record in read(context, start, end):
            if key.is_before(record.get(key.field), start):
                return
            yield record

    return records


def is_past(records: Sequence[Record], key: ReplicationKey, start: Any) -> bool:
    """Return whether a page has records before the start, so that no later page has others.

    Raises:
        InvalidStreamSortException: a newer record comes after one of these: the read would end too early.
    """
    past: Any = None
    for value in (record.get(key.field) for record in records):
        if key.is_before(value, start):
            past = value
        elif past is not None and key.compare(value, start) in (0, 1):
            raise InvalidStreamSortException(
                f"the records are not in descending order of {key.field!r}: {value!r} comes after "
                f"{past!r}, which is before the start, {start!r}",
                guidance="request the records in descending order, or leave out `order`",
            )
    return past is not None
