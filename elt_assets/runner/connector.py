"""A connector as four verbs.

spec: Airbyte Specification (the command line of connectors); Airbyte Protocol, Source.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, EltError, SystemFailure, error_class
from elt_assets.protocol.catalog import Catalog, ConfiguredCatalog
from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import (
    ConnectionStatus,
    ErrorTrace,
    Message,
    News,
    RawRecord,
    Specification,
    State,
    Unread,
)
from elt_assets.protocol.specification import secret_values, violations
from elt_assets.runner.docker import container
from elt_assets.runner.process import Process
from elt_assets.runner.secrets import Masker, resolve_environment
from elt_assets.scratch import scratch

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
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        config: Mapping[str, Any],
        workdir: Path,
        name: str,
        heartbeat: float | None = None,
        image: str | None = None,
    ):
        self._heartbeat = heartbeat
        self._image = image
        self._command = command
        self._written = config
        self._workdir = workdir
        self._deadline: float | None = None
        self.name = name
        self.mask = Masker()

    @cached_property
    def specification(self) -> Specification:
        """spec: `spec() -> ConnectorSpecification`."""
        message = self._one("spec", {}, lambda message: message.spec)
        assert message.spec is not None
        return message.spec

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config with its environment variables in, valid by the connector's specification.

        Raises:
            ConfigError: every violation, without any value of a secret.
        """
        config, secrets = resolve_environment(dict(self._written))
        schema = self.specification.connectionSpecification
        self.mask.add([*secrets, *secret_values(config, schema)])
        validate_config(config, schema, self.name)
        return dict(config)

    def check(self) -> ConnectionStatus:
        """spec: `check(Config) -> AirbyteConnectionStatus`."""
        files = {"config": self.config}
        message = self._one("check", files, lambda message: message.connectionStatus)
        assert message.connectionStatus is not None
        return message.connectionStatus

    def discover(self) -> Catalog:
        """spec: `discover(Config) -> AirbyteCatalog`."""
        files = {"config": self.config}
        message = self._one("discover", files, lambda message: message.catalog)
        assert message.catalog is not None
        return message.catalog

    def read(
        self, catalog: ConfiguredCatalog, states: Sequence[State] = (), *, withhold: bool = False
    ) -> Generator[RawRecord | Message, None, None]:
        """spec: `read(Config, ConfiguredAirbyteCatalog, State) -> Stream<AirbyteMessage>`.

        No state file is given where there is no state. The process group ends with the iterator.
        With `withhold`, a line that could not be read is told of but not quoted, in logs or errors:
        it may be part of a record that must not be shown.

        Raises:
            EltError: the connector did not end with exit code 0; of the class that the
                `failure_type` of its last ERROR trace says.
        """
        yield from self._messages("read", self._wanted(catalog, states), withhold=withhold)

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
        files: dict[str, Any] = {"config": self.config, "catalog": catalog.to_json()}
        if states:
            files["state"] = b"[" + b",".join(state.to_json() for state in states) + b"]"
        return files

    def _one(
        self, verb: str, files: Mapping[str, Any], wanted: Callable[[Message], object]
    ) -> Message:
        """The first message that holds what a verb returns; the rest of its output is drained."""
        found: Message | None = None
        error: ErrorTrace | None = None
        for message in self._messages(verb, files):
            if isinstance(message, Message):
                error = (message.trace and message.trace.error) or error
                if found is None and wanted(message) is not None:
                    found = message
        if found is None:
            raise _failure(f"`{verb}` of connector {self.name} answered nothing", error)
        return found

    def _messages(
        self, verb: str, files: Mapping[str, Any], *, withhold: bool = False
    ) -> Iterator[RawRecord | Message]:
        last_error: ErrorTrace | None = None
        with (
            private_files(self._workdir, files) as arguments,
            self._started(verb, arguments) as process,
        ):
            try:
                for line in process.lines():
                    message = decode(line)
                    if type(message) is RawRecord:
                        yield message
                        continue
                    assert isinstance(message, Message)
                    last_error = (message.trace and message.trace.error) or last_error
                    if withhold and isinstance(message, Unread) and message.log is not None:
                        message.log.message = _WITHHELD
                    yield self._masked(message)
            except SystemFailure as unreadable:
                # Of a connector that died in the middle of a line, its death is the news.
                if process.exhausted:
                    self._raise_for_exit(verb, process, last_error)
                if withhold:
                    unreadable.detail = None  # the line's beginning
                raise self._masked_failure(unreadable) from None
            self._raise_for_exit(verb, process, last_error)

    def _started(self, verb: str, arguments: Sequence[str]) -> Process:
        times: dict[str, Any] = {"deadline": self._deadline, "silence": self._heartbeat}
        if self._image is None:
            return Process([*self._command(), verb, *arguments], **times)
        run = container(self._image, Path(arguments[1]).parent if arguments else None)
        return Process([*run.command, verb, *arguments], removal=run.removal, **times)

    def _masked(self, message: Message) -> Message:
        """Free of secrets wherever a person will read it."""
        if message.log is not None:
            message.log.message = self.mask(message.log.message)
            message.log.stack_trace = self._mask_optional(message.log.stack_trace)
        error = message.trace and message.trace.error
        if error:
            error.message = self.mask(error.message)
            error.internal_message = self._mask_optional(error.internal_message)
            error.stack_trace = self._mask_optional(error.stack_trace)
        if message.connectionStatus is not None:
            status = message.connectionStatus
            status.message = self._mask_optional(status.message)
        return message

    def _masked_failure(self, failure: SystemFailure) -> SystemFailure:
        return SystemFailure(
            self.mask(failure.message),
            guidance=failure.guidance,
            detail=self._mask_optional(failure.detail),
        )

    def _mask_optional(self, text: str | None) -> str | None:
        return None if text is None else self.mask(text)

    def _raise_for_exit(self, verb: str, process: Process, error: ErrorTrace | None) -> None:
        code = process.wait()
        if code != 0:
            stderr = "\n".join(map(self.mask, self.mask(process.stderr_tail).splitlines()))
            raise _failure(f"`{verb}` of connector {self.name} {_ending(code)}", error, stderr)


