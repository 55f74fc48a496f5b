"""Decimals as MySQL and MariaDB store them: nine digits in four bytes, on each side of the point."""

from __future__ import annotations

from collections.abc import Callable

_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""The bytes of a group of so many digits."""


def count_bytes(precision: int, scale: int) -> int:
    """Return how many bytes a decimal has."""
    return sum(_GROUP_BYTES[digits] for digits in _list_groups(precision, scale))


def make_decoder(precision: int, scale: int) -> Callable[[bytes], bytes]:
    """Return the function that returns the text of a stored decimal, as the server writes it."""
    bits = 8 * count_bytes(precision, scale)
    sign, all_bits, unit = 1 << bits - 1, (1 << bits) - 1, 10**scale
    parts = []
    shift = bits
    for digits in _list_groups(precision, scale):
        size = 8 * _GROUP_BYTES[digits]
        shift -= size
        parts.append((shift, (1 << size) - 1, 10**digits))

    def decode(data: bytes) -> bytes:
        stored = int.from_bytes(data, "big") ^ sign
        is_negative = bool(stored & sign)
        if is_negative:
            stored ^= all_bits
        value = 0
        for shift, mask, factor in parts:
            value = value * factor + (stored >> shift & mask)
        mark = b"-" if is_negative else b""
        if not scale:
            return b"%b%d" % (mark, value)
        return b"%b%d.%0*d" % (mark, value // unit, scale, value % unit)

    return decode


def _list_groups(precision: int, scale: int) -> list[int]:
    """Return how many digits each group has: the first and the last may have fewer than nine."""
    whole = precision - scale
    before = [whole % 9] * bool(whole % 9) + [9] * (whole // 9)
    return before + [9] * (scale // 9) + [scale % 9] * bool(scale % 9)
