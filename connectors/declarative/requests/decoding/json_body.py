"""JSON bodies of responses: decoded once, and without loss."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec

from connectors.sdk.http.body import convert_to_utf8, json_value, not_json
from connectors.sdk.http.messages import Response
from elt_assets.errors import EltError

_DECODED = "connectors.declarative.decoded"
_SMALLER = "request smaller pages in the manifest"
_OTHER = "; for another format, set `decoder` of the retriever"
_CONSTANTS = (b"NaN", b"Infinity")
_SAFE_CHARACTERS = 16
"""Length up to which the text of a number has at most 15 digits, which a float keeps."""
_SMALL, _LARGE = 1e-290, 1e290
"""Absolute values between which the 15 digits hold."""


def number(text: str) -> float | Decimal:
    """Return a number with a fraction or an exponent as a float, if the float has the same value when it is
    written again; otherwise as a `Decimal`. Templates calculate with floats, and records lose no digits."""
    if len(text) <= _SAFE_CHARACTERS:
        value = float(text)
        if _SMALL < value < _LARGE or -_LARGE < value < -_SMALL:
            return value
    value, exact = float(text), Decimal(text)
    return value if Decimal(repr(value)) == exact else exact


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
    try:
        content = convert_to_utf8(response)
        return decode(content) if content.strip() else {}
    except ValueError as error:
        raise not_json(response, error, _SMALLER, _OTHER) from None


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
    return json_value(content, _decode, _repaired)


def _repaired(content: bytes) -> Any:
    """Return the value of a content that is JSON but for NaN and the infinities."""
    if any(constant in content for constant in _CONSTANTS):
        return json.loads(content, parse_float=number, parse_constant=lambda _: None)
    return _decode(content)
