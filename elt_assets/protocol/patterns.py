"""Regular expressions of others, with a limit of their time.

A pattern such as `^(a+)+$` takes twice as long with each character of a text that it almost matches. A
manifest and a specification may come from anywhere, so their patterns are searched by a library that ends in
time.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

PATTERN_SECONDS = 1.0
"""Processor time in which a pattern must be found in a text or not."""
MAX_PATTERN = 10_000
"""Number of characters of the longest pattern."""
MAX_SIZE = 100_000
"""Number of characters that a pattern may have with its repetitions, as `(a{9}){9}` has 81."""
_UNLIMITED = 1 << 31


class Pattern:
    """A regular expression of Python.

    Args:
        text: the regular expression.

    Raises:
        re.error: it is not valid.
    """

    def __init__(self, text: str):
        self._pattern = _compile(text)

    def search(self, text: str) -> Any:
        """Return the first match, as `re.search`.

        Raises:
            TimeoutError: it takes more than `PATTERN_SECONDS`.
        """
        return self._pattern.search(text, timeout=PATTERN_SECONDS)

    def match(self, text: str) -> Any:
        """Return the match at the start, as `re.match`; errors are those of `search`."""
        return self._pattern.match(text, timeout=PATTERN_SECONDS)

    def replace(self, text: str, replacement: str) -> str:
        """Return a text with all matches replaced, as `re.sub`; errors are those of `search`."""
        new_text: str = self._pattern.sub(replacement, text, timeout=PATTERN_SECONDS)
        return new_text


def search(pattern: str, text: str) -> Any:
    """Return the first match of a pattern in a text, as `re.search`.

    Raises:
        re.error: the pattern is not valid.
        TimeoutError: the search takes more than `PATTERN_SECONDS`.
    """
    return Pattern(pattern).search(text)


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name. One that cannot be evaluated does, so that no secret is
    missed."""
    try:
        return bool(search(pattern, name))
    except (re.error, RecursionError, OverflowError, TimeoutError):
        return True


@lru_cache(maxsize=1024)  # a source may send other patterns with each schema
def _compile(text: str) -> Any:
    if len(text) > MAX_PATTERN:
        raise re.error(f"it has more than {MAX_PATTERN} characters")
    re.compile(text)  # what Python does not accept is not accepted here
    parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
    if _size(parser.parse(text)) > MAX_SIZE:
        raise re.error(f"its repetitions make it longer than {MAX_SIZE} characters")
    regex = import_module("regex")  # few sources use patterns, and the import is slow
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about syntax that may change its meaning
        try:
            return regex.compile(text)
        except regex.error as error:
            raise re.error(str(error)) from None


def _size(parsed: Any) -> int:
    """Return the number of the parts of a parsed pattern, where what is repeated a given number of times
    counts as often: so long it becomes when it is compiled."""
    size = 0
    for operation, argument in parsed:
        times = 1
        if str(operation).endswith("REPEAT"):
            low, high = int(argument[0]), int(argument[1])
            times = max(1, low if high >= _UNLIMITED else high)
        size += times * (1 + sum(map(_size, _parts(argument))))
    return size


def _parts(argument: Any) -> Iterator[Any]:
    """Yield the patterns in the argument of an operation."""
    if hasattr(argument, "getwidth"):
        yield argument
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from _parts(part)
