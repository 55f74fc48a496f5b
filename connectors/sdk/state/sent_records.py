"""The records at a bookmark that were sent. A later read begins at the value of the bookmark, and does not
send an identical record again.

The bookmark has their hashes, so many at most; beyond that it has none, and the records are sent again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from connectors.sdk.items import Record

_HASH_BYTES = 8
_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


class SentRecords:
    """The hashes of records that were sent. A record that has changed has another hash.

    Args:
        text: the hashes in a state; None if there are none.
        limit: maximum number of hashes. Beyond it, all are forgotten: records may be sent again, and none is
            lost.
    """

    def __init__(self, text: Any, limit: int):
        self._limit = limit
        self._is_open = limit > 0
        self.hashes: set[bytes] = _decode(text) if text and limit else set()

    def __contains__(self, record: Record) -> bool:
        return bool(self.hashes) and _hash(record) in self.hashes

    def add(self, record: Record) -> None:
        """Add a record, unless there are too many."""
        if self._is_open:
            self.hashes.add(_hash(record))
            if len(self.hashes) > self._limit:
                self.hashes, self._is_open = set(), False

    def add_records(self, records: Sequence[Record]) -> SentRecords:
        """Return these hashes and those of further records."""
        sent = SentRecords(None, self._limit)
        hashes = {*self.hashes, *map(_hash, records)} if len(records) <= self._limit else set()
        sent.hashes = hashes if len(hashes) <= self._limit else set()
        return sent

    def entry(self, name: str) -> dict[str, str]:
        """Return the property of a state; nothing if there are no hashes."""
        joined = b"".join(sorted(self.hashes))
        return {name: base64.b64encode(joined).decode()} if joined else {}


def _decode(text: Any) -> set[bytes]:
    try:
        joined = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):  # a state that was edited: records are sent again
        return set()
    return {joined[step : step + _HASH_BYTES] for step in range(0, len(joined), _HASH_BYTES)}


def _hash(record: Record) -> bytes:
    return hashlib.blake2b(_encode_sorted(record), digest_size=_HASH_BYTES).digest()