def _failure(ending: str, error: ErrorTrace | None, stderr: str = "") -> EltError:
    """What a connector's last ERROR trace says, and how it ended."""
    tail = f"its stderr ended with:\n{stderr}" if stderr else None
    if error is None:
        return SystemFailure(ending, detail=tail)
    parts = [error.internal_message, error.stack_trace, tail]
    return error_class(error.failure_type)(
        f"{error.message} ({ending})", detail="\n".join(filter(None, parts)) or None
    )


def validate_config(config: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> None:
    """Check a config against a `connectionSpecification`.

    Raises:
        ConfigError: lists every violation, and shows no value of the config.
        SystemFailure: the specification is no JSON schema.
    """
    try:
        found = violations(config, schema)
    except ValueError as error:
        raise SystemFailure(
            f"the specification of connector {name} is no JSON schema: {error}"
        ) from None
    if found:
        lines = "\n".join(f"  - {line}" for line in found)
        raise ConfigError(
            f"the config of connector {name} breaks its specification:\n{lines}",
            guidance="correct `source.config` in the connection's YAML",
        )


@contextlib.contextmanager
def private_files(workdir: Path, files: Mapping[str, Any]) -> Iterator[list[str]]:
    """Write each value to a file that only this user can read; yields `--<name> <path>` arguments."""
    if not files:
        yield []
        return
    with scratch(workdir, "private") as folder:
        arguments = []
        for name, value in files.items():
            path = folder / f"{name}.json"
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(content)
            arguments += [f"--{name}", str(path)]
        yield arguments


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {_signal_name(-code)}"
    # A shell, or docker, tells in this way how its child ended.
    after = f" (128 + {_signal_name(code - 128)})" if code > 128 else ""
    return f"ended with exit code {code}{after}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
