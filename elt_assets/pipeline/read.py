"""One read: messages of a source go to the sinks of its streams, and events come out. Every sync runs here.

First `mask_error`; then `Read`, which says what is read, from where, and where it goes: there is one of a
connection, one of `elt-destination` and one of `target-elt`; then `run_read`, which runs each of them. What
is made of its events is up to observers: `run_read` reports lineage and metrics and keeps the figures of the
read; its caller (`orchestration.report`, or `destination`) writes the log, reports to Dagster or answers with
states; displays of progress ask the read, from their own threads.

Whatever fails while a source is read may quote its config: the source, a task on Spark, Spark itself, or a
library. So events and errors are masked where they leave the read, and not where they are made: a new kind of
error is masked too. From there they reach the log, the page and the storage of a run, alerts and lineage.
Dagster also stores the causes of an error, and those during whose handling it was raised.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from elt_assets.errors import EltError
from elt_assets.lake.publish.followers import Followers, LakeTable
from elt_assets.machine_faults import translate, translated
from elt_assets.pipeline.following import describe_problems, open_followers
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.messages import Message, Received
from elt_assets.storage.staging import Staging
from elt_assets.sync.committer import OpenSink, Work
from elt_assets.sync.documents import Documents
from elt_assets.sync.events import Acknowledged, Logged, SessionEvent, Sink, StreamProgress
from elt_assets.sync.session import Session, StreamChanges, Threshold
from elt_assets.sync.streams import StreamRules
from elt_assets.telemetry.observation import Observation, Subject

Mask: TypeAlias = Callable[[str], str]
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.10 has none


def mask_interruption(interruption: BaseException, mask: Mask) -> None:
    """Mask the texts of the errors that an interruption has interrupted."""
    for name in ("__cause__", "__context__"):
        link = getattr(interruption, name)
        if isinstance(link, Exception):
            setattr(interruption, name, mask_error(link, mask))


def mask_error(error: Exception, mask: Mask) -> Exception:
    """Return an error in whose texts, and in those of its whole chain, secrets are masked.

    It is the error itself if it has no secret, or is one of this project. Any other one becomes the fault of
    the machine that it reports, or else an error whose class has the same name.
    """
    if not any(mask(text) != text for text in map(_describe, _chain(error))):
        return error
    fault = translate(error)
    if fault is not None and fault is not error:
        fault.__cause__ = error
        error = fault
    masked = {id(link): _mask_link(link, mask) for link in _chain(error)}
    for link in list(_chain(error)):
        _copy_links(link, masked)
    result = masked[id(error)]
    assert isinstance(result, Exception)
    return result


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and the errors during whose handling it was raised, also those that Python
    does not show."""
    seen: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen[id(link)] = link
            yield link
            waiting += [link.__cause__, link.__context__]


def _describe(error: BaseException) -> str:
    """Return the text of an error without its chain; of a group, with its members and their chains."""
    lines = (
        traceback.format_exception if isinstance(error, _GROUP) else traceback.format_exception_only
    )
    texts = [error.message, error.guidance, error.detail] if isinstance(error, EltError) else []
    return "".join([*lines(error), *filter(None, texts)])


def _mask_link(error: BaseException, mask: Mask) -> BaseException:
    """Return an error, without its chain, whose own texts are masked."""
    if isinstance(error, EltError):
        error.message = mask(error.message)
        error.guidance, error.detail = (
            text and mask(text) for text in (error.guidance, error.detail)
        )
        error.args = (error.message,)
    elif mask(_describe(error)) != _describe(error):
        kind = type(error)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        text = _describe(error) if isinstance(error, _GROUP) else _text_of(error)
        stand_in: Exception = type(kind.__name__, (Exception,), names)(mask(text))
        return stand_in
    if notes := getattr(error, "__notes__", None):
        vars(error)["__notes__"] = [mask(str(note)) for note in notes]
    return error


def _text_of(error: BaseException) -> str:
    """Return what Python shows of an error, and its notes, without the name of its class."""
    text = "".join(traceback.format_exception_only(error)).rstrip("\n")
    name = f"{type(error).__module__}.{type(error).__qualname__}: "
    return text.removeprefix(name).removeprefix(f"{type(error).__qualname__}: ")


