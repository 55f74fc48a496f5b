"""The bookmark of a partition, or of a stream without partitions.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from connectors.sdk.items import Context, Record
from connectors.sdk.state.replication_key import DATE, DATE_TIME, NUMBER, ReplicationKey
from connectors.sdk.state.sent_records import SentRecords
from connectors.sdk.times import Length, add_length, is_instant, iso
from elt_assets.errors import SystemFailure

REPLICATION_KEY = "replication_key"
VALUE = "replication_key_value"
PARTITIONS = "partitions"
CONTEXT = "context"
PROGRESS = "progress_markers"
SIGNPOST = "replication_key_signpost"
_STARTING_VALUE = "starting_replication_value"
OF_ONE_SYNC = frozenset({PROGRESS, "progress_tracking", SIGNPOST, _STARTING_VALUE})
"""Properties that an interrupted sync leaves, and that the next sync ignores and removes."""
_NOTE = "Not a bookmark: the sync was interrupted before the partition was complete."

SENT, SENT_NULLS = "sent", "sent_without_key"
"""Properties with the hashes of records that were sent: those with the value of the bookmark, and those
without a value."""

KEEP, SKIP, ERROR = "keep", "skip", "error"
"""The choices for a record whose value of the replication key cannot be compared with others."""

_MAX_INTEGER = 2**63
_ZEROS = str.maketrans("123456789", "000000000")
_DATE = len("2024-01-01")
_TIME = len("2024-01-01T00:00:00")


class InvalidStreamSortException(SystemFailure):
    """A stream declares ascending order, but the replication key of a record is before that of the previous
    record.

    Spec: "The Impact of Sorting on Incremental Sync".
    """


@dataclass(frozen=True, kw_only=True)
class BookmarkRules:
    """What applies to all bookmarks of a stream.

    Attributes:
        is_sorted: whether the records of a partition come in the order of the replication key.
        start_date: the value from which to read if a bookmark is before it, or missing.
        named_by: the fields that an error names a record by.
        on_bad_value: KEEP, SKIP or ERROR: what becomes of a record whose value cannot be compared.
        max_sent: maximum number of hashes of each kind in a bookmark. If there are more, none is kept, and
            the records are sent again.
        lookback: how far before the bookmark a read begins; None to begin at it.
        keeps_missing: whether a record may lack the field of the key, as if its value were null.
    """

    is_sorted: bool = False
    start_date: Any = None
    named_by: Sequence[str] = ()
    on_bad_value: str = ERROR
    max_sent: int = 0
    lookback: Length | None = None
    keeps_missing: bool = False


class Bookmark:
    """The position up to which a partition is read, or a stream without partitions.

    Args:
        key: the replication key.
        saved: the entry of the last state; empty at the first sync.
        rules: those of the stream.
        context: the partition; None for a stream without partitions.
        of_context: the `identity` of the context.
        signpost: the largest value that the bookmark may get in this sync; None if there is no limit.

    Raises:
        SystemFailure: a saved value, the start date or the signpost cannot be compared.
    """

    def __init__(
        self,
        key: ReplicationKey,
        saved: Mapping[str, Any],
        rules: BookmarkRules,
        *,
        context: Context | None = None,
        of_context: bytes = b"",
        signpost: Any = None,
    ):
        start_date, max_sent = rules.start_date, rules.max_sent
        self.context = context
        self.of_context = of_context
        self._key = key
        self._field = key.field
        self._is_sorted = rules.is_sorted
        self._named_by = rules.named_by
        self._saved = read_saved_value(key, saved)
        values = {
            *(*OF_ONE_SYNC, PARTITIONS, CONTEXT, REPLICATION_KEY, VALUE, key.field),
            *(SENT, SENT_NULLS),
        }
        self._max_sent = max_sent
        self._sent = SentRecords(saved.get(SENT) if self._saved is not None else None, max_sent)
        self._sent_nulls = SentRecords(saved.get(SENT_NULLS), max_sent)
        self._new_nulls = SentRecords(saved.get(SENT_NULLS), max_sent)
        self._ties: list[Record] = []
        self._others = {name: saved[name] for name in saved if name not in values}
        if self._saved is not None:
            key.order(self._saved)
        elif start_date is not None and not is_instant(start_date):
            key.order(start_date)
        self._signpost = signpost
        self.start = self._find_start(start_date, rules.lookback)
        self._keeps_missing = rules.keeps_missing
        self._on_bad_value = rules.on_bad_value
        self._bad_values = 0
        self._first_bad_value: Any = None
        self._checked: Any = None
        self._highest: Any = None
        self._shape: str | None = None
        self._zone = ""
        self._zone_from = 0
        self._nulls = 0

    def see(self, record: Record) -> bool:
        """Take notice of the next record, and return whether it is to be left out.

        Raises:
            InvalidStreamSortException: the stream is sorted, and the record is before the one before it.
            SystemFailure: the record lacks the replication key, or has a value that cannot be compared, which
                is an error in this stream.
        """
        try:
            value = record[self._field]
        except KeyError:
            if not self._keeps_missing:
                raise self._describe_missing(record) from None
            value = None
        if value is None:
            if record in self._sent_nulls:
                return True
            self._new_nulls.add(record)
            self._nulls += 1
        elif self._sent.hashes and value == self._saved and record in self._sent:
            return True
        elif (
            # Date-times of one notation and zone sort as their texts do, which is far faster.
            self._shape is not None
            and value.__class__ is str
            and value.translate(_ZEROS) == self._shape
            and value[self._zone_from :] == self._zone
        ):
            if value > self._highest:
                self._highest = value
                self._ties = [record]
            elif value < self._highest:
                return self._see_exactly(value, record) if self._is_sorted else False
            elif len(self._ties) <= self._max_sent:
                self._ties.append(record)
        else:
            return self._see_exactly(value, record)
        return False

    def take_nulls(self) -> int:
        """Return the number of records without a value of the key since the last call."""
        nulls, self._nulls = self._nulls, 0
        return nulls

    def take_bad_values(self) -> tuple[int, Any]:
        """Return the number of values that cannot be compared since the last call, and the first of them."""
        bad_values = self._bad_values, self._first_bad_value
        self._bad_values, self._first_bad_value = 0, None
        return bad_values

    def complete(self) -> None:
        """Make the highest value seen the bookmark: the partition is complete.

        Spec: "Dealing with Unsorted Streams".
        """
        saved, self._sent = self._find_reached(), self._find_sent()
        self._saved = saved
        self._highest = self._shape = self._checked = None
        self._ties = []

    def complete_before(self, value: Any) -> None:
        """Make a value the bookmark: all records before it were sent, and none that has it.

        The bookmark passes neither the signpost nor a value that it has reached before.
        """
        if self._is_limited and self._key.is_larger(value, self._signpost):
            value = self._signpost
        if self._saved is None or self._key.is_larger(value, self._saved):
            self._saved, self._sent = value, SentRecords(None, self._max_sent)
        self._highest = self._shape = self._checked = None
        self._ties = []

    def entry(self, *, with_progress: bool = True) -> dict[str, Any]:
        """Return the entry of the state; with the progress so far, which no sync resumes from."""
        entry: dict[str, Any] = {} if self.context is None else {CONTEXT: self.context}
        value = self._find_reached() if self._is_sorted else self._saved
        sent = self._find_sent() if self._is_sorted else self._sent
        if value is not None:
            entry |= {REPLICATION_KEY: self._field, VALUE: _exact(self._key, value)}
        entry |= self._others | sent.entry(SENT) | self._new_nulls.entry(SENT_NULLS)
        if with_progress and not self._is_sorted and self._highest is not None:
            highest = {REPLICATION_KEY: self._field, VALUE: _exact(self._key, self._highest)}
            entry[PROGRESS] = {"Note": _NOTE, **highest}
            if self._signpost is not None:
                entry[SIGNPOST] = _exact(self._key, self._signpost)
        return entry

    def _find_start(self, start_date: Any, lookback: Length | None) -> Any:
        """Return the value from which to read: the bookmark or what is before it, but no value before the
        start date."""
        start = _number(self._key, self._saved)
        if start is not None and lookback is not None:
            start = add_length(start, lookback, -1)
        is_earlier = start is None or self._key.is_before(start, start_date)
        return _number(self._key, start if start_date is None or not is_earlier else start_date)

    def _see_exactly(self, value: Any, record: Record) -> bool:
        """Compare a value by its meaning, and return whether its record is to be left out."""
        try:
            order = self._key.order(value)
        except SystemFailure as error:
            self._see_bad_value(value, error)
            return self._on_bad_value == SKIP
        self._check_highest()
        if self._highest is None or order > self._key.order(self._highest):
            self._highest = self._checked = value
            self._ties = [record]
            self._remember_shape(value)
        elif order == self._key.order(self._highest):
            if len(self._ties) <= self._max_sent:
                self._ties.append(record)
        elif self._is_sorted:
            raise self._describe_unsorted(value, record)
        return False

    def _find_sent(self) -> SentRecords:
        """Return the records with the value of the bookmark that this sync has reached."""
        reached = self._find_reached()
        if reached is None or self._highest is None:
            return self._sent
        order, highest = self._key.order(reached), self._key.order(self._highest)
        is_moved = self._saved is None or self._key.is_larger(reached, self._saved)
        before = SentRecords(None, self._max_sent) if is_moved else self._sent
        return before.add_records(self._ties) if order == highest else before

    def _see_bad_value(self, value: Any, error: SystemFailure) -> None:
        """Count a value that cannot be compared, or raise the error if it is one in this stream."""
        if self._on_bad_value == ERROR:
            raise error
        if not self._bad_values:
            self._first_bad_value = value
        self._bad_values += 1

    def _check_highest(self) -> None:
        """Replace a highest value that only looked like a date-time, such as one of month 13, by the last one
        that was compared: records may be repeated then, and none is lost."""
        if self._highest is None or self._highest is self._checked:
            return
        try:
            self._key.order(self._highest)
        except SystemFailure as error:
            self._see_bad_value(self._highest, error)
            self._highest, self._ties = self._checked, []
            self._remember_shape(self._highest)
        else:
            self._checked = self._highest

    def _remember_shape(self, value: Any) -> None:
        """Keep the notation of a date-time; None if texts of this notation do not sort as their values."""
        self._shape = None
        if isinstance(value, str) and self._key.kind in (DATE, DATE_TIME):
            sign = max(value.rfind("+", _DATE), value.rfind("-", _DATE))
            if len(value) == _DATE or len(value) >= _TIME:
                self._shape = value.translate(_ZEROS)
                self._zone_from = len(value) if sign < 0 else sign
                self._zone = value[self._zone_from :]

    def _find_reached(self) -> Any:
        """Return the bookmark that this sync has reached; never before the last one, nor past the signpost.

        Spec: "Replication Key Signposts".

        Raises:
            SystemFailure: the highest value looked like a date-time, but is none.
        """
        self._check_highest()
        if self._highest is None:
            return self._saved
        reached = self._highest
        order = self._key.order(reached)
        if self._is_limited and order > self._key.order(self._signpost):
            reached = self._signpost
        return _later(self._key, self._saved, reached)

    @property
    def _is_limited(self) -> bool:
        """Return whether the signpost limits the bookmark: the present time limits only dates."""
        if self._signpost is None:
            return False
        return self._key.kind in (DATE, DATE_TIME) or not is_instant(self._signpost)

    def _describe_missing(self, record: Record) -> SystemFailure:
        return SystemFailure(
            f"a record has no field {self._field!r}, which is the stream's replication key; it has "
            f"{', '.join(map(repr, record)) or 'no field'}",
            guidance="add the field to each record (its value may be null), choose another key, or set "
            "`missing_keys`",
        )

    def _describe_unsorted(self, value: Any, record: Record) -> InvalidStreamSortException:
        rest = [name for name in record if name != self._field and name not in self._named_by]
        names = [*(name for name in self._named_by if name in record), *rest][:3]
        values = ", ".join(f"{name}={record[name]!r}" for name in names)
        return InvalidStreamSortException(
            f"the records are not sorted by {self._field!r}: {value!r} comes after {self._highest!r}, in the "
            f"record with {values or 'no other field'}"[:1_000],
            guidance="sort the records by the replication key, or leave out `order`",
        )


def remove_progress(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in OF_ONE_SYNC}


def read_saved_value(key: ReplicationKey, saved: Mapping[str, Any]) -> Any:
    """Return the bookmark of an entry; None if it has none, or one of another replication key.

    A state whose only property is the replication key, `{"updated_at": …}`, is the form of many other
    sources.
    """
    if saved.get(REPLICATION_KEY, key.field) == key.field and saved.get(VALUE) is not None:
        return saved[VALUE]
    return saved.get(key.field) if VALUE not in saved else None


def _later(key: ReplicationKey, first: Any, other: Any) -> Any:
    """Return the later of two values; None stands for a value that is missing."""
    if first is None or other is None:
        return other if first is None else first
    return other if key.is_larger(other, first) else first


def _exact(key: ReplicationKey, value: Any) -> Any:
    """Return a value as it is saved: a decimal number that a JSON reader would round is saved as text, if the
    schema says that it is a number."""
    if not isinstance(value, Decimal):
        return iso(value)
    if value == value.to_integral_value() and abs(value) < _MAX_INTEGER:
        return int(value)
    is_kept = Decimal(repr(float(value))) == value
    return value if is_kept or not key.declares_number else str(value)


def _number(key: ReplicationKey, value: Any) -> Any:
    """Return a number that was saved as text as a number again."""
    return Decimal(value) if key.kind == NUMBER and isinstance(value, str) else value
