"""The base class of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec

from connectors.sdk.items import Context, Estimate, Item, Record, Records
from connectors.sdk.reading import (
    StartDate,
    find_declared_values,
    read_in_full,
    read_with_bookmarks,
    records_since,
)
from connectors.sdk.state.bookmark import KEEP, BookmarkRules
from connectors.sdk.state.parents import ContextCollector, share_contexts
from connectors.sdk.state.replication_key import DATE, DATE_TIME, NUMBER, ReplicationKey
from connectors.sdk.state.stream_state import StreamState
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import (
    FULL_REFRESH,
    INCREMENTAL,
    AirbyteStream,
    ConfiguredStream,
    StreamId,
)

MAX_SENT, MAX_SENT_IN_PARTITION = 1_000, 20
"""Maximum number of records that a bookmark has hashes of, so that they are not sent again. A hash takes
eleven bytes of the state, which has a bookmark for each partition."""


class Stream:
    """The base class of streams. Subclasses set the attributes, on the class or on the instance, and write
    `records`; the rest of a read (states, partitions, resuming) is done here.

    Spec: AirbyteStream; SDK Implementation Details - Stream State.

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
        start_date: the value of the replication key from which to read if there is no later bookmark.
        bad_replication_key: what becomes of a record whose value of the replication key cannot be compared
            with others, such as an empty text among date-times: KEEP, it is read and moves no bookmark; SKIP,
            it is left out; both are counted in a warning; ERROR, it ends the read of the stream.
        is_resumable: whether an interrupted full refresh may resume from its states.
        parent: the stream whose records define the partitions of this one: `get_child_context` of the parent
            returns the context for each of its records.
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
    state_partitioning_keys: Sequence[str] | None = None
    start_date: str | None = None
    bad_replication_key: str = KEEP
    is_resumable: bool = False
    parent: Stream | None = None
    filters_records: bool = False
    cursor_field: Sequence[str] = ()
    source_defined_cursor: bool = False
    supported_sync_modes: Sequence[str] = (FULL_REFRESH,)

    STATE_MSG_FREQUENCY: int = 10_000
    _default_signpost: str | None = None
    """The signpost of the present read, where a stream does not define one."""
    _first_date: str | None = None
    """The `start_date` of the config, for a replication key that is not declared as a date or date-time."""

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

    def partitions(self) -> Iterable[Context] | None:
        """Return the contexts of the stream's partitions; None if it has no partitions.

        Each partition is read separately, with a bookmark of its own. By default a child stream has a
        partition for each record of its parent, and any other stream has none.

        Spec: "Partitioned State": the parent's context is the default partition.
        """
        return None if self.parent is None else self.parent.child_contexts()

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

    def child_contexts(self) -> Iterator[Context]:
        """Yield the contexts of the child streams' partitions: one for each record of this stream, whatever
        its age, since the records of a child may be new also if their parent has not changed."""
        yield from share_contexts(self, self._read_child_contexts)

    def _read_child_contexts(self) -> Iterator[Context]:
        fields = self.json_schema.get("properties") or {}
        for record, context in read_in_full(self.records, self.partitions(), None, fields):
            child = self.get_child_context(record, context)
            if child is not None:
                yield child

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
        return self._default_signpost

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

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """Yield records, a `Checkpoint` wherever a later read can resume, and optionally an `Estimate`.

        Only a stream with states of its own form overrides this. `state` is the state of the last
        acknowledged checkpoint; None to read from the beginning. A full refresh is read from the beginning
        unless it resumes an interrupted one (`is_resumable`).

        Raises:
            EltError: the read fails; its class names who must act. The other streams are still read.
        """
        key = self._key()
        # Before the partitions are listed: a record of one that is new then may be older than now.
        self._default_signpost = self._present_time(key)
        contexts = self._contexts(configured)
        fields = self.json_schema.get("properties") or {}
        collector = self._context_collector(configured, fields)
        read = self.records if collector is None else collector.records(self.records)
        records = self._read_records(key, read)
        date = None if key is None or self._first_date is None else StartDate(key, self._first_date)
        if date is not None:
            records = date.records(records)
        if key is None or not (configured.sync_mode == INCREMENTAL or self.is_resumable):
            if contexts is None:
                yield from self._estimate(self.start_date)
            for record, _ in read_in_full(records, contexts, self.start_date, fields):
                yield record
            yield from self._finish(collector, date)
            return
        rules = BookmarkRules(
            is_sorted=self.is_sorted,
            start_date=self.start_date,
            named_by=[path[0] for path in self._key_paths()],
            on_bad_value=self.bad_replication_key,
            max_sent=MAX_SENT if contexts is None else MAX_SENT_IN_PARTITION,
        )
        progress = StreamState(
            key,
            {} if state is None else self.load_state(state),
            rules,
            partitioning_keys=self.state_partitioning_keys,
            signpost=self.get_replication_key_signpost,
            source=self.source_identity(),
            position=self.log_position(),
        )
        if contexts is None:
            yield from self._estimate(progress.begin(None).start)
        yield from read_with_bookmarks(
            records, contexts, progress, frequency=self.STATE_MSG_FREQUENCY, fields=fields
        )
        yield from self._finish(collector, date)

    @staticmethod
    def _finish(collector: ContextCollector | None, date: StartDate | None) -> Iterator[Item]:
        """Yield the warnings of a read that has all records."""
        if collector is not None:
            collector.finish()
        if date is not None:
            yield from date.warnings()

    def schema_to_check(self, configured: ConfiguredStream) -> Mapping[str, Any]:
        """Return the schema against which the first records of a read are checked."""
        del configured
        return self.json_schema

    def has_new_data(
        self, configured: ConfiguredStream, state: dict[str, Any] | None
    ) -> bool | None:
        """Return whether a read from this state would yield anything, without a read; None if unknown.

        It is called often (`probe`), so it must be cheap: a maximum, a count, an ETag.

        Raises:
            EltError: the source does not answer.
        """
        del configured, state
        return None

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

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    @property
    def sync_modes(self) -> Sequence[str]:
        """The modes in which the stream can be read."""
        has_key = self.replication_key is not None
        return (FULL_REFRESH, INCREMENTAL) if has_key else self.supported_sync_modes

    def describe(self) -> AirbyteStream:
        """Return the stream as it is in the catalog of `discover`."""
        has_key = self.replication_key is not None
        cursor = [self.replication_key] if self.replication_key else list(self.cursor_field)
        return AirbyteStream(
            name=self.name,
            namespace=self.namespace,
            json_schema=dict(self.json_schema),
            supported_sync_modes=list(self.sync_modes),
            source_defined_cursor=has_key or self.source_defined_cursor,
            default_cursor_field=cursor or None,
            source_defined_primary_key=self._key_paths() or None,
            is_resumable=self.is_resumable,
        )

    @property
    def _is_sorted(self) -> bool:
        return self.is_sorted and self.state_partitioning_keys is None

    def _present_time(self, key: ReplicationKey | None) -> str | None:
        """Return the present time as a value of the key; None if it does not limit this stream."""
        if key is None or key.kind == NUMBER or self._is_sorted:
            return None
        current = datetime.now(timezone.utc)
        if key.kind == DATE:
            return current.date().isoformat()
        return current.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _read_records(self, key: ReplicationKey | None, records: Records) -> Records:
        """Return the function that reads one partition from a start on."""
        return records_since(records, key) if self.filters_records and key else records

    def _context_collector(
        self, configured: ConfiguredStream, fields: Mapping[str, Any]
    ) -> ContextCollector | None:
        """Return what collects the contexts of child streams while this stream is read for itself."""
        has_children = type(self).get_child_context is not Stream.get_child_context
        if not has_children or named_partitions(configured) is not None:
            return None

        def context_of(record: Record, context: Context | None) -> Context | None:
            return self.get_child_context(
                {**find_declared_values(context, fields), **record}, context
            )

        return ContextCollector(self, context_of)

    def _estimate(self, start: Any) -> Iterator[Estimate]:
        rows = self.count_records(start)
        if rows is not None:
            yield Estimate(rows)

    def _key_paths(self) -> list[list[str]]:
        return [[part] if isinstance(part, str) else list(part) for part in self.primary_key]

    def _key(self) -> ReplicationKey | None:
        if self.replication_key is None:
            return None
        declared = (self.json_schema.get("properties") or {}).get(self.replication_key)
        return ReplicationKey(
            self.replication_key, declared if isinstance(declared, Mapping) else {}
        )

    def _contexts(self, configured: ConfiguredStream) -> Iterable[Context] | None:
        """Return the partitions to read: those that the configured stream names, or all.

        Raises:
            ConfigError: partitions are named that cannot be read alone.
        """
        named = named_partitions(configured)
        if named is None:
            return self.partitions()
        self.separate_partitions()
        return named


def named_partitions(configured: ConfiguredStream) -> list[Context] | None:
    """Return the partitions that the configured stream names, which are to be read alone; None for all.

    Raises:
        ConfigError: what it names is not a list of contexts.
    """
    partitions = configured.extra.get("partitions")
    try:
        return msgspec.json.decode(partitions or b"null", type=list[Context] | None)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"`partitions` of stream {str(configured.id)!r} is not a list of contexts: {error}",
            guidance='write a list of objects, as in [{"store": 1}]',
        ) from error
