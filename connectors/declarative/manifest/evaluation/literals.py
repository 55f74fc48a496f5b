"""Turns the text that a template gives into a native value, by the rules of the Airbyte CDK.

The CDK passes every rendered text through `ast.literal_eval` and keeps the text where that fails. Almost all
texts are identifiers, dates or numbers, so the outcome is decided here without a parser where that is safe.
"""

from __future__ import annotations

import ast
import math
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Types = tuple[type, ...]

_BY_NAME: Mapping[str, Types] = {
    "string": (str,),
    "number": (float, int),
    "integer": (int,),
    "boolean": (bool,),
}

_STRING_PREFIX = re.compile(r"[rbufRBUF]{1,2}['\"]")
_CONSTANTS = {"True": True, "False": False, "None": None}
_DATE = re.compile(r"\d+-\d+-")
"""A date: two subtractions, which no literal has."""
_MAY_WARN = re.compile(r"\\|\d[A-Za-z_]")
"""A backslash or a number with letters, such as "'\\d'" and "1or 2": the parser warns of some of them."""
_MAX_INT_DIGITS = 4000
_MAX_DEPTH = 40
"""Nesting up to which a list or mapping is copied; the parser refuses what is nested about twice as deep."""


def types_of(value_type: str | None) -> Types:
    """Return the types that the value of a template may have, by the `value_type` of a manifest; a value of
    another type stays a text. Empty for all."""
    return _BY_NAME.get(value_type or "", ())


def literal(text: str, types: Types = ()) -> Any:
    """Return the Python literal that a text is; the text itself if it is none.

    Args:
        text: the rendered text, not empty.
        types: the types that the value may have; empty for all but complex numbers.
    """
    parsed = _parse(text)
    if parsed is text:
        return text
    if types:
        return parsed if isinstance(parsed, types) else text
    return text if isinstance(parsed, complex) else parsed


def native(value: Any, types: Types = ()) -> Any:
    """Return what `literal(str(value))` returns, without the detour through text where that is possible.

    Args:
        value: a value whose text is not empty.
        types: as in `literal`.
    """
    kind = type(value)
    if kind is str:
        return literal(value, types)
    if kind is bool or kind is int or value is None or (kind is float and math.isfinite(value)):
        return value if not types or isinstance(value, types) else str(value)
    if (kind is dict or kind is list) and not types:
        try:
            return _copy(value, 0)
        except _NotLiteral:
            pass
    return literal(str(value), types)


def _parse(text: str) -> Any:
    stripped = text.lstrip(" \t")
    first = stripped[:1]
    if first.isalpha() or first == "_":
        if stripped in _CONSTANTS:
            return _CONSTANTS[stripped]
        if not (
            _STRING_PREFIX.match(stripped) or stripped.startswith(("True", "False", "None", "set"))
        ):
            return text
    elif first.isdigit():
        if len(text) < _MAX_INT_DIGITS and text.isascii() and text.isdigit() and first != "0":
            return int(text)
        if _DATE.match(stripped):
            return text
    return _evaluate(text)


def _evaluate(text: str) -> Any:
    try:
        if not _MAY_WARN.search(text):
            return ast.literal_eval(text)
        with no_warnings():
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


_warnings_lock = threading.Lock()


@contextmanager
def no_warnings() -> Iterator[None]:
    """Ignore warnings while the context is open.

    Python keeps the filters of warnings for all threads together, so one thread at a time may change them.
    """
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _NotLiteral(Exception):
    """A part of the value is not a literal as a text, or nests too deep for the parser."""


def _copy(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float and math.isfinite(value):
        return value
    if depth < _MAX_DEPTH:
        if kind is dict:
            return {_copy(key, depth + 1): _copy(part, depth + 1) for key, part in value.items()}
        if kind is list:
            return [_copy(part, depth + 1) for part in value]
    raise _NotLiteral
