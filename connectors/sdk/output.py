"""The buffered output of a source: it is written when it is large, and after a time."""

from __future__ import annotations

import math
import time
from decimal import Decimal
from typing import Any, BinaryIO

from connectors.sdk.encoding import encode, encode_lines
from connectors.sdk.items import Record
from elt_assets.protocol.message_output import Output

FLUSH_BYTES = 1 << 16
FLUSH_MS = 1_000


def encode_record(record: Record) -> bytes:
    """Return a record as JSON. NaN and the infinities are null, as floats and as decimal numbers."""
    encoded = encode(record)
    return encode(_finite(record)) if _may_have_others(encoded) else encoded


def encode_records(records: list[Record]) -> bytes:
    """Return records as JSON, each with a newline after it; the numbers are those of `encode_record`."""
    encoded = encode_lines(records)
    if _may_have_others(encoded):
        return encode_lines([_finite(record) for record in records])
    return encoded


def _may_have_others(encoded: bytes) -> bool:
    """Return whether numbers that JSON does not have may be in a text; they may also be texts in it."""
    return b"NaN" in encoded or b"Infinity" in encoded


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    return value


class TimedOutput(Output):
    """An output that also writes its messages after a time, so that a slow source does not look like one that
    has stopped."""

    def __init__(self, stream: BinaryIO):
        super().__init__(stream)
        self._flush_due = 0

    def flush(self) -> None:
        super().flush()
        self._flush_due = time.time_ns() // 1_000_000 + FLUSH_MS

    def flush_if_due(self, current: int) -> None:
        """Write the messages if they are many, or old; `current` in milliseconds since 1970."""
        if len(self._buffer) >= FLUSH_BYTES or current >= self._flush_due:
            self.flush()
