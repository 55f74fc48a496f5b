"""The limit of values in a text of JSON that is decoded: a line of 256 MiB may have 80 million of them.

A RECORD has no such limit: its data is not decoded in this process.
"""

from __future__ import annotations

import msgspec

MAX_VALUES = 4_000_000
"""Maximum number of values. Decoded, each takes up to 300 bytes of memory."""
_SEPARATORS = (b",", b"[", b"{")


def check_values(text: bytes, limit: int = MAX_VALUES) -> None:
    """Refuse a text of JSON that may have more values than the limit; separators in strings count as well.

    Raises:
        msgspec.ValidationError: it may have more.
    """
    if len(text) > limit and sum(map(text.count, _SEPARATORS)) > limit:
        raise msgspec.ValidationError(f"it has more than {limit:,} values")
