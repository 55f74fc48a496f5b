"""The lines of a block that pyarrow will refuse, recognised by a value that it has refused before.

A source that breaks its schema breaks it in many records, and in the same field. Every line that is found
here is parsed exactly, whether pyarrow would refuse it or not, so that a wrong guess costs time only.
"""

from __future__ import annotations

import re

import numpy as np

_ERROR = re.compile(r"(?:/([^/]*)\) changed from \w+ to \w+)? in row (\d+)$")
"""The end of an error message of pyarrow: perhaps a field, and a row."""
_KINDS = {ord(start): rb"[-0-9]" for start in "-0123456789"}
_KINDS |= {ord(start): re.escape(start.encode()) for start in '"[{'}
_KINDS |= {ord(start): rb"[tf]" for start in "tf"}
"""Patterns for the first byte of a JSON value, by the first byte of another value of the same kind."""
_MAX_SHARE = 0.05
"""The share of a block's lines from which a value is too frequent for the reason of a refusal: there is
probably another field of the same name."""
_MAX_PATTERNS = 4


class Refusals:
    """Recognises lines by the fields, and the kinds of their values, that pyarrow has refused before."""

    def __init__(self) -> None:
        self._patterns: list[re.Pattern[bytes]] = []

    def rows(self, block: bytes) -> np.ndarray:
        """Return the sorted numbers of the lines with a value like a refused one."""
        found = [self._rows_of(pattern, block) for pattern in self._patterns]
        return np.unique(np.concatenate(found)) if found else np.empty(0, int)

    def rows_of_error(self, block: bytes, error: str) -> np.ndarray:
        """Return the sorted numbers of the line that an error names, and of the lines with such a value.

        Returns:
            none if the error names no line, or if most lines with such a value are probably clean.
        """
        named = _ERROR.search(error)
        ends = _ends(block)
        if named is None or int(named[2]) >= len(ends):
            return np.empty(0, int)
        row = int(named[2])
        line = block[ends[row - 1] if row else 0 : ends[row]]
        pattern = _pattern(line, named[1])
        if pattern is None:
            return np.array([row])
        self._patterns = [*self._patterns, pattern][-_MAX_PATTERNS:]
        rows = self._rows_of(pattern, block)
        return np.union1d(rows, [row]) if len(rows) else rows

    def _rows_of(self, pattern: re.Pattern[bytes], block: bytes) -> np.ndarray:
        """Return the numbers of the lines that match. A pattern that matches too many is forgotten."""
        places = [match.start() for match in pattern.finditer(block)]
        if not places:
            return np.empty(0, int)
        ends = _ends(block)
        rows = np.unique(np.searchsorted(ends, places, side="right"))
        if len(rows) > max(1, _MAX_SHARE * len(ends)):
            self._patterns = [each for each in self._patterns if each is not pattern]
            return np.empty(0, int)
        return rows


def without(block: bytes, rows: np.ndarray) -> bytes:
    """Return a block without the lines of some sorted numbers."""
    ends = _ends(block)
    kept, place = [], 0
    for row in rows:
        kept.append(block[place : ends[row - 1] if row else 0])
        place = ends[row]
    return b"".join([*kept, block[place:]])


def _ends(block: bytes) -> np.ndarray:
    """Return the positions behind the newlines of a block."""
    return np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1


def _pattern(line: bytes, name: str | None) -> re.Pattern[bytes] | None:
    """Return a pattern for the values of a field that are of the same kind as a line's value; None if the
    line does not show it."""
    if not name:
        return None
    field = rb'"%b"\s*:\s*' % re.escape(name.encode())
    value = re.search(field + rb"(.)", line)
    kind = _KINDS.get(value[1][0]) if value else None
    return None if kind is None else re.compile(field + kind)
