"""The functions and filters that templates may use besides those of Jinja.

Spec: the interpolation macros and filters of the Airbyte CDK.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus
from zoneinfo import ZoneInfo

from connectors.declarative.manifest import clock, dates
from connectors.sdk.times import parse_duration
from elt_assets.protocol.specification import Pattern, search

ISO_WITH_ZONE = "%Y-%m-%dT%H:%M:%S.%f%z"

# --- functions ------------------------------------------------------------------------------------


def _timestamp(dt: float | str) -> float:
    """Return the seconds since 1970; those of a number are the number without its fraction."""
    if isinstance(dt, (int, float)):
        return int(dt)
    return dates.parse_iso(dt).timestamp()


def _day_delta(num_days: int, format: str = ISO_WITH_ZONE) -> str:  # noqa: A002 - the manifests' word
    return dates.format_datetime(clock.now() + timedelta(days=num_days), format)


def _format_datetime(
    dt: str | float | date,
    format: str,  # noqa: A002 - the manifests' word
    input_format: str | None = None,
) -> str:
    if isinstance(dt, datetime):
        return dates.format_datetime(dt if dt.tzinfo else dt.replace(tzinfo=dates.UTC), format)
    if isinstance(dt, date):
        return dt.strftime(format)
    if isinstance(dt, (int, float)):
        return dates.format_datetime(dates.parse_datetime(dt, input_format or "%s"), format)
    if not isinstance(dt, str):
        raise TypeError
    parsed = dates.parse_datetime(dt, input_format) if input_format else dates.parse_iso(dt)
    return dates.format_datetime(parsed, format)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "now_utc": clock.now,
    "today_utc": lambda: clock.now().date(),
    "today_with_timezone": lambda timezone: clock.now().astimezone(ZoneInfo(timezone)).date(),
    "timestamp": _timestamp,
    "max": max,
    "min": min,
    "day_delta": _day_delta,
    "duration": parse_duration,
    "format_datetime": _format_datetime,
    "str_to_datetime": dates.parse_iso,
    "sanitize_url": quote_plus,
    "camel_case_to_snake_case": lambda value: re.sub(r"(?<!^)(?=[A-Z])", "_", value).lower(),
    "generate_uuid": lambda: str(uuid.uuid4()),
}

# --- filters --------------------------------------------------------------------------------------


def _hash(value: Any, hash_type: str = "md5", salt: str | None = None) -> str:
    if hash_type not in hashlib.algorithms_available:
        raise ValueError("the hash function is not known")
    digest = hashlib.new(hash_type, usedforsecurity=False)
    digest.update(str(value).encode())
    if salt:
        digest.update(str(salt).encode())
    return digest.hexdigest()


def _hmac(value: Any, key: str, hash_type: str = "sha256") -> str:
    if hash_type != "sha256":
        raise ValueError("hmac supports only sha256")
    return hmac.new(str(key).encode(), str(value).encode(), hashlib.sha256).hexdigest()


def _base64binascii_decode(value: str) -> str:
    """Return the base64 of an ASCII text: the CDK's filter encodes, in spite of its name."""
    return base64.standard_b64encode(value.encode("ascii")).decode("ascii")


class _QuotedText(str):
    """A text in quotes that are no part of it: the template takes it for a literal, and not for a text."""

    __slots__ = ()


def _string(value: Any) -> str:
    """Return a text, or the JSON of another value in quotes that keep it from becoming a native value."""
    return value if isinstance(value, str) else _QuotedText(f'"""{json.dumps(value)}"""')


def _regex_search(value: str, regex: str) -> str:
    """Return the first group of the first match; an empty text if there is none."""
    match = search(regex, value)
    return match.group(1) if match and match.groups() else ""


FILTERS: Mapping[str, Callable[..., Any]] = {
    "hash": _hash,
    "hmac": _hmac,
    "base64encode": lambda value: base64.b64encode(value.encode()).decode(),
    "base64decode": lambda value: base64.b64decode(value.encode()).decode(),
    "base64binascii_decode": _base64binascii_decode,
    "string": _string,
    "regex_search": _regex_search,
    "regex_replace": lambda value, regex, replacement: Pattern(regex).replace(value, replacement),
}
