"""What an author declares of a stream, and of its parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, NamedTuple

from connectors.sdk.items import Context, Record, Window
from connectors.sdk.reports import ESTIMATES, STREAM_WARNINGS
from connectors.sdk.state.bookmark import KEEP
from connectors.sdk.state.parents import ChangedParents, ParentContext, ParentRow
from connectors.sdk.state.replication_key import (
    DATE,
    DATE_TIME,
    NUMBER,
    ReplicationKey,
    find_declared_key,
)
from connectors.sdk.times import add_length
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import StreamId

ASCENDING, DESCENDING = "ascending", "descending"
_DAY = timedelta(days=1)


class ConfigDates(NamedTuple):
    """The dates of the config that limit a stream whose replication key is not declared as a time."""

    first: str | None = None
    end: str | None = None


class DeclaredStream:
    """What an author declares of a stream: its attributes, on the class or on the instance, and how its
    records are read."""

    name: str
    """The name of the stream."""
    json_schema: Mapping[str, Any]
    """The JSON schema of a record."""
    namespace: str | None = None
    """The namespace of the stream, if it has one."""
    primary_key: Sequence[str | Sequence[str]] = ()
    """The names of the key's fields, or their paths; empty if there is no key."""
    replication_key: str | None = None
    """The field by which the stream is read incrementally; None for a stream that is only read in full."""
    order: str | None = None
    """The order of the replication key in which `records` yields a partition. "ascending": a sync that is
    interrupted goes on from its last state, and a record out of order is an error. "descending", the newest
    first: the read of a partition ends at the first record before the start, and its bookmark moves only
    after that. None for no order."""
    start_date: str | None = None
    """The value of the replication key from which to read if there is no later bookmark."""
    end_date: Any = None
    """The value of the replication key before which to read, this value excluded."""
    lookback: Any = None
    """How far before the bookmark a sync begins: an ISO 8601 duration, or a number for a key of numbers.
    Records of that range come again, so the destination needs a primary key."""
    step: Any = None
    """The length of the intervals in which a partition is read, as `lookback`: `records` is called for each
    of them, and its end becomes the bookmark. None to read it at once."""
    parent: Parent | None = None
    """The stream whose records define the partitions of this one."""
    concurrency: int = 1
    """The number of partitions that are read at the same time, each by a thread. The records of a partition
    keep their order; those of several are interleaved."""
    bad_replication_key: str = KEEP
    """What becomes of a record whose value of the replication key cannot be compared with others, such as an
    empty text among date-times: "keep", it is read and moves no bookmark; "skip", it is left out; both are
    counted in a warning; "error", it ends the read of the stream."""
    missing_keys: str | None = None
    """What becomes of a record that lacks a value of the primary key or of the replication key: "keep",
    "skip" or "error"; the number of those kept or skipped is in a warning. None: a record without the field
    of the replication key is an error, and a null there moves no bookmark."""
    state_partitioning_keys: Sequence[str] | None = None
    """The names in a context that tell apart the bookmarks; None for all. With fewer names than the context
    has, partitions share a bookmark, and the stream is not in order."""
    is_resumable: bool = False
    """Whether an interrupted full refresh may resume from its states."""
    is_file_based: bool = False
    """Whether records are a `Document`, with the file that they describe."""
    STATE_MSG_FREQUENCY: int = 10_000
    """The number of records between two states."""

    config_dates: ConfigDates = ConfigDates()
    changed_parents: ChangedParents | None = None
    """The records of the parent whose partitions the present read has; None for all."""
    _present: str | None = None
    """The time at which the present read began, as a value of the replication key; None if it is no time."""

    def partitions(self) -> Iterable[Context] | None:
        """Return the contexts of the stream's partitions; None if it has no partitions.

        Each partition is read separately, with a bookmark of its own.
        """
        return None

    def records(self, window: Window) -> Iterable[Record]:
        """Return the records of one partition, in a range of the replication key.

        `msgspec.json` encodes the values of records. It encodes NaN and the infinities as null, so a stream
        that can have them must represent them in another way.

        Args:
            window: from where to where to read, and which partition.

        Raises:
            EltError: the read fails; its class names who must act. The other streams are still read.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `records` or `read`")

    def warn(self, text: str) -> None:
        """Log what the user should know about this read of the stream, at level WARN."""
        STREAM_WARNINGS.send(self.id, text)

    def estimate(self, rows: int) -> None:
        """Tell how many records this read will yield, for the progress of the sync."""
        ESTIMATES.send(self.id, rows)

    def max_bookmark(self, partition: Context) -> Any:
        """Return the largest value that a bookmark may get in the sync that begins now; None for no limit.

        Spec: "Replication Key Signposts". The default is the present time for a date or date-time, unless the
        stream is in ascending order. Override it for other keys, such as the number of the newest event.
        """
        del partition
        is_sorted = self.order == ASCENDING and self.state_partitioning_keys is None
        return None if is_sorted else self._present

    def end_value(self, partition: Context) -> Any:
        """Return the value of the replication key before which a sync reads a partition; None for no end.

        The default is the `end_date`, but not after the present time if the stream has a `step`; a date has
        the whole present day. Override it for a key of numbers that is read by steps: the number after that
        of the newest event. What is before it must be complete: it is not read again.
        """
        del partition
        key = find_key(self)
        if self.step is None or self._present is None or key is None:
            return self.end_date
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

    def parent_fields(self) -> frozenset[str]:
        """Return the fields of the parent's record that a read of this stream needs."""
        if self.parent is None:
            return frozenset()
        return frozenset({*self.parent.fields, *self.parent.partition_names()})

    def begin_read(self) -> ReplicationKey | None:
        """Take notice that a read begins now, and return the replication key of its records.

        Raises:
            SystemFailure: the stream declares an order that there is not.
        """
        if self.order not in (None, ASCENDING, DESCENDING):
            raise SystemFailure(
                f"`order` of stream {str(self.id)!r} is {self.order!r}",
                guidance=f'write "{ASCENDING}" for the oldest records first, "{DESCENDING}" for the newest',
            )
        key = find_key(self)
        self._present = None if key is None or key.kind == NUMBER else _present_time(key)
        return key

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)


