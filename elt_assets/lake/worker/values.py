"""The numbers, dates and times of JSON as columns keep them, and the record of what a column does not keep.

Used by the modules of the parse, by `widening`, and by `pipeline.row_conditions`.

First the changes, as `_airbyte_meta.changes` records them: values became null, were rounded, or had bad
characters replaced. Then numbers: exact integers and decimals, doubles, and the one text of a number. Then
dates, times and instants in text: their forms, and what a column keeps of them. What a column does not keep
of such a text is recorded as rounded.

A clean form of a time is one that pyarrow casts exactly; a pattern says which texts have it, so that a column
of them is cast at once. Any other form is read alone.

Spec: AirbyteRecordMessage.meta.changes (0.6); RFC 8259, section 6; Airbyte supported data types (v0, and the
well-known types of v1); ISO 8601 (extended and basic), RFC 3339; zones by the names of the time zone
database.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date as day
from datetime import datetime, timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULLED = "NULLED"
"""The change of a value that became null."""
MISFIT = (NULLED, "DESTINATION_TYPECAST_ERROR")
"""A value of another type or form, or out of range."""
OVERSIZE = (NULLED, "DESTINATION_FIELD_SIZE_LIMITATION")
"""A value beyond a limit of size, depth or digits."""
ROUNDED = ("TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")
"""A value of which the column keeps a part: a rounded number, a time cut to microseconds."""
RESPELLED = ("RESPELLED", "")
"""A double that is kept, but not by its shortest text. It is a change only in a key: two numbers that differ
in the source must not be one key, so that of all texts of a double one is accepted."""
REPLACED = ("TRUNCATED", "DESTINATION_SERIALIZATION_ERROR")
"""A text in which U+FFFD replaces what is not a character."""

Report = Callable[[str, str], object]
"""Reports a change of the value that is read: its kind, and its reason."""


_RESPELLED = RESPELLED[0]


class BecomesNull(Exception):
    """A value that becomes null. args: the kind of the change, and its reason."""


class ValueChange(NamedTuple):
    """A change of a value."""

    order: tuple[int, ...]  # the position of its column, and of the fields in it
    field: str
    change: str
    reason: str


_order = operator.attrgetter("order")


@dataclass(frozen=True)
class FieldPath:
    """A field of the stream's schema, as changes name it. All values in an array have the array's path."""

    order: tuple[int, ...]
    name: str
    is_in_array: bool = False

    def child(self, number: int, name: str) -> FieldPath:
        """Return the path of a field of the object at this path."""
        if self.is_in_array:
            return self
        return FieldPath((*self.order, number), f"{self.name}.{name}" if self.order else name)

    @property
    def items(self) -> FieldPath:
        return FieldPath(self.order, self.name, is_in_array=True)


WHOLE_RECORD = FieldPath((), "")
"""The path of the record itself."""


class BlockChanges:
    """The changes of the records of a block, by the positions of their lines.

    Args:
        key: the paths of the key's fields.
    """

    def __init__(self, key: frozenset[str] = frozenset()):
        self._key = key
        self.by_line: dict[int, dict[ValueChange, None]] = {}

    def add(self, line: int, path: FieldPath, change: str, reason: str) -> None:
        if change == _RESPELLED:
            if path.name not in self._key:
                return
            change, reason = ROUNDED
        entry = ValueChange(path.order, path.name, change, reason)
        self.by_line.setdefault(line, {})[entry] = None

    def list_for(self, line: int) -> Sequence[ValueChange]:
        """Return the changes of a record, in the order of the columns."""
        changes = self.by_line.get(line, ())
        return sorted(changes, key=_order) if len(changes) > 1 else list(changes)


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
    """Return an integer of at most 38 digits."""
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
    """Return a JSON number as a double; digits that are lost are reported."""
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


_CLEAN_DAY = r"[1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLEAN_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_CLEAN_OFFSET = r"[+-](?:0\d|1[0-7]):[0-5]\d"
_CLEAN_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
CLEAN = {
    "DATE": rf"^{_CLEAN_DAY}(?:[T ]00:00:00(?:\.0+)?(?:Z|{_CLEAN_OFFSET})?)?$",
    "TIMESTAMP": rf"^{_CLEAN_DAY}[T ]{_CLEAN_CLOCK}(?:Z|{_CLEAN_OFFSET})?$",
    "TIMESTAMP_NTZ": rf"^{_CLEAN_DAY}[T ]{_CLEAN_CLOCK}$",
    "TIME": rf"^{_CLEAN_TIME}(?:Z|{_CLEAN_OFFSET})?$",
    "TIME_WITH_TIMEZONE": rf"^{_CLEAN_TIME}(?:Z|{_CLEAN_OFFSET})$",
    "TIME_WITHOUT_TIMEZONE": rf"^{_CLEAN_TIME}$",
}
"""Patterns of the clean forms (of RE2, where `$` is the end of the text)."""
_WITH_ZONE = rf"(?:Z|{_CLEAN_OFFSET})$"

_INSTANT = re.compile(
    r"(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d)(?=[Tt]))"
    r"(?:[Tt ](\d\d?)(?::(\d\d?)(?::(\d\d?))?|(\d\d)(\d\d)?)?(?:(?<=\d)[.,](\d*))?)?"
    r"\s*(?:([^\s\[]+)(?:\[[\w/+-]+\])?)?\s*",
    re.ASCII,
).fullmatch
"""A day, a time, and a zone. Its name in brackets after it (RFC 9557) adds nothing to an instant."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII).fullmatch
_ZONES = {"Z": 0, "z": 0, "UTC": 0, "GMT": 0, "UT": 0, "EDT": -4, "EST": -5, "CDT": -5, "CST": -6}
_ZONES |= {"MDT": -6, "MST": -7, "PDT": -7, "PST": -8}
"""Hours ahead of UTC of the zones that RFC 5322 names. Other abbreviations have several meanings."""
_REGION = re.compile(r"[A-Z][A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+", re.ASCII).fullmatch
_HOUR = r"(?:[01]?\d|2[0-3])"
_CLOCK = (
    rf"(?:{_HOUR}:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?"
    rf"|{_HOUR}:59:60(?:[.,]\d+)?|24:00(?::00(?:[.,]0+)?)?)"
)
_ZONE = r"(?:[Zz]|[+-](?:0\d|1[0-8])(?::?[0-5]\d)?)"
_TIME = re.compile(rf"({_CLOCK})({_ZONE})?", re.ASCII).fullmatch
_DAY = 86_400_000_000
_EPOCH = day(1970, 1, 1).toordinal()
_YEARS = range((day.min.toordinal() - _EPOCH) * _DAY, (day.max.toordinal() - _EPOCH + 1) * _DAY)
"""The microseconds since 1970 of the years 1 to 9999. Other years are out of range for the types of Spark and
the dates of Python: a reader of the table would fail."""
_MAX_OFFSET = 18 * 3600


