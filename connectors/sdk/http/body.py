"""JSON bodies of responses: decoding without loss, and the parts of a body by their path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import httpx
import msgspec

from connectors.sdk.http.charset import charset_of
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.items import Record
from elt_assets.errors import EltError, SystemFailure, TransientError
from elt_assets.protocol.wire import check_values

Path = str | Sequence[str]
"""The place of a value in a body: the names of fields, as a sequence or as a text with dots between them. The
number of an element, -1 for the last one, stands for an element of a list, and "*" for all of its elements.
The path of the body itself is empty."""

Decode = Callable[[bytes], Any]
"""Function of msgspec or json that decodes a JSON text."""

ALL = "*"
MAX_VALUES = 20_000_000
"""Maximum number of values of a body: decoded, they take some gigabytes."""
_NUMBER = re.compile(r"-?\d+", re.ASCII)
_DECODED = "connectors.decoded"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape in a JSON text: both halves of a surrogate pair, one half (the group), or another one."""
_UTF8 = frozenset({None, "utf-8", "utf8", "us-ascii", "ascii"})

# A number with a fraction becomes a Decimal, which the encoder writes with the same digits.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


def decoded(response: httpx.Response) -> Any:
    """Return the JSON value of a body. It is decoded once, however often it is asked for.

    Numbers with a fraction or an exponent are `Decimal`, so that they lose no digits.

    Raises:
        SystemFailure: the body is not JSON.
        TransientError: the body ends within a JSON value.
    """
    if _DECODED not in response.extensions:
        try:
            response.extensions[_DECODED] = json_value(convert_to_utf8(response))
        except ValueError as error:
            raise not_json(response, error) from None
    return response.extensions[_DECODED]


def values_at(body: Any, path: Path) -> Iterator[Any]:
    """Yield the values at a path: at most one, unless the path contains "*". A missing value is not
    yielded."""
    yield from _values(body, steps(path))


def value_at(body: Any, path: Path) -> Any:
    """Return the first value at a path; None if there is none."""
    return next(values_at(body, path), None)


def steps(path: Path) -> tuple[str, ...]:
    """Return the parts of a path."""
    if isinstance(path, str):
        return tuple(path.split(".")) if path else ()
    return tuple(path)


def records_at(response: httpx.Response, path: Path, *, may_lack: bool = False) -> Iterator[Record]:
    """Yield the records of a response: the elements of each list at a path, or the object there. Null stands
    for no records.

    Args:
        response: a response with a JSON body.
        path: the path of the list.
        may_lack: whether a body without the path has no records; otherwise, it is an error.

    Raises:
        SystemFailure: the body is not JSON, the path is missing, or a record is not an object.
    """
    body, parts = decoded(response), steps(path)
    values = list(_values(body, parts))
    if not values and not may_lack and ALL not in parts:
        names = ", ".join(map(repr, body)) if isinstance(body, Mapping) else kind(body)
        raise SystemFailure(
            f"the body of {place(response.request)} has nothing at the path {'.'.join(parts)!r}; its "
            f"fields are {names or 'none'}",
            guidance="correct `records_path`; set `may_lack_records` if the API leaves out an empty list",
        )
    for value in values:
        for record in value if isinstance(value, list) else [] if value is None else [value]:
            if not isinstance(record, dict):
                raise SystemFailure(
                    f"a record of {place(response.request)} is not an object but {kind(record)}",
                    guidance="correct `records_path`, or override `parse` to make objects of the values",
                )
            yield record


def _values(body: Any, parts: Sequence[str]) -> Iterator[Any]:
    if not parts:
        yield body
        return
    first, rest = parts[0], parts[1:]
    if first == ALL and isinstance(body, list | dict):
        for item in body if isinstance(body, list) else body.values():
            yield from _values(item, rest)
    elif isinstance(body, dict) and first in body:
        yield from _values(body[first], rest)
    elif isinstance(body, list) and _NUMBER.fullmatch(first):
        number = int(first)
        if -len(body) <= number < len(body):
            yield from _values(body[number], rest)


def convert_to_utf8(response: httpx.Response) -> bytes:
    """Return a body in UTF-8."""
    charset = charset_of(response)
    if charset in _UTF8:
        return response.content
    return response.content.decode(charset or "utf-8", "replace").encode()


def json_value(content: bytes, decode: Decode = _decode, repair: Decode = _decode) -> Any:
    """Return the value of a JSON text in UTF-8. Half of a surrogate pair becomes U+FFFD.

    Args:
        content: the text.
        decode: decodes it.
        repair: decodes a text that `decode` does not accept.

    Raises:
        ValueError: it is not JSON.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    check_values(content, MAX_VALUES)
    try:
        try:
            return decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return repair(_replace_half_pairs(content))
    except (InvalidOperation, OverflowError):
        raise ValueError("it has a number that is too large") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def not_json(
    response: httpx.Response,
    error: ValueError,
    smaller: str = "the connector must read a smaller page",
    other: str = "",
) -> EltError:
    """Return the error for a body that is not JSON.

    Args:
        response: the response.
        error: the error of `json_value`.
        smaller: the guidance for a body that is always too large.
        other: the guidance for a body in another format.
    """
    where, text = place(response.request), excerpt(response)
    if response.content and "truncated" in str(error):
        return TransientError(
            f"the body of {where} ends after {len(response.content)} bytes, within a JSON value",
            guidance=f"run the sync again; if it fails again, {smaller}",
        )
    if isinstance(error, msgspec.ValidationError):  # of `check_values`
        return SystemFailure(
            f"the body of {where} is not decoded: {error}, which may fill the memory",
            guidance=smaller,
        )
    return SystemFailure(
        f"the body of {where} is not JSON: {error}"
        f"{'; it begins with ' if text else '; it is empty'}{text}",
        guidance=f"check the URL: a login page or a proxy may have answered in place of the API{other}",
    )


def _replace_half_pairs(content: bytes) -> bytes:
    """Return JSON with U+FFFD in place of each half of a surrogate pair. Such a half is left of an emoji if a
    text was cut, and no text in UTF-8 can have it."""
    if not _HALF.search(content):
        return content
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], content)


def kind(value: Any) -> str:
    """Return the name of a value's type in JSON, with its article."""
    names = {bool: "a boolean", str: "a text", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), "a number")
