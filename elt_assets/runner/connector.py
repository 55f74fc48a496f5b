"""Run a connector: one process for each verb of the Airbyte Protocol (spec, check, discover, read, write).

`kinds` and `manifests` make it, and `singer_tap` is its form for taps. `pipeline` reads with it; `elt`, and
sensors and jobs of `orchestration`, use the other verbs.

Spec: Airbyte Specification (the command line of connectors); Airbyte Protocol, Source.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.protocol.catalog import Catalog, ConfiguredCatalog
from elt_assets.protocol.codec import decode_blocks, decode_line
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.message_rules import (
    STAGING,
    catalog_for_destination,
    catalog_for_source,
    check_version,
    refuse_unasked,
)
from elt_assets.protocol.messages import (
    FOLLOW,
    SLICES,
    SLICES_FOLDER,
    Comparison,
    ConnectionStatus,
    Control,
    ErrorTrace,
    KeyRange,
    Message,
    News,
    Partition,
    RawRecord,
    Received,
    Specification,
    State,
    UndecodedLine,
    log_line,
    root_error,
)
from elt_assets.protocol.routing import airbyte_runs
from elt_assets.runner.config import Settings
from elt_assets.runner.connector_log import ConnectorLog
from elt_assets.runner.failures import (
    UsageFailure,
    connector_failure,
    deadline_failure,
    raise_for_exit,
)
from elt_assets.runner.feeding import Releases
from elt_assets.runner.process import DeadlineError, Process
from elt_assets.runner.source_kind import ConnectorSpec, private_files, start, state_file
from elt_assets.storage.folders import scratch

Decoder = Callable[[Process], Iterator[Received]]
"""Yields the messages in the output of a process."""


def decode_runs(process: Process) -> Iterator[Received]:
    """Yield messages, with runs of records as they were received: the fastest way to a session."""
    runs = airbyte_runs()
    for block in process.blocks():
        yield from runs.messages(block)


def decode_fast(process: Process) -> Iterator[RawRecord | Message]:
    """Yield messages, with records as the lake needs them: without what only another destination needs."""
    return decode_blocks(process.blocks())


def decode_lossless(process: Process) -> Iterator[RawRecord | Message]:
    """Yield messages, with complete records, to be sent on."""
    for line in process.lines():
        yield from decode_line(line, whole=True)


_WITHHELD = (
    "a line of output cannot be read as a message; it is not shown, because it may be part of a record "
    "with fields that must not be stored"
)
_MAX_QUOTED = 20
"""Maximum number of lines of output that the error of a verb without a result quotes."""


class Connector:
    """A connector and its config. Each verb runs as a separate process."""

    def __init__(self, spec: ConnectorSpec):
        self.spec = spec
        self.name = spec.name
        self.staged_documents: Path | None = None
        """The folder into which a source puts documents, and from which a destination takes them."""
        self.slice_files: Path | None = None
        """The folder into which a source puts files of slices."""
        self.mask = Masker()
        """Masks the secrets that are known so far."""
        self._deadline: float | None = None
        self._running: set[Process] = set()
        self._settings = Settings(spec.config, spec.title, self.mask, spec.store, self._warn)

    @cached_property
    def specification(self) -> Specification:
        """The connector's specification.

        Spec: `spec() -> ConnectorSpecification`.

        Raises:
            ConfigError: the connector uses an unsupported version of the protocol.
        """
        message = self._answer("spec", {}, lambda message: message.spec)
        assert message.spec is not None
        check_version(message.spec, self.name)
        return message.spec

    @property
    def config(self) -> dict[str, Any]:
        """The config for the next process, validated by the specification.

        It includes the values of environment variables and the changes that the connector made.

        Raises:
            ConfigError: the config violates the specification; lists every violation, but no secret.
        """
        return self._settings.effective(self.specification.connectionSpecification)

    def notices(self) -> list[tuple[str, str]]:
        """Return notices for the user about how the connector runs, each a protocol log level and a text."""
        image = self.spec.image
        if image is None or not image.is_mutable:
            return []
        text = f"the image {self.name} has no fixed tag, so each run may use a different image"
        return [("WARN", f"{text}; write a version or a digest in the connection's YAML")]

    def check(self) -> ConnectionStatus:
        """Return whether the connector can use its config.

        A FAILED answer is returned even if the process then fails.

        Spec: `check(Config) -> AirbyteConnectionStatus`.
        """
        files = {"config": self.config}
        message = self._answer(
            "check",
            files,
            lambda message: message.connectionStatus,
            is_final=lambda message: (
                message.connectionStatus is not None and not message.connectionStatus.succeeded
            ),
        )
        assert message.connectionStatus is not None
        return message.connectionStatus

    def discover(self) -> Catalog:
        """Return the catalog of the source.

        Spec: `discover(Config) -> AirbyteCatalog`.
        """
        files = {"config": self.config}
        message = self._answer("discover", files, lambda message: message.catalog)
        assert message.catalog is not None
        return message.catalog

    def read(
        self,
        catalog: ConfiguredCatalog,
        states: Sequence[State] = (),
        *,
        withhold: bool = False,
        whole: bool = False,
        runs: bool = False,
    ) -> Generator[Received, None, None]:
        """Read streams, and yield the messages of the source.

        The process gets no state file if there is no state. The process group ends with the iterator. After a
        BARRIER the connector goes on when the next message is requested.

        Args:
            withhold: do not quote lines that cannot be read as messages, in logs or errors: they may be part
                of a record that must not be shown.
            whole: yield records as messages without any loss, to be sent on; several times slower.
            runs: yield consecutive records of a stream as `RecordLines`, for a session; several times faster.

        Raises:
            EltError: the exit code is not 0. The `failure_type` of the ERROR trace that `root_error` returns
                selects the class of the error.

        Spec: `read(Config, ConfiguredAirbyteCatalog, State) -> Stream<AirbyteMessage>`.
        """
        decoder = decode_lossless if whole else decode_runs if runs else decode_fast
        files = self._read_files(catalog, states)
        asks_for_slices = any(SLICES in stream.extra for stream in catalog.streams)
        follows = any(FOLLOW in stream.extra for stream in catalog.streams)
        releases = Releases() if asks_for_slices or follows else None
        stdin = {} if releases is None else {"lines": releases, "stop": releases.end}
        messages = self._messages(
            "read",
            files,
            withhold=withhold,
            decoder=decoder,
            takes_slices=asks_for_slices,
            may_wait=follows,
            **stdin,
        )
        with contextlib.closing(messages):
            for message in messages:
                yield message
                if releases and isinstance(message, Message) and message.barrier is not None:
                    releases.add()

    def write(
        self,
        catalog: ConfiguredCatalog,
        lines: Iterable[bytes],
        *,
        stop: Callable[[], None] | None = None,
    ) -> Generator[Message, None, None]:
        """Send messages to a destination, and yield the messages that it sends back.

        Args:
            lines: messages, as `encode` writes them. Another thread consumes them, as fast as the destination
                reads. If they raise an error, the destination's input ends, and the destination may finish.
            stop: makes `lines` end while they wait for the next line, such as `cancel` of a source. Called
                from this thread if the destination ends before `lines`.

        Raises:
            ConfigError: as `adapt_catalog`; `lines` is not consumed.
            EltError: as for `read`; or the destination ended with exit code 0 before it read all lines.
            Exception: the error that `lines` raised.

        Spec: `write(Config, ConfiguredAirbyteCatalog, Stream<AirbyteMessage>(stdin))`.
        """
        files = {"config": self.config, "catalog": self.adapt_catalog(catalog).to_json()}
        for message in self._messages("write", files, lines=lines, stop=stop):
            if isinstance(message, Message):
                yield message

    def adapt_catalog(self, catalog: ConfiguredCatalog) -> ConfiguredCatalog:
        """Return a catalog as this destination supports it.

        Raises:
            ConfigError: the destination does not support the mode or the refresh of a stream.
            EltError: its specification cannot be read.
        """
        return catalog_for_destination(catalog, self.specification, self.name)

    def cancel(self) -> None:
        """Stop the running processes within about a second. Call it from a thread that reads none of them."""
        for process in tuple(self._running):
            process.cancel()

    def probe(
        self, catalog: ConfiguredCatalog, states: Sequence[State] = (), *, seconds: float
    ) -> News:
        """Return whether streams have new data, which their states do not cover.

        The Airbyte Specification does not have this verb. Connectors built on this project's SDK have it.

        Args:
            seconds: time limit for the whole call.

        Raises:
            EltError: the connector cannot be probed; a TransientError if it exceeds the time limit.
        """
        with self.read_within(seconds):
            message = self._answer(
                "probe", self._read_files(catalog, states), lambda message: message.news
            )
        assert message.news is not None
        return message.news

    def release(self, *, seconds: float) -> None:
        """Let the source give up what it keeps on its server for the next read.

        The Airbyte Specification does not have this verb. Connectors built on this project's SDK have it.

        Args:
            seconds: time limit for the whole call.

        Raises:
            EltError: something is left there; a TransientError if the connector exceeds the time limit.
        """
        with self.read_within(seconds):
            for message in self._messages("release", {"config": self.config}):
                if isinstance(message, Message):
                    self._log_message(message)

    @contextlib.contextmanager
    def stage_documents(self, receiver: Connector | None = None) -> Iterator[Path]:
        """Create the folder for the documents of the reads in the context; it is removed when that ends.

        Folders that killed processes of this machine left are removed first.

        Args:
            receiver: the destination that takes the documents from there.
        """
        users = [self] if receiver is None else [self, receiver]
        with scratch(self.spec.workdir, "documents") as folder:
            for connector in users:
                connector.staged_documents = folder
            try:
                yield folder
            finally:
                for connector in users:
                    connector.staged_documents = None

    @contextlib.contextmanager
    def stage_slices(self) -> Iterator[Path]:
        """Create the folder for files of slices of the read in the context; it is removed when that ends."""
        with scratch(self.spec.workdir, "slices") as folder:
            self.slice_files = folder
            try:
                yield folder
            finally:
                self.slice_files = None

    @contextlib.contextmanager
    def read_within(self, seconds: float) -> Iterator[None]:
        """Limit the time of the verbs that are called in the context, all together.

        A verb that exceeds it raises a TransientError. An earlier limit stays in force.
        """
        before, limit = self._deadline, time.monotonic() + seconds
        self._deadline = limit if before is None else min(before, limit)
        try:
            yield
        finally:
            self._deadline = before

    def partitions(
        self,
        catalog: ConfiguredCatalog,
        states: Sequence[State] = (),
        *,
        seconds: float | None = None,
    ) -> Generator[Partition, None, None]:
        """List the partitions of streams, and yield each as the source sends it.

        The Airbyte Specification does not have this verb. Connectors built on this project's SDK have it. The
        process group ends with the iterator.

        Args:
            seconds: time limit for the whole call; default: that of the verb in `deadlines`.

        Raises:
            ConfigError: the connector does not have this verb.
            EltError: as for `read`; a TransientError if the connector exceeds the time limit.
        """
        for message in self._ask("partitions", catalog, states, seconds, _cannot_list_partitions):
            if message.partition is not None:
                yield message.partition

    def compare(
        self,
        catalog: ConfiguredCatalog,
        states: Sequence[State] = (),
        *,
        seconds: float | None = None,
    ) -> Generator[Comparison | KeyRange, None, None]:
        """Yield what a source has, by ranges of keys: of each stream a `Comparison`, and then its ranges.

        The Airbyte Specification does not have this verb. Connectors built on this project's SDK have it. The
        process group ends with the iterator, and with it the query of the source.

        Args:
            catalog: its streams say what is asked for (`COMPARE`).
            states: of the last syncs; they say which rows are left out.
            seconds: time limit for the whole call; default: that of the verb in `deadlines`.

        Raises:
            ConfigError: the connector does not have this verb, or cannot compare a stream.
            EltError: as for `read`; a TransientError if the connector exceeds the time limit.
        """
        for message in self._ask("compare", catalog, states, seconds, _cannot_compare):
            body = message.comparison or message.range
            if body is not None:
                yield body

    def _ask(
        self,
        verb: str,
        catalog: ConfiguredCatalog,
        states: Sequence[State],
        seconds: float | None,
        refuse: Callable[[ConfiguredCatalog, str | None], ConfigError],
    ) -> Generator[Message, None, None]:
        """Yield the messages of a verb that not all connectors have.

        Args:
            refuse: returns the error for a connector that does not have it.
        """
        with contextlib.nullcontext() if seconds is None else self.read_within(seconds):
            files = self._read_files(catalog, states)
            with contextlib.closing(self._messages(verb, files)) as messages:
                try:
                    for message in messages:
                        if not isinstance(message, Message) or message.record is not None:
                            # Some programs treat each verb that they do not know as `read`.
                            raise refuse(catalog, None)
                        self._log_message(message)
                        yield message
                except UsageFailure as failure:
                    raise refuse(catalog, failure.detail) from failure

    def _read_files(self, catalog: ConfiguredCatalog, states: Sequence[State]) -> dict[str, Any]:
        """Return the contents of the argument files of `read`, `probe`, `partitions` and `compare`."""
        files: dict[str, Any] = {
            "config": self.config,
            "catalog": catalog_for_source(catalog).to_json(),
        }
        state = state_file(states)
        return files if state is None else {**files, "state": state}

    def _answer(
        self,
        verb: str,
        files: Mapping[str, Any],
        result: Callable[[Message], object],
        is_final: Callable[[Message], bool] = lambda _: False,
    ) -> Message:
        """Return the first message that contains the result of a verb. The rest of the output is drained.

        Args:
            result: returns the result in a message, if there is one.
            is_final: returns whether an answer is valid even if the process then fails.
        """
        answer: Message | None = None
        error: ErrorTrace | None = None
        output: list[str] = []
        try:
            for message in self._messages(verb, files):
                if isinstance(message, Message):
                    self._log_message(message)
                    if isinstance(message, UndecodedLine) and len(output) < _MAX_QUOTED:
                        output.append(message.log.message if message.log is not None else "")
                    error = root_error(error, message.reported_error)
                    if answer is None and result(message) is not None:
                        answer = message
        except EltError:
            if answer is None or not is_final(answer):
                raise
        if answer is None:
            problem = f"{self._process_name(verb)} returned no result"
            raise connector_failure(problem, error, output="\n".join(output))
        return answer

    def _warn(self, text: str) -> None:
        self.spec.on_log("WARN", ConnectorLog(self.mask, self.spec.title).text(text))

    def _log_message(self, message: Message) -> None:
        line = log_line(message)
        if line is not None:
            self.spec.on_log(*line)

    def _messages(
        self,
        verb: str,
        files: Mapping[str, Any],
        *,
        withhold: bool = False,
        decoder: Decoder = decode_fast,
        takes_slices: bool = False,
        may_wait: bool = False,
        **stdin: Any,
    ) -> Generator[Received, None, None]:
        error: ErrorTrace | None = None
        log = ConnectorLog(self.mask, self.spec.title)
        with (
            private_files(self.spec.workdir, files) as arguments,
            self._start(verb, arguments, **stdin) as process,
        ):
            try:
                for decoded in decoder(process):
                    if not isinstance(decoded, Message):
                        yield decoded
                        continue
                    message = decoded
                    if message.record is not None:
                        yield message
                        continue
                    if not takes_slices:
                        refuse_unasked(message, self._process_name(verb), may_wait=may_wait)
                    error = root_error(error, message.reported_error)
                    if message.control is not None and "config" in files:
                        message = self._apply_control(message.control, files["config"])
                    if withhold and isinstance(message, UndecodedLine) and message.log is not None:
                        message.log.message = _WITHHELD
                    yield from log.filter_message(message)
                    yield from log.stderr(*process.new_stderr())
                process.wait()
                yield from log.stderr(*process.new_stderr())
                yield from log.end()
            except SystemFailure as unreadable:
                # A failed exit explains an incomplete last line, so it is the error that is raised.
                if process.exhausted:
                    raise_for_exit(self._process_name(verb), process, error, log)
                if withhold:
                    unreadable.detail = None  # it quotes the beginning of the line
                raise log.failure(unreadable) from None
            raise_for_exit(self._process_name(verb), process, error, log)

    def _apply_control(self, control: Control, config: dict[str, Any]) -> Message:
        """Apply a CONTROL message, and return the message to send on.

        This is done before the next message is read: the connector's old credential may no longer be valid.
        """
        schema = self.specification.connectionSpecification
        return self._settings.apply(control, config, schema)

    def _process_name(self, verb: str) -> str:
        return f"`{verb}` of {self.spec.title}"

    def _verb_arguments(self, verb: str, files: Sequence[str]) -> Sequence[str]:
        """Return the arguments of the program for a verb; `files` are those that name its files."""
        return [verb, *files]

    @contextlib.contextmanager
    def _start(self, verb: str, arguments: Sequence[str], **stdin: Any) -> Iterator[Process]:
        limit = self.spec.deadlines.get(verb)
        deadline = self._deadline
        if deadline is None and limit is not None:
            deadline = time.monotonic() + limit
        folders = {STAGING: self.staged_documents, SLICES_FOLDER: self.slice_files}
        with start(
            self.spec,
            self._verb_arguments(verb, arguments),
            self.mask,
            Path(arguments[1]).parent if arguments else None,
            {name: folder for name, folder in folders.items() if folder is not None},
            deadline=deadline,
            on_left=lambda text: self._warn(f"{self._process_name(verb)}: {text}"),
            **stdin,
        ) as process:
            self._running.add(process)
            try:
                yield process
            except DeadlineError:
                if self._deadline is not None or limit is None:
                    raise
                raise deadline_failure(verb, self._process_name(verb), limit) from None
            except EltError as error:
                if process.failed and error.guidance is None:
                    error.guidance = self.spec.explain_failure(error)
                raise
            finally:
                self._running.discard(process)


def _cannot_compare(catalog: ConfiguredCatalog, detail: str | None) -> ConfigError:
    """Return the error for a connector without the verb `compare`."""
    return ConfigError(
        f"the source of stream {_list_names(catalog)} cannot be compared: its connector does not have the "
        "command `compare`",
        guidance="remove `source` from the `checks` of the stream, or use a connector that has this command",
        detail=detail,
    )


def _list_names(catalog: ConfiguredCatalog) -> str:
    return ", ".join(repr(str(stream.id)) for stream in catalog.streams)


def _cannot_list_partitions(catalog: ConfiguredCatalog, detail: str | None) -> ConfigError:
    """Return the error for a connector without the verb `partitions`."""
    return ConfigError(
        f"the source cannot list the partitions of stream {_list_names(catalog)}: its connector does not "
        "have the command `partitions`",
        guidance="write `partitions` of the type `static` or `dynamic`, or use a connector that has this "
        "command",
        detail=detail,
    )