def read_date(text: str, report: Report) -> int:
    """Return the days since 1970 of a date, also of one with a time after it. A midnight carries no
    information: many sources append it. Any other time is left out, and so is a zone.

    The day is in the extended form, so that dates and their texts have the same order.
    """
    days, clock, zone, is_cut = _split_instant(text)
    _offset(zone, days * _DAY)
    if text[4] != "-":
        raise BecomesNull(*MISFIT)
    if clock or is_cut:
        report(*ROUNDED)
    return days


def read_instant(text: str, report: Report) -> int:
    """Return the microseconds since 1970 of a time; without a zone, it is in UTC."""
    days, clock, zone, is_cut = _split_instant(text)
    local = days * _DAY + clock
    micros = _require_years(local - _offset(zone, local) * 1_000_000)
    if is_cut:
        report(*ROUNDED)
    return micros


def read_local_time(text: str, report: Report) -> int:
    """Return the microseconds from 1970 to a time, both on the same clock; a zone is left out."""
    days, clock, zone, is_cut = _split_instant(text)
    micros = _require_years(days * _DAY + clock)
    _offset(zone, micros)
    if zone or is_cut:
        report(*ROUNDED)
    return micros


def read_time_of_day(text: str, _: Report) -> str:
    """Return a time of day with its zone, if it has one."""
    return "".join(_split_time(text))


