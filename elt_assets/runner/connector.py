"""A connector as four verbs.

spec: Airbyte Specification (the command line of connectors); Airbyte Protocol, Source.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from elt_assets.errors import EltError, SystemFailure
from elt_assets.protocol.airbyte.catalog import Catalog, ConfiguredCatalog
from elt_assets.protocol.airbyte.destination_catalog import (
    catalog_for_destination,
    catalog_for_source,
)
from elt_assets.protocol.airbyte.log_text import log_line
from elt_assets.protocol.airbyte.messages import (
    ConnectionStatus,
    Control,
    ErrorTrace,
    Message,
    News,
    RawRecord,
    Specification,
    State,
    Unread,
    decisive,
)
from elt_assets.protocol.airbyte.versions import check_version
from elt_assets.protocol.masking import Masker
from elt_assets.runner.config.environment import Environment
from elt_assets.runner.config.settings import Settings
from elt_assets.runner.connector_log import ConnectorLog, Hear, ignore
from elt_assets.runner.ending import raise_for_end
from elt_assets.runner.failures import DEADLINES, failure, too_slow
from elt_assets.runner.process.account import open_workdir
from elt_assets.runner.process.argument_files import private_files, state_file
from elt_assets.runner.process.child import DeadlineError, Process
from elt_assets.runner.process.container import Image
from elt_assets.runner.process.decoding import Said, fast, lossless
from elt_assets.runner.program import Program

_WITHHELD = (
    "a line that could not be read as a message; it is not shown, since it may be part of a record "
    "some of whose fields must not be stored"
)


class Connector:
    """One connector and its config, run as a process for each verb.

    Args:
        command: the program and its first arguments; resolved when a verb is first used, since
            finding it may mean installing it.
        config: as written by the user, `{env: NAME}` included.
        workdir: where private files may live while a process runs.
        name: for messages.
        heartbeat: seconds for which it may say nothing; None for ever.
        image: that it is run from, in place of a command.
        store: the file that keeps what it changes in its config; without one, this object does.
        environment: of its process; default that of a `command` of which none is declared.
        user: of this machine, that it runs as; default this process's.
        hear: takes what it says in other verbs than `read` and `write`, whose messages hold it, and what of
            its specification cannot be checked.
        deadlines: seconds that a verb may take, in place of `DEADLINES`.
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        config: Mapping[str, Any],
        workdir: Path,
        name: str,
        heartbeat: float | None = None,
        image: Image | None = None,
        store: Path | None = None,
        environment: Environment | None = None,
        user: str | None = None,
        hear: Hear = ignore,
        deadlines: Mapping[str, float] = DEADLINES,
    ):
        self._hear = hear
        self._deadlines = deadlines
        self._heartbeat = heartbeat
        self._program = Program(command, image, environment or Environment(), user)
        self._workdir = workdir if user is None else open_workdir()
        self._deadline: float | None = None
        self._running: set[Process] = set()
        self.name = name
        self.mask = Masker()
        self._settings = Settings(config, name, self.mask, store, self._warn)

    @cached_property
    def specification(self) -> Specification:
        """spec: `spec() -> ConnectorSpecification`.

        Raises:
            ConfigError: the connector speaks a version of the protocol that is not supported.
        """
        message = self._one("spec", {}, lambda message: message.spec)
        assert message.spec is not None
        check_version(message.spec, self.name)
        return message.spec

    @property
    def config(self) -> dict[str, Any]:
        """The config to start with now: its environment variables in it, and what the connector changed;
        valid by its specification.

        Raises:
            ConfigError: every violation, without any value of a secret.
        """
        return self._settings.in_force(self.specification.connectionSpecification)

    def notices(self) -> list[tuple[str, str]]:
        """What a user should know of how this connector is run: a level, as in the protocol, and a text."""
        return self._program.notices(self.name)

    def check(self) -> ConnectionStatus:
        """spec: `check(Config) -> AirbyteConnectionStatus`.

        An answer that it failed stands however the process ends.
        """
        files = {"config": self.config}
        message = self._one(
            "check",
            files,
            lambda message: message.connectionStatus,
            stands=lambda message: (
                message.connectionStatus is not None and not message.connectionStatus.succeeded
            ),
        )
        assert message.connectionStatus is not None
        return message.connectionStatus

    def discover(self) -> Catalog:
        """spec: `discover(Config) -> AirbyteCatalog`."""
        files = {"config": self.config}
        message = self._one("discover", files, lambda message: message.catalog)
        assert message.catalog is not None
        return message.catalog

    def read(
        self,
        catalog: ConfiguredCatalog,
        states: Sequence[State] = (),
        *,
        withhold: bool = False,
        whole: bool = False,
    ) -> Generator[RawRecord | Message, None, None]:
        """spec: `read(Config, ConfiguredAirbyteCatalog, State) -> Stream<AirbyteMessage>`.

        No state file is given where there is no state. The process group ends with the iterator.
        With `withhold`, a line that could not be read is told of but not quoted, in logs or errors:
        it may be part of a record that must not be shown. With `whole`, records come as messages
        that lose nothing, to be sent on; that takes several times as long.

        Raises:
            EltError: the connector did not end with exit code 0; of the class that the
                `failure_type` of its decisive ERROR trace says.
        """
        said = lossless if whole else fast
        files = self._wanted(catalog, states)
        yield from self._messages("read", files, withhold=withhold, said=said)

    def write(
        self,
        catalog: ConfiguredCatalog,
        lines: Iterable[bytes],
        *,
        stop: Callable[[], None] | None = None,
    ) -> Generator[Message, None, None]:
        """spec: `write(Config, ConfiguredAirbyteCatalog, Stream<AirbyteMessage>(stdin))`; what it answers.

        Args:
            lines: messages, as `encode` writes them; pulled in another thread, as fast as the destination
                takes them. If they raise, the destination is told that this was all, and may finish.
            stop: makes `lines` end where they wait for the next one: of a source its `cancel`. Called, from
                this thread, when the destination has ended before them.

        Raises:
            ConfigError: the destination lacks the mode of a stream; nothing is pulled from `lines`.
            EltError: as `read`; or it ended, if well, before it had all the lines.
            Exception: what `lines` raised.
        """
        taken = catalog_for_destination(catalog, self.specification, self.name)
        files = {"config": self.config, "catalog": taken.to_json()}
        for message in self._messages("write", files, lines=lines, stop=stop):
            if isinstance(message, Message):
                yield message

    def cancel(self) -> None:
        """End what is running, from another thread than the one that reads it, within a second or so."""
        for process in tuple(self._running):
            process.cancel()

    def probe(
        self, catalog: ConfiguredCatalog, states: Sequence[State] = (), *, seconds: float
    ) -> News:
        """Whether streams have anything that their states do not cover: a verb that connectors built on
        this project's SDK have, beyond the Airbyte Specification.

        Args:
            seconds: how long all that this takes may take.

        Raises:
            EltError: the connector cannot be asked; a TransientError if it is too slow.
        """
        self._deadline = time.monotonic() + seconds
        try:
            message = self._one(
                "probe", self._wanted(catalog, states), lambda message: message.news
            )
        finally:
            self._deadline = None
        assert message.news is not None
        return message.news

    def _wanted(self, catalog: ConfiguredCatalog, states: Sequence[State]) -> dict[str, Any]:
        """The files that say what is to be read, and from where."""
        files: dict[str, Any] = {
            "config": self.config,
            "catalog": catalog_for_source(catalog).to_json(),
        }
        state = state_file(states)
        return files if state is None else {**files, "state": state}

    def _one(
        self,
        verb: str,
        files: Mapping[str, Any],
        wanted: Callable[[Message], object],
        stands: Callable[[Message], bool] = lambda _: False,
    ) -> Message:
        """The first message that holds what a verb returns; the rest of its output is drained.

        Args:
            stands: whether an answer stands even if the process then ends badly.
        """
        found: Message | None = None
        error: ErrorTrace | None = None
        try:
            for message in self._messages(verb, files):
                if isinstance(message, Message):
                    self._heard(message)
                    error = decisive(error, message.reported_error)
                    if found is None and wanted(message) is not None:
                        found = message
        except EltError:
            if found is None or not stands(found):
                raise
        if found is None:
            raise failure(f"{self._named(verb)} answered nothing", error)
        return found

    def _warn(self, text: str) -> None:
        self._hear("WARN", ConnectorLog(self.mask, self.name).text(text))

    def _heard(self, message: Message) -> None:
        line = log_line(message)
        if line is not None:
            self._hear(*line)

    def _messages(
        self,
        verb: str,
        files: Mapping[str, Any],
        *,
        withhold: bool = False,
        said: Said | None = None,
        **fed: Any,
    ) -> Iterator[RawRecord | Message]:
        error: ErrorTrace | None = None
        log = ConnectorLog(self.mask, self.name)
        with (
            private_files(self._workdir, files) as arguments,
            self._started(verb, arguments, **fed) as process,
        ):
            try:
                for heard in (said or fast)(process):
                    if type(heard) is RawRecord:
                        yield heard
                        continue
                    assert isinstance(heard, Message)
                    message = heard
                    if message.record is not None:
                        yield message
                        continue
                    error = decisive(error, message.reported_error)
                    if message.control is not None and "config" in files:
                        message = self._obey(message.control, files["config"])
                    if withhold and isinstance(message, Unread) and message.log is not None:
                        message.log.message = _WITHHELD
                    yield from log.shown(message)
                    yield from log.stderr(*process.new_stderr())
                process.wait()
                yield from log.stderr(*process.new_stderr())
                yield from log.end()
            except SystemFailure as unreadable:
                # Of a connector that died in the middle of a line, its death is the news.
                if process.exhausted:
                    raise_for_end(self._named(verb), process, error, log)
                if withhold:
                    unreadable.detail = None  # the line's beginning
                raise log.failure(unreadable) from None
            raise_for_end(self._named(verb), process, error, log)

    def _obey(self, control: Control, config: dict[str, Any]) -> Message:
        """Before anything else that it says is heard: it may have given up what it had for this."""
        schema = self.specification.connectionSpecification
        return self._settings.obey(control, config, schema)

    def _named(self, verb: str) -> str:
        return f"`{verb}` of connector {self.name}"

    def _words(self, verb: str, arguments: Sequence[str]) -> Sequence[str]:
        """A verb as the command line has it; `arguments` are its files."""
        return [verb, *arguments]

    @contextlib.contextmanager
    def _started(self, verb: str, arguments: Sequence[str], **fed: Any) -> Iterator[Process]:
        limit = self._deadlines.get(verb)
        deadline = self._deadline
        if deadline is None and limit is not None:
            deadline = time.monotonic() + limit
        folder = Path(arguments[1]).parent if arguments else None
        start = self._program.launch(self._words(verb, arguments), folder, self.mask)
        with Process(
            start.words,
            environment=start.environment,
            removal=start.removal,
            account=start.account,
            deadline=deadline,
            silence=self._heartbeat,
            **fed,
        ) as process:
            self._running.add(process)
            try:
                yield process
            except DeadlineError:
                if self._deadline is not None or limit is None:
                    raise
                raise too_slow(verb, self.name, limit) from None
            except EltError as error:
                if process.failed and error.guidance is None:
                    error.guidance = self._program.environment.hint()
                raise
            finally:
                self._running.discard(process)
