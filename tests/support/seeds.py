"""The seeds, or other numbers, of a long test, by an environment variable, so that it can be gone on with."""

from __future__ import annotations

import os


def read_range(variable: str, count: int, *, first: int = 0) -> range:
    """Return the numbers that an environment variable selects: `5-9`, `5-` or `5`; by default all.

    Args:
        count: how many there are; `first` is the first one.
    """
    start, _, end = os.environ.get(variable, f"{first}-").partition("-")
    is_open = os.environ.get(variable, "-").endswith("-")
    numbers = range(int(start), count if is_open else int(end or start) + 1)
    assert numbers, f"{variable} selects none of {count}"
    return numbers
