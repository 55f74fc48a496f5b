"""Read of the configured streams of a source, one after another, in any protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from connectors.sdk.comparison import is_narrowed
from connectors.sdk.groups import (
    GroupCheckpoint,
    GroupState,
    StreamFailure,
    StreamGroup,
    StreamPart,
)
from connectors.sdk.items import (
    Checkpoint,
    Estimate,
    Item,
    Measure,
    Page,
    Record,
    Slice,
    Wait,
    Warn,
)
from connectors.sdk.reports import ESTIMATES, STREAM_WARNINGS, WAITS
from connectors.sdk.slices import SlicedStream, read_as_pages
from connectors.sdk.state.parents import share_parents
from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream, StreamId
from elt_assets.protocol.message_output import OutputClosedError

if TYPE_CHECKING:
    from connectors.sdk.schema_sample import SchemaSample

_SAMPLE = "connectors.sdk.schema_sample"
"""The module is imported with the first record: it checks by jsonschema, which takes a fifth of the start."""


class StreamOutput(ABC):
    """The messages about one stream, from its start to its end."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def record(self, record: Record) -> None: ...

    takes_slices = False
    """Whether the reader has tasks that read slices."""
    answers_barriers = False
    """Whether the reader says when it has committed what comes before a barrier."""

    def page(self, page: Page) -> None:
        """Send several records."""
        for record in page.records:
            self.record(record)

    def slice(self, part: Slice) -> None:
        """Send a slice, in place of its records."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Wait until the slices before it are read, and committed if a state covers them."""
        raise NotImplementedError

    @abstractmethod
    def state(self, state: dict[str, Any] | Raw, records: int) -> None:
        """Send a state; `records` is the number of the stream's records since its previous state."""

    def group_state(self, state: GroupState) -> None:
        """Send a state of this stream and of all others of its group."""
        raise NotImplementedError

    @abstractmethod
    def estimate(self, rows: int) -> None: ...

    @abstractmethod
    def measure(self, measure: Measure) -> None: ...

    @abstractmethod
    def warn(self, text: str) -> None: ...

    @abstractmethod
    def wait(self, seconds: float, reason: str) -> None:
        """Report that the stream waits; RATE_LIMITED is the reason that the protocol knows."""

    @abstractmethod
    def complete(self) -> None: ...

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Report the error that ended the read of the stream."""


Job = tuple[Stream, ConfiguredStream, "dict[str, Any] | None"]
"""A stream to read, how it is configured, and its state after the last read."""


def read_streams(
    jobs: Iterable[Job],
    output: Callable[[ConfiguredStream], StreamOutput],
    shared: dict[str, Any] | None = None,
    sharing: Mapping[StreamId, dict[str, Any]] = MappingProxyType({}),
) -> int:
    """Read streams, and return the number of those that failed: the others are still read.

    Parents are read before their child streams, which then need no read of the parent for themselves. Streams
    of a group are read together, after the others.

    Args:
        shared: the state that streams of a group share.
        sharing: the states of all streams that share it, also of those that are not read.

    Raises:
        OutputClosedError: the reader of the messages has closed the output.
    """
    alone: list[Job] = []
    groups: dict[StreamGroup, list[Job]] = {}
    for job in jobs:
        stream, configured, _ = job
        is_with_others = configured.sync_mode == INCREMENTAL and not is_narrowed(configured)
        if stream.group is not None and is_with_others:
            groups.setdefault(stream.group, []).append(job)
        else:
            alone.append(job)
    ordered = sorted(alone, key=lambda job: len(_ancestors(job[0])))
    streams = [job[0] for job in ordered]
    parents = [stream.parent for stream in _with_ancestors(streams) if stream.parent is not None]
    tracked = {parent.stream for parent in parents if parent.only_changed}
    with share_parents(_fields_of_parents(streams), tracked):
        failed = sum(not _read(job, output(job[1])) for job in ordered)
    return failed + sum(
        _read_group(group, members, output, _make_state(members, shared, sharing))
        for group, members in groups.items()
    )


def _make_state(
    jobs: Sequence[Job],
    shared: dict[str, Any] | None,
    sharing: Mapping[StreamId, dict[str, Any]],
) -> GroupState | None:
    """Return the state of a group, with the entries of streams that are not read: the source may keep
    something for them. None if there is none."""
    read = {configured.id: state for _, configured, state in jobs}
    others = {stream: state for stream, state in sharing.items() if stream not in read}
    own = {stream: state for stream, state in read.items() if state is not None}
    return None if shared is None and not own else GroupState(shared or {}, others | own)


def _read_group(
    group: StreamGroup,
    jobs: Sequence[Job],
    output: Callable[[ConfiguredStream], StreamOutput],
    state: GroupState | None,
) -> int:
    """Read the streams of a group; return the number of those that failed."""
    outputs = {configured.id: output(configured) for _, configured, _ in jobs}
    for out in outputs.values():
        out.begin()
    failed: set[StreamId] = set()
    try:
        for stream, configured, _ in jobs:
            _require_mode(stream, configured)
        with _listen(*next(iter(outputs.items()))):
            _copy_group(group, jobs, outputs, state, failed)
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - other streams are still read
        for stream_id in outputs.keys() - failed:
            outputs[stream_id].fail(error)
        return len(outputs)
    for stream_id in outputs.keys() - failed:
        outputs[stream_id].complete()
    return len(failed)


def _copy_group(
    group: StreamGroup,
    jobs: Sequence[Job],
    outputs: Mapping[StreamId, StreamOutput],
    state: GroupState | None,
    failed: set[StreamId],
) -> None:
    """Send the items of a group. `failed`: gets the streams whose read has ended with an error."""
    streams = {configured.id: stream for stream, configured, _ in jobs}
    acknowledging = [out for out in outputs.values() if out.answers_barriers]
    members = [configured for _, configured, _ in jobs]
    for item in group.read(members, state, is_acknowledged=bool(acknowledging)):
        if isinstance(item, GroupCheckpoint):
            next(iter(outputs.values())).group_state(item.state)
        elif isinstance(item, StreamFailure):
            failed.add(item.stream)
            outputs[item.stream].fail(item.error)
        elif isinstance(item, StreamPart):
            out, part = outputs[item.stream], item.item
            if isinstance(part, Page):
                out.page(part)
            elif isinstance(part, Slice) and not out.takes_slices:
                sliced = streams[item.stream]
                assert isinstance(sliced, SlicedStream)
                for page in read_as_pages(sliced, part):
                    out.page(page)
            else:
                _report(part, out)
        elif acknowledging:
            acknowledging[0].barrier()


def _ancestors(stream: Stream) -> list[Stream]:
    """Return the parent of a stream, the parent of that one, and so on."""
    ancestors = []
    while stream.parent is not None:
        stream = stream.parent.stream
        ancestors.append(stream)
    return ancestors


def _with_ancestors(streams: Iterable[Stream]) -> Iterator[Stream]:
    for stream in streams:
        yield from (stream, *_ancestors(stream))


def _fields_of_parents(streams: Iterable[Stream]) -> dict[object, frozenset[str]]:
    """Return the fields of each parent that its child streams need."""
    fields: dict[object, frozenset[str]] = {}
    for child in _with_ancestors(streams):
        if child.parent is not None:
            parent = child.parent.stream
            fields[parent] = fields.get(parent, frozenset()) | child.parent_fields()
    return fields


def _read(job: Job, output: StreamOutput) -> bool:
    stream, configured, state = job
    output.begin()
    try:
        _require_mode(stream, configured)
        _require_selection(stream, configured)
        resumes = configured.sync_mode == INCREMENTAL or stream.is_resumable
        with _listen(stream.id, output):
            _copy(stream, configured, state if resumes else None, output)
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - the other streams are still read
        output.fail(error)
        return False
    output.complete()
    return True


@contextmanager
def _listen(stream: StreamId, output: StreamOutput) -> Iterator[None]:
    """Pass what is reported to the output of a stream while the context is open. It may be about a parent,
    which is read for the stream: then it is a warning with its name, or no estimate."""

    def warn(reporting: StreamId, text: str) -> None:
        output.warn(text if reporting == stream else f"parent stream {str(reporting)!r}: {text}")

    def estimate(reporting: StreamId, rows: int) -> None:
        if reporting == stream:
            output.estimate(rows)

    with WAITS.listen(output.wait), STREAM_WARNINGS.listen(warn), ESTIMATES.listen(estimate):
        yield


def _require_mode(stream: Stream, configured: ConfiguredStream) -> None:
    if configured.sync_mode == INCREMENTAL and INCREMENTAL not in stream.sync_modes:
        raise ConfigError(
            f"stream {str(stream.id)!r} cannot be read incrementally{stream.why_full_refresh}",
            guidance="set `sync_mode: full_refresh`",
        )


def _require_selection(stream: Stream, configured: ConfiguredStream) -> None:
    if is_narrowed(configured) and not stream.selects_rows:
        raise ConfigError(
            f"stream {str(stream.id)!r} cannot be read by keys or columns alone: the source has no such read",
            guidance="read the stream as a whole: leave out `keys` and `columns`",
        )


def _copy(
    stream: Stream, configured: ConfiguredStream, state: dict[str, Any] | None, output: StreamOutput
) -> None:
    sample = None
    since_state = 0
    read: Callable[..., Iterable[Item]] = stream.read
    if isinstance(stream, SlicedStream) and output.takes_slices:
        read = stream.slices
    for item in read(configured, state):
        if isinstance(item, Checkpoint):
            output.state(item.state, since_state)
            since_state = 0
        elif isinstance(item, Page | dict):
            records = item.records if isinstance(item, Page) else [item]
            output.page(item) if isinstance(item, Page) else output.record(item)
            since_state += len(records)
            sample = sample or import_module(_SAMPLE).SchemaSample(
                stream.schema_to_check(configured)
            )
            if sample.remaining:
                _check(sample, records[: sample.remaining], output)
        else:
            _report(item, output)


def _report(item: Estimate | Warn | Measure | Slice | Wait, output: StreamOutput) -> None:
    if isinstance(item, Estimate):
        output.estimate(item.rows)
    elif isinstance(item, Warn):
        output.warn(item.text)
    elif isinstance(item, Measure):
        output.measure(item)
    elif isinstance(item, Slice):
        output.slice(item)
    else:
        output.barrier()


def _check(sample: SchemaSample, records: Iterable[Record], output: StreamOutput) -> None:
    for record in records:
        for line in sample.check(record):
            output.warn(
                f"a record does not fit the schema (the first {sample.limit} are checked): {line}"
            )
