"""JSON bodies of responses: decoded once, and without loss."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from connectors.sdk.http import Response
from connectors.sdk.http.body import without_half_pairs
from connectors.sdk.http.failures import excerpt, place
from elt_assets.errors import EltError, SystemFailure, TransientError

_DECODED = "connectors.declarative.decoded"
_UTF8 = frozenset({None, "utf-8", "utf8", "us-ascii", "ascii"})
_CONSTANTS = (b"NaN", b"Infinity")
_SAFE_CHARACTERS = 16
"""Length up to which the text of a number has at most 15 digits, which a float keeps."""
_SMALL, _LARGE = 1e-290, 1e290
"""Absolute values between which the 15 digits hold."""


def number(text: str) -> float | Decimal:
    """Return a number with a fraction or an exponent as a float, if the float has the same value when it is
    written again; otherwise as a `Decimal`. Templates calculate with floats, and records lose no digits."""
    if len(text) <= _SAFE_CHARACTERS:
        found = float(text)
        if _SMALL < found < _LARGE or -_LARGE < found < -_SMALL:
            return found
    found, exact = float(text), Decimal(text)
    return found if Decimal(repr(found)) == exact else exact


_decode = msgspec.json.Decoder(float_hook=number).decode


def json_body(response: Response) -> Any:
    """Return the JSON value of a body; an empty object if there is no body. It is decoded once, however
    often it is asked for.

    Raises:
        SystemFailure: the body is not JSON.
        TransientError: the body ends within a JSON value.
    """
    if _DECODED not in response.extensions:
        response.extensions[_DECODED] = fresh_json_body(response)
    return response.extensions[_DECODED]


def fresh_json_body(response: Response) -> Any:
    """Return the JSON value of a body as an object of its own; the errors are those of `json_body`."""
    content = response.content
    if response.charset_encoding not in _UTF8:
        content = response.text.encode()
    if not content.strip():
        return {}
    try:
        return decode(content)
    except ValueError as error:
        raise not_json(response, error) from None


def json_body_if_any(response: Response) -> Any:
    """Return the JSON value of a body; an empty object if it is something else."""
    try:
        return json_body(response)
    except EltError:
        return {}


def decode(content: bytes) -> Any:
    """Return a JSON value. NaN and the infinities, which are no JSON but are met, become null, and half of a
    surrogate pair becomes U+FFFD.

    Raises:
        ValueError: the content is not JSON.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _repaired(content, error)
    except (InvalidOperation, OverflowError):
        raise ValueError("it has a number that is too large") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _repaired(content: bytes, error: Exception) -> Any:
    """Return the value of a content that is almost JSON.

    Raises:
        ValueError: it is not.
    """
    whole = without_half_pairs(content)
    if whole != content:
        return decode(whole)
    if not any(constant in content for constant in _CONSTANTS):
        raise ValueError(str(error)) from None
    try:
        return json.loads(content, parse_float=number, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def not_json(response: Response, error: ValueError) -> EltError:
    """Return the error for a body that is not JSON."""
    where, text = place(response.request), excerpt(response)
    if "truncated" in str(error):
        return TransientError(
            f"the body of {where} ends after {len(response.content)} bytes, within a JSON value",
            guidance="run the sync again; if it fails again, request smaller pages in the manifest",
        )
    return SystemFailure(
        f"the body of {where} is not JSON: {error}; it begins with {text}",
        guidance="check the URL: a login page or a proxy may have answered in place of the API; for another "
        "format, set `decoder` of the retriever",
    )
