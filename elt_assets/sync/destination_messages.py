"""What a relay changes in messages to and from another destination, so that nothing is lost there.

Used by `relay`; `pipeline.connection_read` makes the names.

- `replace_bad_texts` makes records that every destination reads.
- `DestinationNames` gives streams the names that they have there.
- `SentStates` finds the state that was sent for one that comes back.

Spec: Airbyte Protocol, State & the Whole Sync: the destination emits a state when all records before it are
committed; AirbyteRecordMessageMetaChange; the table in docs/connectors.md.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import ConfiguredStream, StreamDescriptor, StreamId
from elt_assets.protocol.messages import Message, Record, State, StateStats
from elt_assets.protocol.wire import as_read, read, repair
from elt_assets.sync.record_filter import canonical_text

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_changes = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode


def replace_bad_texts(record: Record, key: Collection[str]) -> list[str]:
    """Replace bad texts outside of a record's key, in place; return the names of the changed fields.

    Some destinations, among them those made with Airbyte's Python CDK, skip a line with half of a surrogate
    pair or with bytes that are not UTF-8: the record would be lost. So U+FFFD replaces what is not a
    character, and the record's `meta.changes` lists the field. Fields of the key stay as received: two keys
    that differ must not become one.

    Raises:
        msgspec.MsgspecError: the record is not a JSON object.
    """
    if record.meta is not None:
        record.meta = Raw(as_read(bytes(record.meta)))
    fields, changed = read(_decode_fields, record.data), []
    for name, value in fields.items():
        readable = as_read(bytes(value))
        if name not in key and readable != repair(bytes(value)):
            fields[name] = Raw(readable)
            changed.append(name)
    if changed:
        record.data = Raw(_encode(fields))
        record.meta = _record_changes(record.meta, changed)
    return changed


def _record_changes(meta: Raw | None, names: Collection[str]) -> Raw:
    """Return a record's `meta` with a change of each field."""
    try:
        own = _decode_fields(meta or b"{}")
        before = _decode_changes(own.get("changes", b"[]"))
    except msgspec.MsgspecError:
        own, before = {}, []
    reason = {"change": "TRUNCATED", "reason": "PLATFORM_SERIALIZATION_ERROR"}
    changes = [*before, *({"field": name, **reason} for name in names)]
    return Raw(_encode({**own, "changes": Raw(_encode(changes))}))


_Rename = Callable[[StreamDescriptor], StreamDescriptor]


class DestinationNames:
    """The names of streams at a destination.

    The source, the states in our tables and the events have the names of the catalog. Messages get the names
    of the destination when they are sent, and the catalog's names again when they come back.

    Args:
        names: the name of each stream whose name there is another one.
    """

    def __init__(self, names: Mapping[StreamId, str]):
        self._names = names
        self._sources = {
            StreamId(name, stream.namespace): stream.name for stream, name in names.items()
        }

    def rename_stream(self, stream: ConfiguredStream) -> ConfiguredStream:
        """Return a configured stream as the destination gets it."""
        if stream.id not in self._names:
            return stream
        renamed = copy.copy(stream)
        renamed.stream = copy.copy(stream.stream)
        renamed.stream.name = self._names[stream.id]
        return renamed

    def to_destination(self, message: Message) -> Message:
        """Return a message with the destination's names; the state of a message stays as it is."""
        if not self._names:
            return message
        if message.record is not None:
            stream = StreamId(message.record.stream, message.record.namespace)
            message.record.stream = self._names.get(stream, stream.name)
        return _rename_descriptors(message, lambda s: _replace_name(s, self._names.get(s.id)))

    def from_destination(self, message: Message) -> Message:
        """Return a message of the destination with the names of the catalog."""
        return _rename_descriptors(message, self._to_source) if self._names else message

    def _to_source(self, stream: StreamDescriptor) -> StreamDescriptor:
        name = self._sources.get(stream.id)
        if name is None:  # a destination may add the namespace that it writes to
            names = {old for new, old in self._sources.items() if new.name == stream.name}
            name = names.pop() if len(names) == 1 else None
        return _replace_name(stream, name)


def _replace_name(stream: StreamDescriptor, name: str | None) -> StreamDescriptor:
    renamed = copy.copy(stream)
    renamed.name = stream.name if name is None else name
    return renamed


def _rename_descriptors(message: Message, rename: _Rename) -> Message:
    """Return a message in which the streams of its state, status or error have other names."""
    renamed = copy.copy(message)
    if message.state is not None:
        renamed.state = _rename_state(message.state, rename)
    elif message.trace is not None:
        renamed.trace = trace = copy.copy(message.trace)
        if trace.stream_status is not None:
            trace.stream_status = copy.copy(trace.stream_status)
            trace.stream_status.stream_descriptor = rename(trace.stream_status.stream_descriptor)
        stream = None if trace.error is None else trace.error.stream_descriptor
        if trace.error is not None and stream is not None:
            trace.error = copy.copy(trace.error)
            trace.error.stream_descriptor = rename(stream)
    return renamed


