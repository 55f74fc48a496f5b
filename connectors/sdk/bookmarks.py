"""The state of a stream: a bookmark for the stream, or one for each of its partitions.

The same object is a stream's state in the Airbyte Protocol and its entry under `bookmarks` in a Singer state.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from connectors.sdk.items import Context, Record
from connectors.sdk.replication_key import DATE, DATE_TIME, ReplicationKey
from elt_assets.errors import SystemFailure

REPLICATION_KEY = "replication_key"
VALUE = "replication_key_value"
PARTITIONS = "partitions"
CONTEXT = "context"
PROGRESS = "progress_markers"
SIGNPOST = "replication_key_signpost"
_STARTING_VALUE = "starting_replication_value"
_OF_ONE_SYNC = frozenset({PROGRESS, "progress_tracking", SIGNPOST, _STARTING_VALUE})
"""Properties that an interrupted sync leaves, and that the next sync ignores and removes."""
_NOTE = "Not a bookmark: the sync was interrupted before the partition was complete."

_ZEROS = str.maketrans("123456789", "000000000")
_OFFSET = 6
"""Characters of the offset of a zone, such as `+00:00`."""

_encode = msgspec.json.Encoder(decimal_format="number").encode
_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


class InvalidStreamSortException(SystemFailure):
    """A stream that declares `is_sorted` yielded a record whose replication key is before that of the record
    before it.

    Spec: "The Impact of Sorting on Incremental Sync".
    """


class Bookmark:
    """The position up to which a partition is read, or a stream without partitions.

    Args:
        key: the replication key.
        saved: the entry of the last state; empty at the first sync.
        context: the partition; None for a stream without partitions.
        is_sorted: whether the records come in the order of the replication key.
        start_date: the value from which to read if the bookmark is before it, or missing.
        signpost: the largest value that the bookmark may get in this sync; None if there is no limit.
    """

    def __init__(
        self,
        key: ReplicationKey,
        saved: Mapping[str, Any],
        *,
        context: Context | None = None,
        is_sorted: bool = False,
        start_date: Any = None,
        signpost: Any = None,
    ):
        self.context = context
        self._key = key
        self._field = key.field
        self._is_sorted = is_sorted
        self._signpost = signpost
        self._others = {
            name: value
            for name, value in saved.items()
            if name not in _OF_ONE_SYNC and name not in (PARTITIONS, CONTEXT)
        }
        self._saved = _saved_value(key, saved)
        self._others.pop(self._field, None)
        self.start = _later(key, self._saved, start_date)
        self._highest: Any = None
        self._shape: str | None = None
        self._zone = ""
        self._zone_from = 0
        self._nulls = 0

    def see(self, record: Record) -> None:
        """Take notice of the next record.

        Raises:
            InvalidStreamSortException: the stream is sorted, and the record is before the one before it.
            SystemFailure: the record lacks the replication key, or has a value that cannot be compared.
        """
        try:
            value = record[self._field]
        except KeyError:
            raise SystemFailure(
                f"a record has no field {self._field!r}, which is the stream's replication key; it has "
                f"{', '.join(map(repr, record)) or 'no field'}",
                guidance="add the field to each record (its value may be null), or choose another key",
            ) from None
        if value is None:
            self._nulls += 1
        elif (
            # Date-times of one notation and zone sort as their texts do, which is far faster.
            self._shape is not None
            and value.__class__ is str
            and value.translate(_ZEROS) == self._shape
            and value[self._zone_from :] == self._zone
        ):
            if value > self._highest:
                self._highest = value
            elif value < self._highest and self._is_sorted:
                raise self._unsorted(value, record)
        else:
            self._see_exactly(value, record)

    def take_nulls(self) -> int:
        """Return the number of records without a value of the key since the last call."""
        nulls, self._nulls = self._nulls, 0
        return nulls

    def complete(self) -> None:
        """Make the highest value seen the bookmark: the partition is complete.

        Spec: "Dealing with Unsorted Streams".
        """
        self._saved = self._reached()
        self._highest = self._shape = None

    def entry(self) -> dict[str, Any]:
        """Return the entry of the state, with the progress so far."""
        entry: dict[str, Any] = {}
        if self.context is not None:
            entry[CONTEXT] = self.context
        value = self._reached() if self._is_sorted else self._saved
        if value is not None:
            entry |= {REPLICATION_KEY: self._field, VALUE: value}
        entry = {**self._others, **entry} if self.context is None else {**entry, **self._others}
        if not self._is_sorted and self._highest is not None:
            highest = {REPLICATION_KEY: self._field, VALUE: self._highest}
            entry[PROGRESS] = {"Note": _NOTE, **highest}
            if self._signpost is not None:
                entry[SIGNPOST] = self._signpost
        return entry

    def _see_exactly(self, value: Any, record: Record) -> None:
        """Compare a value by its meaning."""
        order = self._key.order(value)
        if self._highest is None or order > self._key.order(self._highest):
            self._highest = value
            self._remember_shape(value)
        elif self._is_sorted and order < self._key.order(self._highest):
            raise self._unsorted(value, record)

    def _remember_shape(self, value: Any) -> None:
        """Keep the notation of a date-time; None if texts of this notation do not sort as their values."""
        self._shape = None
        if isinstance(value, str) and self._key.kind in (DATE, DATE_TIME):
            has_offset = value[-_OFFSET : -_OFFSET + 1] in ("+", "-") and value[-3:-2] == ":"
            is_plain = len(value) == len("2024-01-01") or len(value) >= len("2024-01-01T00:00:00")
            if is_plain and (has_offset or value[-1].isdigit() or value[-1] == "Z"):
                self._shape = value.translate(_ZEROS)
                self._zone_from = len(value) - _OFFSET if has_offset else len(value)
                self._zone = value[self._zone_from :]

    def _reached(self) -> Any:
        """Return the bookmark that this sync has reached; never before the last one, nor past the signpost.

        Spec: "Replication Key Signposts".

        Raises:
            SystemFailure: the highest value looked like a date-time, but is none.
        """
        if self._highest is None:
            return self._saved
        reached = self._highest
        order = self._key.order(reached)
        if self._signpost is not None and order > self._key.order(self._signpost):
            reached = self._signpost
        return _later(self._key, self._saved, reached)

    def _unsorted(self, value: Any, record: Record) -> InvalidStreamSortException:
        names = [name for name in record if name != self._field][:3]
        shown = ", ".join(f"{name}={record[name]!r}" for name in names)
        return InvalidStreamSortException(
            f"the records are not sorted by {self._field!r}: {value!r} comes after {self._highest!r}, in the "
            f"record with {shown or 'no other field'}"[:1_000],
            guidance="sort the records by the replication key, or leave out `is_sorted`",
        )


class StreamState:
    """The state of a stream while it is read.

    Args:
        key: the replication key.
        saved: the stream's last state; empty at the first sync.
        is_sorted: whether the records of a partition come in the order of the replication key.
        partitioning_keys: the names in a context that tell apart the partitions of the state; None for all.
            With fewer names than the context has, several contexts share a bookmark, so the records are not
            sorted, and the bookmarks are final only when the stream is complete.
        start_date: the value from which to read where there is no bookmark.
        signpost: the largest value that a bookmark may get in this sync; None if there is no limit.

    Spec: "Partitioned State", "Advanced Use Cases".
    """

    def __init__(
        self,
        key: ReplicationKey,
        saved: Mapping[str, Any],
        *,
        is_sorted: bool = False,
        partitioning_keys: Sequence[str] | None = None,
        start_date: Any = None,
        signpost: Any = None,
    ):
        self._key = key
        self._keys = partitioning_keys
        self._is_sorted = is_sorted and partitioning_keys is None
        self._start_date = start_date
        self._signpost = signpost
        self._others = {name: value for name, value in saved.items() if name != PARTITIONS}
        self._whole: Bookmark | None = None
        self._open: dict[bytes, Bookmark] = {}
        self._entries: dict[bytes, bytes] = {}
        self._size = 0
        for entry in saved.get(PARTITIONS) or ():
            kept = {name: entry[name] for name in entry if name not in _OF_ONE_SYNC}
            self._keep(_encode_sorted(entry.get(CONTEXT)), _encode(kept))

    @property
    def partitions(self) -> int:
        """Number of partitions that have a bookmark."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Size of the state in bytes, without the partition that is being read."""
        return self._size

    def begin(self, context: Context | None) -> Bookmark:
        """Return the bookmark of a partition that is read now; None: the stream has no partitions."""
        if context is None:
            self._whole = self._bookmark(self._others, None)
            return self._whole
        if self._keys is not None:
            context = {name: context[name] for name in self._keys if name in context}
            if not context:
                self._whole = self._whole or self._bookmark(self._others, None)
                return self._whole
        identity = _encode_sorted(context)
        if identity not in self._open:
            saved = self._entries.get(identity)
            entry = {} if saved is None else msgspec.json.decode(saved)
            self._open[identity] = self._bookmark(entry, context)
        return self._open[identity]

    def end(self, bookmark: Bookmark) -> None:
        """Take notice that all records of a context were read."""
        if self._keys is None:
            self._complete(bookmark)

    def finish(self) -> None:
        """Take notice that all records of the stream were read."""
        for bookmark in [*self._open.values(), *([self._whole] if self._whole else [])]:
            self._complete(bookmark)

    def encode(self) -> Raw:
        """Return the state as JSON, with the progress so far."""
        for identity, bookmark in self._open.items():
            self._keep(identity, _encode(bookmark.entry()))
        whole = self._whole.entry() if self._whole else _without_progress(self._others)
        if not self._entries:
            return Raw(_encode(whole))
        inner = _encode(whole)[1:-1]
        entries = b",".join(self._entries.values())
        return Raw(b'{%b%b"partitions":[%b]}' % (inner, b"," if inner else b"", entries))

    def _bookmark(self, saved: Mapping[str, Any], context: Context | None) -> Bookmark:
        return Bookmark(
            self._key,
            saved,
            context=context,
            is_sorted=self._is_sorted,
            start_date=self._start_date,
            signpost=self._signpost,
        )

    def _complete(self, bookmark: Bookmark) -> None:
        bookmark.complete()
        if bookmark.context is not None:
            identity = _encode_sorted(bookmark.context)
            self._open.pop(identity, None)
            self._keep(identity, _encode(bookmark.entry()))

    def _keep(self, identity: bytes, entry: bytes) -> None:
        self._size += len(entry) - len(self._entries.get(identity, b""))
        self._entries[identity] = entry


def _without_progress(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in _OF_ONE_SYNC}


def _saved_value(key: ReplicationKey, saved: Mapping[str, Any]) -> Any:
    """Return the bookmark of an entry; None if it has none, or one of another replication key.

    A state whose only property is the replication key, `{"updated_at": …}`, is the form of many other
    sources.
    """
    if saved.get(REPLICATION_KEY, key.field) == key.field and saved.get(VALUE) is not None:
        return saved[VALUE]
    return saved.get(key.field) if VALUE not in saved else None


def _later(key: ReplicationKey, one: Any, other: Any) -> Any:
    """Return the later of two values, either of which may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return other if key.is_larger(other, one) else one
