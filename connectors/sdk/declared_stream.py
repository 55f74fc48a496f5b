"""What an author declares of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

from connectors.sdk.filters import DateLimits
from connectors.sdk.groups import StreamGroup
from connectors.sdk.items import Context, Record
from connectors.sdk.parent_fields import add_parent_fields
from connectors.sdk.state.bookmark import KEEP
from connectors.sdk.state.lengths import add_length
from connectors.sdk.state.replication_key import (
    DATE,
    DATE_TIME,
    NUMBER,
    ReplicationKey,
    find_declared_key,
)
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, StreamId

_DAY = timedelta(days=1)


class DeclaredStream:
    """What an author declares of a stream: its attributes, on the class or on the instance, and how its
    records are read.

    Attributes:
        name: the name of the stream.
        json_schema: the JSON schema of a record.
        namespace: the namespace of the stream, if it has one.
        primary_key: the names of the key's fields, or their paths; empty if there is no key.
        replication_key: the field by which the stream is read incrementally; None for a stream that can only
            be read in full.
        is_sorted: whether `records` yields the records of a partition in the order of the replication key. A
            sync that is interrupted then goes on from its last state. A record out of order is an error.
        state_partitioning_keys: the names in a context that tell apart the bookmarks; None for all. With
            fewer names than the context has, partitions share a bookmark, and the stream is not sorted.
        is_descending: whether `records` yields the newest records first. The read of a partition then ends at
            the first record before the start; its bookmark moves only after that.
        start_date: the value of the replication key from which to read if there is no later bookmark.
        end_date: the value of the replication key before which to read, this value excluded.
        lookback: how far before the bookmark a sync begins: an ISO 8601 duration, or a number for a key of
            numbers. Records of that range come again, so the destination needs a primary key.
        step: the length of the intervals in which a partition is read, as `lookback`: `records_between` is
            called for each of them, and its end becomes the bookmark. None to read it at once.
        bad_replication_key: what becomes of a record whose value of the replication key cannot be compared
            with others, such as an empty text among date-times: KEEP, it is read and moves no bookmark; SKIP,
            it is left out; both are counted in a warning; ERROR, it ends the read of the stream.
        missing_keys: what becomes of a record that lacks a value of the primary key or of the replication
            key: KEEP, SKIP or ERROR; the number of those kept or skipped is in a warning. None: a record
            without the field of the replication key is an error, and a null there moves no bookmark.
        concurrency: the number of partitions that are read at the same time, each by a thread. The records
            of a partition keep their order; those of several are interleaved.
        is_resumable: whether an interrupted full refresh may resume from its states.
        is_file_based: whether records are a `Document`, with the file that they describe.
        parent: the stream whose records define the partitions of this one: `get_child_context` of the parent
            returns the context for each of its records.
        only_changed_parents: whether an incremental read has only the partitions whose parent's record is new
            or has changed since the last sync. The parent needs a replication key.
        parent_fields: the fields of the parent's record that the records get: their names by those of the
            parent.
        group: the streams with which this one shares a state, if it is read incrementally.
        why_full_refresh: the end of the error of a stream that is only read in full, though others of its
            source are read incrementally, such as ": it is a view".
        filters_records: whether the SDK leaves out the records before `start`, because `records` yields all.
        STATE_MSG_FREQUENCY: the number of records between two states.
        cursor_field, source_defined_cursor, supported_sync_modes: as the catalog declares them. They follow
            from the replication key; a stream that overrides `read` may set them.
    """

    name: str
    json_schema: Mapping[str, Any]
    namespace: str | None = None
    primary_key: Sequence[str | Sequence[str]] = ()
    replication_key: str | None = None
    is_sorted: bool = False
    is_descending: bool = False
    state_partitioning_keys: Sequence[str] | None = None
    start_date: str | None = None
    end_date: Any = None
    lookback: Any = None
    step: Any = None
    bad_replication_key: str = KEEP
    missing_keys: str | None = None
    concurrency: int = 1
    is_resumable: bool = False
    is_file_based: bool = False
    parent: DeclaredStream | None = None
    only_changed_parents: bool = False
    parent_fields: Mapping[str, str] = MappingProxyType({})
    group: StreamGroup | None = None
    why_full_refresh: str = ""
    filters_records: bool = False
    cursor_field: Sequence[str] = ()
    source_defined_cursor: bool = False
    supported_sync_modes: Sequence[str] = (FULL_REFRESH,)

    STATE_MSG_FREQUENCY: int = 10_000
    _present: str | None = None
    """The time at which the present read began, as a value of the replication key; None if it is no time."""
    _first_date: str | None = None
    """The `start_date` of the config, for a replication key that is not declared as a date or date-time."""
    _last_date: str | None = None
    """The `end_date` of the config, for such a key."""

    def partitions(self) -> Iterable[Context] | None:
        """Return the contexts of the stream's partitions; None if it has no partitions."""
        return None

    def records(self, context: Context | None, start: Any) -> Iterable[Record]:
        """Return the records of one partition.

        `msgspec.json` encodes the values of records. It encodes NaN and the infinities as null, so a stream
        that can have them must represent them in another way.

        Args:
            context: the partition; None for a stream without partitions.
            start: the value of the replication key from which to read, this value included; None to read from
                the beginning. It is the text or number of the bookmark, or the start date.

        Raises:
            EltError: the read fails; its class names who must act. The other streams are still read.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `records` or `read`")

    def records_between(self, context: Context | None, start: Any, end: Any) -> Iterable[Record]:
        """Return the records of one partition from a value of the replication key on and before another one.

        It is called in place of `records` where a read has an end: for each interval of a stream with a
        `step`, and for a sync with an `end_date`. Override it for a source that can be asked for an
        interval; what it returns beyond `start` and `end` is left out, so an API may count the end in.

        Args:
            context: the partition; None for a stream without partitions.
            start: as for `records`; None for the beginning.
            end: the value before which to read.

        Raises:
            EltError: the read fails; its class names who must act. The other streams are still read.
        """
        del end
        return self.records(context, start)

    def separate_partitions(self) -> Iterable[Context]:
        """Return the contexts of the partitions that can be read alone.

        Raises:
            ConfigError: no partition can be read alone.
        """
        contexts = self.partitions()
        if contexts is None or self.state_partitioning_keys is not None:
            why = "it has none" if contexts is None else "several of them share a bookmark"
            raise ConfigError(
                f"single partitions of stream {str(self.id)!r} cannot be read: {why}",
                guidance="read the stream as a whole: leave out `partitions`",
            )
        return contexts

    def get_child_context(self, record: Record, context: Context | None) -> Context | None:
        """Return the context of the child streams' partition for a record of this stream; None if there is no
        such partition.

        Args:
            record: a record of this stream.
            context: the partition of this stream that the record is from.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has child streams, so it must define `get_child_context`"
        )

    def count_records(self, start: Any) -> int | None:
        """Return the number of records that `records` will yield without a context, for the progress of a
        sync; None if it is unknown. It must be cheap."""
        del start
        return None

    def get_replication_key_signpost(self, context: Context | None) -> Any:
        """Return the largest value that a bookmark may get in the sync that begins now; None for no limit.

        Spec: "Replication Key Signposts". The default is the present time for a date or date-time, unless the
        stream is sorted. Override it for other keys, such as the number of the newest event.
        """
        del context
        return None if self.is_sorted and self.state_partitioning_keys is None else self._present

    def get_end_value(self, context: Context | None) -> Any:
        """Return the value of the replication key before which a sync reads a partition; None for no end.

        The default is the `end_date`, but not after the present time if the stream has a `step`; a date has
        the whole present day. Override it for a key of numbers that is read by steps: the number after that
        of the newest event. What is before it must be complete: it is not read again.
        """
        del context
        if self.step is None or self._present is None:
            return self.end_date
        key = self._require_key()
        end = add_length(self._present, _DAY) if key.kind == DATE else self._present
        return self.end_date if key.is_before(self.end_date, end) else end

    def source_identity(self) -> str | None:
        """Return the identity of the source, such as the system identifier and the timeline of a database;
        None if it has none.

        It is part of the state. A read from the state of another source is an error.
        """
        return None

    def log_position(self) -> Any:
        """Return the value of the replication key up to which the source's log goes now; None if it has none.

        A read from a state that is after it is an error: the source is older than the state. So this must be
        the end of a log that only grows, and not the greatest value of the records, which may be deleted.
        """
        return None

    def load_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state of an earlier version of this source in the present form.

        Spec: "Backwards Compatibility".
        """
        return state

    def begin_at(self, date: str) -> None:
        """Let the stream be read from the `start_date` of a config on, unless it has a start itself.

        `records` gets the date as its start if the replication key is declared as a date or date-time. Of
        another key, the values tell: the records whose value is a time before the date are left out.
        """
        key = self._key()
        if key is None or self.start_date is not None:
            return
        if key.kind in (DATE, DATE_TIME):
            self.start_date = date
        else:
            self._first_date = date

    def end_at(self, date: str) -> None:
        """Let the stream be read up to the `end_date` of a config, as `begin_at` does with its start."""
        key = self._key()
        if key is None or self.end_date is not None:
            return
        if key.kind in (DATE, DATE_TIME):
            self.end_date = date
        else:
            self._last_date = date

    def begin_read(self) -> ReplicationKey | None:
        """Take notice that a read begins now, and return the replication key of its records.

        Raises:
            SystemFailure: the stream declares what contradicts itself.
        """
        if self.is_sorted and self.is_descending:
            raise SystemFailure(
                f"stream {str(self.id)!r} is declared as sorted and as descending",
                guidance="set `is_sorted` for the oldest records first, `is_descending` for the newest first",
            )
        key = self._key()
        self._present = None if key is None or key.kind == NUMBER else _present_time(key)
        return key

    def date_limits(self) -> DateLimits | None:
        """Return the dates of the config for a key that is not declared as a time; None if there are none."""
        key = self._key()
        if key is None or (self._first_date is None and self._last_date is None):
            return None
        return DateLimits(key, self._first_date, self._last_date)

    def has_end(self) -> bool:
        """Return whether a read may end before the newest record."""
        is_default = type(self).get_end_value is DeclaredStream.get_end_value
        return self.end_date is not None or not is_default

    def ends_by_page(self) -> bool:
        """Return whether `records` of a descending stream ends itself after the page with the start."""
        return False

    def may_have_children(self) -> bool:
        """Return whether the stream has contexts for child streams."""
        return type(self).get_child_context is not DeclaredStream.get_child_context

    def make_schema(self) -> Mapping[str, Any]:
        """Return the JSON schema of the records, with the fields of the parent.

        Raises:
            SystemFailure: `parent_fields` cannot be used.
        """
        if not self.parent_fields:
            return self.json_schema
        parent = None if self.parent is None else self.parent.make_schema()
        return add_parent_fields(self.name, self.json_schema, parent, self.parent_fields)

    def key_paths(self) -> list[list[str]]:
        """Return the paths of the fields of the primary key."""
        return [[part] if isinstance(part, str) else list(part) for part in self.primary_key]

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    def _key(self) -> ReplicationKey | None:
        return find_declared_key(self.replication_key, self.json_schema)

    def _require_key(self) -> ReplicationKey:
        key = self._key()
        assert key is not None
        return key


def _present_time(key: ReplicationKey) -> str:
    """Return the present time as a value of a key."""
    current = datetime.now(timezone.utc)
    if key.kind == DATE:
        return current.date().isoformat()
    return current.isoformat(timespec="microseconds").replace("+00:00", "Z")