@dataclass(frozen=True)
class Parent:
    """The stream whose records define the partitions of another one: there is one for each of its records.

    The values of the parent's primary key identify a partition, with those of its own partition. In the
    state, each has its name in the child's records; or that of the parent and its own, as "stores.id".
    """

    stream: Any
    """The parent, or its class: then it is the stream of this class that `Source.streams` returns."""
    fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The fields of the parent's record that the child's records get: the names there by those in the parent.
    They are in the catalog with the schema of the parent."""
    only_changed: bool = False
    """Whether an incremental read has only the partitions whose parent's record is new or has changed since
    the last sync. The parent needs a replication key."""

    def partition_names(self) -> dict[str, str]:
        """Return the names of the values in a context by the key's fields of the parent.

        Raises:
            SystemFailure: the parent has no primary key.
        """
        keys = [".".join(path) for path in key_paths(self.stream)]
        if not keys:
            raise SystemFailure(
                f"stream {self.stream.name!r} has child streams, and no primary key that tells them apart",
                guidance="set its `primary_key`",
            )
        return {key: self.fields.get(key, f"{self.stream.name}.{key}") for key in keys}

    def make_context(self, row: ParentRow) -> ParentContext:
        """Return the context of the partition for a record of the parent.

        Raises:
            SystemFailure: the record lacks a value of its key.
        """
        context = dict(row.partition or {})
        for key, name in self.partition_names().items():
            if key in context:
                continue  # it identifies the partition of the parent
            if (value := row.values.get(key)) is None:
                raise SystemFailure(
                    f"a record of the parent stream {self.stream.name!r} has no value of its key {key!r}",
                    guidance="set another `primary_key` of the parent, or leave out such records there",
                )
            context[name] = value
        return ParentContext(context, row.values)

    def values(self, context: Context) -> Record:
        """Return the values of the parent's record that a context has."""
        named = {key: context[n] for key, n in self.partition_names().items() if n in context}
        return {**named, **(context.parent if isinstance(context, ParentContext) else {})}