def _rename_state(state: State, rename: _Rename) -> State:
    renamed = copy.copy(state)
    if state.stream is not None:
        renamed.stream = copy.copy(state.stream)
        renamed.stream.stream_descriptor = rename(state.stream.stream_descriptor)
    if state.global_ is not None:
        renamed.global_ = copy.copy(state.global_)
        renamed.global_.stream_states = [copy.copy(s) for s in state.global_.stream_states]
        for entry in renamed.global_.stream_states:
            entry.stream_descriptor = rename(entry.stream_descriptor)
    return renamed


MAX_SENT = 1_000_000
"""Maximum number of states of a stream that a destination may leave unacknowledged."""
MAX_RETURNED = 10_000
"""Number of states, the last ones of each stream, that are recognized when they come back once more."""
MAX_FORMER = 100
"""Number of states, the last ones of each stream, that are recognized then also with added properties."""

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_REPLACED = re.compile("[?\ufffd]+")


@dataclass
class SentState:
    """A state that was sent to the destination."""

    state: State
    counts: Mapping[StreamId, int]  # records of each stream before it
    number: int = 0  # increases with each state of the sync
    digest: bytes = b""


@dataclass
class _Queue:
    """The states of one stream, or those that streams share."""

    waiting: deque[SentState] = field(default_factory=deque)  # not sent back yet, in the order sent
    last: SentState | None = None  # the last one that was sent back
    last_count: int | None = None  # the number of records that came back with it, if any
    # digests of the last ones that were sent back, or are covered by one that was, by the digests
    # of what came back
    returned: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)
    # the last states of `returned`
    former: deque[SentState] = field(default_factory=lambda: deque(maxlen=MAX_FORMER))

    def records_before(self, sent: SentState) -> int:
        """Return the number of records between the last state that was sent back and a waiting one."""
        counted = 0 if self.last is None else sum(self.last.counts.values())
        return sum(sent.counts.values()) - counted

    def like(self, digest: bytes, echo: State) -> Iterator[SentState]:
        """Yield the waiting states with the meaning of one that came back, the oldest first; if none ever had
        it, those whose contents it has among others."""
        original = self.returned.get(digest, digest)
        first = next((sent for sent in self._list_waiting() if sent.digest == original), None)
        if first is not None or digest in self.returned:
            yield from (sent for sent in self._list_waiting() if sent.digest == original)
            return
        yield from _list_included(self._list_waiting(), echo)

    def has_returned(self, digest: bytes, echo: State) -> bool:
        """Return whether a state came back before, or is covered by one that did.

        Without counts, the repetition of one state can have acknowledged a later one with the same meaning,
        and the states between the two, which come back after it.
        """
        return digest in self.returned or any(_list_included(self.former, echo))

    def acknowledge(self, acknowledged: SentState, digest: bytes, count: int | None) -> None:
        """Remove a state and all before it: it covers their records too.

        Args:
            digest: of the state as it came back.
            count: the number of records that came back with it.
        """
        sent = None
        while sent is not acknowledged:
            sent = self.waiting.popleft()
            self.former.append(sent)
            self._remember(sent.digest, sent.digest)
        self._remember(digest, acknowledged.digest)
        while len(self.returned) > MAX_RETURNED:
            self.returned.popitem(last=False)
        self.last, self.last_count = acknowledged, count

    def _remember(self, digest: bytes, sent: bytes) -> None:
        self.returned[digest] = sent
        self.returned.move_to_end(digest)

    def _list_waiting(self) -> Iterator[SentState]:
        # By number: another thread appends meanwhile.
        return (self.waiting[number] for number in range(len(self.waiting)))