def read_time_with_zone(text: str, _: Report) -> str:
    """Return a time of day with its zone; one without a zone becomes null."""
    clock, zone = _split_time(text)
    if not zone:
        raise BecomesNull(*MISFIT)
    return clock + zone


def read_time_without_zone(text: str, report: Report) -> str:
    """Return a time of day; a zone is left out."""
    clock, zone = _split_time(text)
    if zone:
        report(*ROUNDED)
    return clock


def cast_times(kind: str, texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a column from texts of the clean form.

    Raises:
        pa.ArrowInvalid: a text has a day that its month does not have, or an instant is out of range.
    """
    if kind.startswith("TIME") and pa.types.is_string(type_):
        return texts
    if kind == "DATE":
        texts = pc.utf8_slice_codeunits(texts, 0, 10)
    elif kind == "TIMESTAMP":
        zoned = pc.match_substring_regex(texts, _WITH_ZONE)
        if not pc.all(zoned, min_count=0).as_py():
            texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    times = texts.cast(type_)
    if kind == "TIMESTAMP" and (pc.max(times.cast(pa.int64())).as_py() or 0) not in _YEARS:
        raise pa.ArrowInvalid("a time at the end of the year 9999 is later in UTC")
    return times


def _split_time(text: str) -> tuple[str, str]:
    """Return a time, with two digits of its hour, and its zone."""
    match = _TIME(text)
    if not match:
        raise BecomesNull(*MISFIT)
    clock, zone = match.groups("")
    return clock if clock[2] == ":" else f"0{clock}", zone


def _split_instant(text: str) -> tuple[int, int, str, bool]:
    """Return the day of a time in days since 1970, the microseconds of its clock since the day's beginning,
    the text of its zone, and whether these are not the whole time."""
    match = _INSTANT(text)
    if not match:
        raise BecomesNull(*MISFIT)
    year, month, day_, basic_month, basic_day = match.group(1, 2, 3, 4, 5)
    hour, minute, second, basic_minute, basic_second, fraction, zone = match.groups()[5:]
    if hour is None and zone:
        raise BecomesNull(*MISFIT)
    try:
        date_ = day(int(year), int(month or basic_month), int(day_ or basic_day))
    except ValueError:
        raise BecomesNull(*MISFIT) from None
    h, m = int(hour or 0), int(minute or basic_minute or 0)
    s = int(second or basic_second or 0)
    is_leap_second = m == 59 and s == 60
    is_end_of_day = h == 24 and not (m or s or int(fraction or 0))
    if m > 59 or (s > 59 and not is_leap_second) or (h > 23 and not is_end_of_day):
        raise BecomesNull(*MISFIT)
    if fraction and second is None and basic_second is None:
        raise BecomesNull(*MISFIT)
    fraction = fraction or ""
    clock = (h * 3600 + m * 60 + s) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    is_cut = is_leap_second or fraction[6:].strip("0") != ""
    return date_.toordinal() - _EPOCH, clock, zone or "", is_cut


def _require_years(micros: int) -> int:
    if micros not in _YEARS:
        raise BecomesNull(*MISFIT)
    return micros


def _offset(zone: str, local: int) -> int:
    """Return the seconds by which a zone is ahead of UTC at a time on its clock.

    A time that its clock skips, in spring, counts from before the change; of a repeated hour, the first one
    is meant.
    """
    if not zone or zone in _ZONES:
        return _ZONES.get(zone, 0) * 3600
    match = _OFFSET(zone)
    if match:
        hours, minutes, seconds = int(match[2]), int(match[3] or 0), int(match[4] or 0)
        offset = hours * 3600 + minutes * 60 + seconds
        if max(minutes, seconds) > 59 or offset > _MAX_OFFSET:
            raise BecomesNull(*MISFIT)
        return -offset if match[1] == "-" else offset
    if not _REGION(zone):
        raise BecomesNull(*MISFIT)
    try:
        region = ZoneInfo(zone)
        clock = datetime.fromtimestamp(local // 1_000_000, timezone.utc).replace(tzinfo=region)
    except (KeyError, ValueError, OSError, OverflowError):
        raise BecomesNull(*MISFIT) from None
    ahead = clock.utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds())