def _copy_links(error: BaseException, masked: dict[int, BaseException]) -> None:
    """Give the masked form of an error the traceback and the chain of it."""
    target, cause, context = masked[id(error)], error.__cause__, error.__context__
    is_hidden = error.__suppress_context__
    target.__traceback__ = error.__traceback__
    target.__cause__ = None if cause is None else masked[id(cause)]
    target.__context__ = None if context is None else masked[id(context)]
    target.__suppress_context__ = is_hidden


Messages = Generator[Received, None, None]


class ClosableSink(Sink, Protocol):
    """A sink that owns files until they are committed."""

    def close(self) -> None:
        """Remove what was written and not committed."""


class MessageReader(Protocol):
    """What reads the messages of a source to their end: a session, or the relay to another destination."""

    work: Work

    def run(self, messages: Messages) -> Generator[SessionEvent, None, None]:
        """Run to the end and yield the events as they happen; see `Session.run`."""

    def progress(self, stream: StreamId) -> StreamProgress:
        """Return the figures of a stream so far."""

    def read_so_far(self, stream: StreamId) -> tuple[int, int]:
        """Return the records and bytes read so far, approximately; callable from any thread."""


class Read:
    """One read of streams. `run_read` runs it, once."""

    catalog: ConfiguredCatalog
    """The streams requested from the source."""
    staging: Staging
    """Where the records are staged."""
    threshold: Threshold
    """When a segment is closed."""
    rules: StreamRules
    """What is particular to the streams of the source."""
    subject: Subject | None = None
    """What lineage and metrics say that the read is about; None if nothing is reported."""

    def __init__(
        self,
        catalog: ConfiguredCatalog,
        staging: Staging,
        threshold: Threshold | None = None,
        rules: StreamRules | None = None,
    ):
        self.catalog = catalog
        self.staging = staging
        self.threshold = threshold or Threshold()
        self.rules = rules or StreamRules()
        self.started = time.monotonic()
        self.messages: Messages | None = None
        """Those of the source, from its start."""
        self.reader: MessageReader | None = None
        self.committed: dict[StreamId, SyncFigures] = {}
        """The sums of the commits of each stream."""
        self.followers = Followers()
        """What follows the commits, from the start of the read."""

    def open_messages(self) -> Messages:
        """Start the source and return its messages."""
        raise NotImplementedError

    def open_sink(self, stream: ConfiguredStream) -> ClosableSink:
        """Open the sink of a stream. Also called from a sinks' thread if a stream can change."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise an error, before the sinks are opened, if the read cannot be run."""

    def list_notices(self) -> Iterator[Logged]:
        """Yield what is to be logged before anything is read."""
        yield from ()

    def changes(self, _open_sink: OpenSink) -> StreamChanges | None:
        """Return how the streams may change while they are read; None if they cannot."""
        return None

    def transfer_documents(self) -> AbstractContextManager[Mapping[StreamId, Documents]]:
        """Return a context, for the time of the read, with the places of the documents of the streams."""
        return contextlib.nullcontext({})

    def list_followed(self, _stream: StreamId) -> Sequence[LakeTable]:
        """Return the tables of a stream that have a commit, for the followers."""
        return ()

    def expect_rows(self) -> None:
        """Prepare the sinks. Called once, when the first record for them arrives."""

    def mask(self, text: str) -> str:
        """Return a text that leaves the read, with its secrets masked."""
        return text

    def open_reader(
        self, sinks: Mapping[StreamId, Sink], open_sink: OpenSink, opened: ExitStack
    ) -> MessageReader:
        """Return what reads the messages.

        Args:
            opened: closes at the end of the read what is opened here.
        """
        folder = opened.enter_context(self.staging.session())
        rules = replace(self.rules, documents=opened.enter_context(self.transfer_documents()))
        opened.enter_context(translated(f"while records were staged in {folder}"))
        changes = self.changes(open_sink)
        return Session(self.catalog, sinks, folder, self.threshold, rules, changes)

    def progress(self, stream: StreamId) -> StreamProgress:
        return StreamProgress() if self.reader is None else self.reader.progress(stream)

    def read_so_far(self, stream: StreamId) -> tuple[int, int]:
        """Return the records and bytes read so far, approximately; callable from any thread."""
        return (0, 0) if self.reader is None else self.reader.read_so_far(stream)

    def figures(self, stream: StreamId) -> SyncFigures:
        """Return the figures of a stream so far."""
        progress = self.progress(stream)
        return replace(
            self.committed.get(stream, SyncFigures()),
            read=progress.records_read,
            filtered=progress.records_filtered,
            bytes=progress.bytes_read,
            documents=progress.documents,
            document_bytes=progress.document_bytes,
            seconds=time.monotonic() - self.started,
        )

    @property
    def source_ended(self) -> bool:
        """Return whether the source has sent everything; callable from any thread."""
        messages = self.messages
        return messages is not None and inspect.getgeneratorstate(messages) == inspect.GEN_CLOSED


