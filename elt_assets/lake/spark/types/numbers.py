"""Numbers as JSON writes them: exact integers and decimals, doubles, and the one text of a number.

Spec: RFC 8259, section 6; Airbyte supported data types (v0, and the well-known types of v1).
"""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal

import numpy as np

from elt_assets.lake.spark.types.changes import MISFIT, RESPELLED, ROUNDED, BecomesNull, Report

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?").fullmatch
_INTEGER = re.compile(rb"-?\d+").fullmatch
_EXACT = Context(prec=80, Emax=10**6, Emin=-(10**6))
_ALL_DIGITS = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_SMALL = re.compile(rb"(?:^|[\s:,\[])-?[\d.]+[eE]-\d{3}$").search
_SHORT = 18
"""Characters of an integer that fits 64 bits, whatever its digits are."""
_EXACT_LENGTH = 15
"""Characters of a number that a double always keeps, if it has no exponent of three digits."""
_PLAIN = range(-6, 40)
"""Powers of ten of the first digit for which a number with a point or exponent is written without an
exponent: what decimal columns hold, and small fractions as JavaScript writes them."""
_NOT_FINITE = {b'"NaN"': math.nan, b'"Infinity"': math.inf, b'"-Infinity"': -math.inf}


def read_integer(raw: bytes, _: Report) -> int:
    """Return a JSON number without a fraction: `5`, `5.0`, `5e3`."""
    if len(raw) <= _SHORT and _INTEGER(raw):
        return int(raw)
    return _whole(_decimal(raw), 2**63)


def read_integer_text(raw: bytes, _: Report) -> int:
    """Return an integer that may be a number or a string."""
    return _whole(_decimal(_unquote(raw)), 2**63)


def read_big_integer(raw: bytes, _: Report) -> Decimal:
    return Decimal(_whole(_decimal(_unquote(raw)), 10**38 - 1))


def read_big_number(raw: bytes, report: Report) -> Decimal:
    """Return a decimal with nine digits after the point; further digits are rounded half up."""
    number = _decimal(_unquote(raw))
    if number.adjusted() > 28:
        raise BecomesNull(*MISFIT)
    rounded = number.quantize(Decimal("1e-9"), ROUND_HALF_UP, context=_EXACT)
    if rounded.adjusted() > 28:
        raise BecomesNull(*MISFIT)
    if rounded != number:
        report(*ROUNDED)
    return rounded


def read_double(raw: bytes, report: Report) -> float:
    if not _NUMBER(raw):
        raise BecomesNull(*MISFIT)
    number = 0.0 if raw == b"-0" else float(raw)  # the decoder takes the text -0 as an integer
    if math.isinf(number):
        raise BecomesNull(*MISFIT)
    report_lost_digits(raw, number, report)
    return number


def read_number_text(raw: bytes, report: Report) -> float:
    """Return a double that may be a number or a string, also `"NaN"` and `"Infinity"`."""
    number = _NOT_FINITE.get(raw)
    return read_double(_unquote(raw), report) if number is None else number


def report_lost_digits(text: bytes, number: float, report: Report) -> None:
    """Report it if a double does not keep the number that a text says.

    It keeps it if the text is one that only writers of doubles write: the shortest one, one of 17 digits, or
    one with all digits of the double. In a key only the shortest one is kept (see `RESPELLED`).
    """
    if not may_round(text):
        return
    sent = Decimal(text.decode())
    if sent == Decimal(repr(number)):
        return
    is_kept = sent in (Decimal(number), Decimal(f"{number:.17g}"))
    report(*(RESPELLED if is_kept else ROUNDED))


def may_round(text: bytes) -> bool:
    """Return whether a JSON value may have a number that a double does not keep: one of 16 characters or
    more, or with a large negative exponent, which then is almost zero."""
    return len(text) > _EXACT_LENGTH or has_small_number(text)


def may_round_any(texts: bytes) -> bool:
    """Return whether many JSON values may have a number that a double does not keep."""
    return has_long_number(texts) or has_small_number(texts)


def has_long_number(texts: bytes) -> bool:
    """Return whether JSON values may have a number of 16 characters or more."""
    sample = np.frombuffer(texts, np.uint8)[::2]
    run = (sample - np.uint8(ord("."))) < 12  # a digit, a point or a slash
    for shift in (1, 2, 4):
        run = run[shift:] & run[:-shift]
    return bool(run.any())


def has_small_number(text: bytes) -> bool:
    """Return whether a text has a number with a negative exponent of three digits or more, besides those that
    are long. A text in it (`"1e-400"`, a UUID) has none."""
    for sign in (b"e-", b"E-"):
        start = -1
        while (start := text.find(sign, start + 1)) >= 0:
            if _SMALL(text, max(start - _EXACT_LENGTH - 2, 0), start + 5):
                return True
    return False


def shortest_text(text: str) -> str:
    """Return the one text of a number: no digit is lost, and equal numbers below 10^40 have equal texts.

    It has no exponent unless the number is very large or small, and no zeros at the end of its fraction. An
    integer stays as it is.
    """
    if text.lstrip("-").isdigit():
        return "0" if text == "-0" else text
    whole, _, fraction = text.partition(".")
    if fraction.isdigit() and len(whole) < _PLAIN.stop and not fraction.startswith("00000"):
        if fraction[-1] != "0":
            return text
        fraction = fraction.rstrip("0")
        return f"{whole}.{fraction}" if fraction else "0" if whole == "-0" else whole
    number = Decimal(text).normalize(_ALL_DIGITS)
    if not number:
        return "0"
    return f"{number:f}" if number.adjusted() in _PLAIN else f"{number:e}"


def double_text(number: float) -> str:
    """Return the text of a double: the number is that of its shortest repr. What is not finite has the text
    that `read_number_text` reads."""
    if math.isfinite(number):
        return shortest_text(repr(number))
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _unquote(raw: bytes) -> bytes:
    return raw[1:-1] if raw[:1] == b'"' else raw


def _decimal(text: bytes) -> Decimal:
    if not _NUMBER(text):
        raise BecomesNull(*MISFIT)
    return Decimal(text.decode()) or Decimal(0)  # a zero may have any exponent


def _whole(number: Decimal, limit: int) -> int:
    """Return a number that has no fraction, between -limit and limit, which the upper bound of a machine's
    integer does not reach."""
    if number.adjusted() > 40 or number != number.to_integral_value(context=_EXACT):
        raise BecomesNull(*MISFIT)
    whole = int(number)
    if not -limit <= whole <= limit - (limit == 2**63):
        raise BecomesNull(*MISFIT)
    return whole