class SentStates:
    """The unacknowledged states of each stream, in the order sent. Shared states are kept under None.

    A destination reads each state and writes it again, so what comes back has the meaning of what was sent,
    but often not its text: nulls are left out, properties have another order, numbers another form,
    properties may be added, and what is no text in a text becomes U+FFFD or `?`. A state is therefore found
    by its meaning. Several states may have the same meaning; then the count of records tells which of them
    came back, and without a count it is the oldest, so that nothing is acknowledged too early.
    """

    def __init__(self) -> None:
        self._queues: dict[StreamId | None, _Queue] = {}
        self._numbers = itertools.count(1)

    def add(self, stream: StreamId | None, sent: SentState) -> None:
        """Keep a state that is sent to the destination.

        Raises:
            SystemFailure: more than `MAX_SENT` states of the stream are unacknowledged.
        """
        sent.number, sent.digest = next(self._numbers), _digest(sent.state)
        waiting = self._queues.setdefault(stream, _Queue()).waiting
        waiting.append(sent)
        if len(waiting) > MAX_SENT:
            raise SystemFailure(
                f"the destination has not acknowledged any of {MAX_SENT:,} states",
                guidance="it must send states back as it commits the records before them",
            )

    def take(self, stream: StreamId | None, echo: State) -> SentState | None:
        """Remove and return the state that came back; earlier states of its stream are removed with it.

        Returns:
            None if this state came back before, or is older than one that did.

        Raises:
            SystemFailure: the destination was not sent this state; or it reports another number of committed
                and rejected records than it was sent.
        """
        queue, digest, count = self._queues.get(stream, _Queue()), _digest(echo), _count(echo)
        first: SentState | None = None
        for sent in queue.like(digest, echo):
            first = first or sent
            if count is None or count == queue.records_before(sent):
                queue.acknowledge(sent, digest, count)
                return sent
        if first is None and queue.has_returned(digest, echo):
            return None
        if digest in queue.returned and count in (0, queue.last_count):
            return None
        if first is None:
            raise SystemFailure(
                "the destination sent back a state that it did not receive",
                guidance="this is a defect of the destination; the next run resumes from the last state that "
                "it acknowledged",
            )
        raise SystemFailure(
            f"the destination reports {count} committed or rejected records before its state, but was sent "
            f"{queue.records_before(first)}; the state is not acknowledged",
            guidance="sync again; if the error comes back, report it to the maintainer of the destination",
        )

    def list_unacknowledged(self) -> list[StreamId | None]:
        """Return the streams whose last state differs from the last acknowledged one."""
        return [
            stream
            for stream, queue in self._queues.items()
            if queue.waiting
            and (queue.last is None or queue.waiting[-1].digest != queue.last.digest)
        ]


def _count(echo: State) -> int | None:
    """Return how many records the destination reports before a state; None if it reports no number.

    Spec: AirbyteStateStats: source = committed + rejected.
    """
    stats = echo.destinationStats or StateStats()
    if stats.recordCount is None:
        return None
    return int(stats.recordCount) + int(stats.rejectedRecordCount or 0)


def _digest(state: State) -> bytes:
    """Return a digest of the meaning of a state: the same one however a destination writes it."""
    return hashlib.sha256(msgspec.json.encode(_contents(state), order="sorted")).digest()


def _contents(state: State) -> Any:
    """Return the contents of a state, without nulls. The streams of a GLOBAL state have no order."""
    if state.stream is not None:
        return _compute_meaning(state.stream.stream_state)
    if state.global_ is None:
        return _compute_meaning(state.data)
    streams = {
        repr(entry.stream_descriptor.id): _compute_meaning(entry.stream_state)
        for entry in state.global_.stream_states
    }
    return {"shared": _compute_meaning(state.global_.shared_state), "streams": streams}


def _compute_meaning(blob: Raw | None) -> Any:
    try:
        return _normalize(None if blob is None else read(_decode, blob))
    except (msgspec.MsgspecError, RecursionError):  # for example an integer of very many digits
        return bytes(blob or b"").decode(errors="replace")


def _normalize(value: Any) -> Any:
    """Return a value without the null properties of its objects; equal numbers have one form, and so has what
    stands for characters that are none."""
    if isinstance(value, str):
        return _REPLACED.sub("?", value)
    if isinstance(value, dict):
        fields = value.items()
        return {_normalize(key): _normalize(inner) for key, inner in fields if inner is not None}
    if isinstance(value, list):
        return [_normalize(inner) for inner in value]
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return canonical_text(Raw(str(value).encode()))
    return value


def _list_included(states: Iterable[SentState], echo: State) -> Iterator[SentState]:
    """Yield the states whose contents one that came back has, among others."""
    contents = _contents(echo)
    for sent in states:
        part = _contents(sent.state)
        if part and _includes(contents, part):
            yield sent


def _includes(value: Any, part: Any) -> bool:
    """Return whether a value has everything that `part` has; numbers may have lost digits."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(
            key in value and _includes(value[key], inner) for key, inner in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(value, list) and len(value) == len(part) and all(map(_includes, value, part))
        )
    return bool(value == part) or _is_rounded(value, part)


def _is_rounded(value: Any, part: Any) -> bool:
    """Return whether two texts are numbers that are equal as doubles."""
    try:
        return isinstance(value, str) and float(value) == float(part)
    except (TypeError, ValueError):
        return False
