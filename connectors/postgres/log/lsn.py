"""Positions in the server's log (LSN), as numbers and as the server writes them."""

from __future__ import annotations


def parse_lsn(text: str) -> int:
    """Return an LSN, such as 16/B374D848, as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def format_lsn(lsn: int) -> str:
    """Return an LSN as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
