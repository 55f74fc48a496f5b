"""The quotes of CSV files: a value that one opens ends with one, and nothing of it follows.

A quote that nobody meant, or a file whose end is missing, makes one value of all text up to the next quote,
rows and all, and pyarrow takes it so: it also takes text after a closing quote as a part of the value, and a
file that ends inside of a value as a whole one. So the bytes are checked while pyarrow reads them:

- A quote opens a value only at its beginning: after the delimiter, a line break, or at the start.
- Inside, two quotes are one of the text. A single one ends the value, so the delimiter, a line break or the
  end of the file follows.

Mostly the quotes of a block are looked at together: if each second one, and the byte beside it, is as an
opening or a closing quote must be, all are. Otherwise, as with a quote in the middle of a value, one by one.

Test: `tests/connectors/files/test_quotes.py`
"""

from __future__ import annotations

import codecs
import re

import numpy as np

_LINE_END = re.compile(rb"\r\n?|\n")
_NO_END = "a quote that opens a value has no end"
_MORE = "text follows the quote that ends a value"


class BadQuote(Exception):
    """A quote that cannot be meant. `line`: the number of its line in the file."""

    def __init__(self, line: int, reason: str):
        super().__init__(f"line {line}: {reason}")


class Quotes:
    """Checks the quotes of one file, in blocks of any size.

    Args:
        delimiter, quote, escape: one character each; without `escape` None.
        skipped_lines: the lines at the beginning that are no rows.
    """

    def __init__(self, delimiter: str, quote: str, escape: str | None, skipped_lines: int):
        self._quote = quote.encode()
        self._outer = delimiter.encode() + b"\r\n"
        self._is_outer = np.zeros(256, bool)
        self._is_outer[list(self._outer)] = True
        self._is_beside = self._is_outer.copy()
        self._is_beside[self._quote[0]] = True
        self._escape = None if escape is None or escape == quote else escape.encode()
        escaped = b"" if self._escape is None else re.escape(self._escape) + b".|"
        self._tokens = re.compile(escaped + re.escape(self._quote), re.DOTALL)
        self._skipped = skipped_lines
        self._is_first = True
        self._lines = 1
        self._rest = b""
        self._before = b"\n"
        self._opened: int | None = None
        """The line of the quote that has opened a value; None outside of one."""

    def check(self, block: bytes) -> None:
        """Check the next block; an empty one is the end of the file.

        Raises:
            BadQuote: see the module.
        """
        if self._is_first:
            self._is_first, block = False, block.removeprefix(codecs.BOM_UTF8)
        text = self._rest + self._skip(block)
        cut = len(text)
        if block:  # what a quote means is seen from the byte after it
            cut -= len(text) - len(text.rstrip(self._quote + (self._escape or b"")))
        self._rest, text = text[cut:], text[:cut]
        if text and (self._opened is not None or self._quote in text or not block):
            self._check(text, is_end=not block)
        if not block and self._opened is not None:
            raise BadQuote(self._opened, _NO_END)
        self._lines += text.count(b"\n")
        self._before = text[-1:] or self._before

    def _skip(self, block: bytes) -> bytes:
        start = 0
        while self._skipped and start < len(block):
            end = _LINE_END.search(block, start)
            if end is None:
                return b""
            start = end.end()
            self._skipped -= 1
            self._lines += 1
        return block[start:]

    def _check(self, text: bytes, *, is_end: bool) -> None:
        has_escape = self._escape is not None and self._escape in text
        if has_escape or not self._pair(text, is_end=is_end):
            self._walk(text)

    def _pair(self, text: bytes, *, is_end: bool) -> bool:
        """Return whether the quotes are pairs of an opening and a closing one, and note how they end.

        A quote within a text, such as `5" pipe`, is no part of a pair, and must not be between those of one.
        """
        around = np.frombuffer(self._before + text + (b"\n" if is_end else b""), np.uint8)
        places = np.flatnonzero(around[1 : len(text) + 1] == self._quote[0]) + 1
        is_inside = self._opened is not None
        is_within = ~(self._is_beside[around[places - 1]] | self._is_beside[around[places + 1]])
        within, places = places[is_within], places[~is_within]
        if np.any((np.searchsorted(places, within) + is_inside) % 2):
            return False
        opening, closing = places[int(is_inside) :: 2], places[int(not is_inside) :: 2]
        is_doubled = np.zeros(len(around) + 1, bool)
        is_doubled[closing + 1] = True
        before, after = around[opening - 1], around[closing + 1]
        if not np.all(self._is_outer[before] | is_doubled[opening]):
            return False
        is_opening = np.zeros(len(around) + 1, bool)
        is_opening[opening] = True
        if not np.all(self._is_outer[after] | is_opening[closing + 1]):
            return False
        if (len(places) + is_inside) % 2 == 0:
            self._opened = None
        elif len(opening):
            self._opened = self._line(text, int(opening[-1]) - 1)
        return True

    def _walk(self, text: bytes) -> None:
        """Look at each quote."""
        position = 0
        while (token := self._tokens.search(text, position)) is not None:
            start, position = token.span()
            if token[0] != self._quote:
                continue
            if self._opened is None:
                before = text[start - 1 : start] if start else self._before
                if before in self._outer:
                    self._opened = self._line(text, start)
            elif text[position : position + 1] == self._quote:
                position += 1
            elif text[position : position + 1] in self._outer:  # at the end it is empty
                self._opened = None
            else:
                raise BadQuote(self._line(text, start), _MORE)

    def _line(self, text: bytes, position: int) -> int:
        return self._lines + text.count(b"\n", 0, position)