def run_read(read: Read) -> Generator[SessionEvent, None, None]:
    """Run a read to its end and yield its events as they happen, with its secrets masked.

    When the iterator ends, for any reason, the source is ended and then the sinks are closed.

    Raises:
        EltError: as `Session.run` or `Relay.run`, the source and the sinks.
        Exception: any other error, as `mask_error` returns it.
    """
    read.started = time.monotonic()
    observation = Observation(read.subject, read.progress)
    yield from (Logged("WARN", warning) for warning in observation.warnings)
    failure: Exception | None = None
    try:
        with ExitStack() as opened:

            def open_sink(stream: ConfiguredStream) -> Sink:
                sink = read.open_sink(stream)
                opened.callback(sink.close)
                observation.open(stream)
                return sink

            read.check()
            read.followers = opened.enter_context(contextlib.closing(open_followers()))
            read.followers.start()
            sinks = {stream.id: open_sink(stream) for stream in read.catalog.streams}
            for notice in read.list_notices():
                yield _mask_event(notice, read)
            read.reader = read.open_reader(sinks, open_sink, opened)
            read.messages = _announce_records(read.open_messages(), read.expect_rows)
            opened.callback(read.messages.close)
            with contextlib.closing(read.reader.run(read.messages)) as events:
                for event in events:
                    if isinstance(event, Acknowledged):
                        read.committed.setdefault(event.stream, SyncFigures()).add(event.commit)
                        _notice(read, event.stream)
                    observation.observe(event)
                    yield _mask_event(event, read)
            yield from (_mask_event(notice, read) for notice in _await_followers(read))
    except Exception as error:  # noqa: BLE001 - it is raised below
        failure = mask_error(error, read.mask)
    except BaseException as interruption:  # the iterator was closed, or a signal arrived
        mask_interruption(interruption, read.mask)
        observation.finish("ABORT", None)
        raise
    observation.finish("COMPLETE" if failure is None else "FAIL", failure)
    if failure is not None:
        raise failure  # here, where the error with the secret does not become its context
    if observation.error is not None:
        text = f"the lineage or metrics could not be delivered: {observation.error}"
        yield Logged("WARN", text)


def _notice(read: Read, stream: StreamId) -> None:
    """Tell the followers of a commit of a stream."""
    for table in read.list_followed(stream) if read.followers.are_there else ():
        read.followers.notice(table)


def _await_followers(read: Read) -> Iterator[Logged]:
    """Wait for the followers, and yield what they could not do. The sync is complete without them."""
    read.followers.wait()
    for stream in read.committed if read.followers.are_there else ():
        for warning in describe_problems(read.followers, read.list_followed(stream)):
            yield Logged("WARN", warning)


def _mask_event(event: SessionEvent, read: Read) -> SessionEvent:
    return replace(event, message=read.mask(event.message)) if isinstance(event, Logged) else event


def _announce_records(messages: Messages, expect_rows: Callable[[], object]) -> Messages:
    """Yield the messages of a source; call `expect_rows` before the first record."""
    with contextlib.closing(messages):
        for message in messages:
            if not isinstance(message, Message) or message.slice is not None:
                expect_rows()
                yield message
                break
            yield message
        yield from messages