def bind_parent(stream: DeclaredStream, streams: Iterable[DeclaredStream]) -> None:
    """Let a stream that names the class of its parent have the stream of that class.

    Raises:
        SystemFailure: there is none, or there are several.
    """
    parent = stream.parent
    if parent is None or not isinstance(parent.stream, type):
        return
    kind = parent.stream
    candidates = [candidate for candidate in streams if type(candidate) is kind]
    if len(candidates) != 1:
        raise SystemFailure(
            f"the parent of stream {str(stream.id)!r} is the stream of class {kind.__name__}, and the source "
            f"has {len(candidates)} of them",
            guidance="let `streams` return one stream of this class; or set `parent` of the stream itself, "
            "to `Parent(…)` with that stream",
        )
    stream.parent = replace(parent, stream=candidates[0])


def limit_dates(stream: DeclaredStream, first: str | None, end: str | None) -> None:
    """Let a stream be read from and before the dates of a config, unless it has dates itself.

    They limit its range if the replication key is declared as a date or date-time. Of another key, the values
    tell: records whose value is a time outside of the dates are left out.
    """
    if stream.replication_key is None or (first is None and end is None):
        return  # the schema is not asked for: a server may have to send it
    key = find_key(stream)
    assert key is not None
    first = first if stream.start_date is None else None
    end = end if stream.end_date is None else None
    if key.kind in (DATE, DATE_TIME):
        stream.start_date, stream.end_date = first or stream.start_date, end or stream.end_date
    else:
        stream.config_dates = ConfigDates(first, end)


def find_key(stream: DeclaredStream) -> ReplicationKey | None:
    """Return the replication key of a stream; None if it has none."""
    return find_declared_key(stream.replication_key, stream.json_schema)


def key_paths(stream: DeclaredStream) -> list[list[str]]:
    """Return the paths of the fields of a stream's primary key."""
    return [[part] if isinstance(part, str) else list(part) for part in stream.primary_key]


def make_schema(stream: DeclaredStream) -> Mapping[str, Any]:
    """Return the JSON schema of a stream's records, with the fields of its parent.

    Raises:
        SystemFailure: it lacks the replication key, or the fields of the parent cannot be used.
    """
    schema, parent = stream.json_schema, stream.parent
    own, key = schema.get("properties") or {}, stream.replication_key
    inherited = () if parent is None else parent.fields.values()
    if own and key is not None and key not in own and key not in inherited:
        raise SystemFailure(
            f"the schema of stream {str(stream.id)!r} has no field {key!r}, which is its replication key; it "
            f"has {', '.join(map(repr, [*own, *inherited]))}",
            guidance="set `replication_key` to one of these, or add the field to `json_schema`",
        )
    if parent is None or not parent.fields:
        return schema
    declared = make_schema(parent.stream).get("properties") or {}
    for inner, name in parent.fields.items():
        if declared and inner not in declared:
            raise _unusable_fields(stream, f"the parent has no field {inner!r}", "correct the name")
        is_own = name in own and inner not in parent.partition_names()
        if is_own or list(parent.fields.values()).count(name) > 1:
            reason = f"the name {name!r} is that of another field"
            raise _unusable_fields(stream, reason, "choose another name")
    added = {name: declared.get(inner, {}) for inner, name in parent.fields.items()}
    return {**schema, "properties": {**own, **added, **own}}


def _unusable_fields(stream: DeclaredStream, reason: str, guidance: str) -> SystemFailure:
    return SystemFailure(
        f"`Parent.fields` of stream {stream.name!r} cannot be used: {reason}", guidance=guidance
    )


def _present_time(key: ReplicationKey) -> str:
    """Return the present time as a value of a key."""
    current = datetime.now(timezone.utc)
    if key.kind == DATE:
        return current.date().isoformat()
    return current.isoformat(timespec="microseconds").replace("+00:00", "Z")
