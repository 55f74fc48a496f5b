"""Runs the connector under test, one process for each command; `Commands` and `Observations` ask for them."""

from __future__ import annotations

import copy
import datetime as dt
import json
import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Raw

from connectors.testing.comparison import value_at
from connectors.testing.options import KitOptions
from connectors.testing.process import (
    Ended,
    Listener,
    Stopped,
    converse,
    run_process,
    stop_process,
)
from connectors.testing.protocols.protocol import Protocol, SeenRecord, Transcript
from connectors.testing.slices import SliceReads
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.messages import SLICES, State
from elt_assets.protocol.specification import secret_places

MIN_SECRET = 4
"""Minimum characters of a secret that is searched for: shorter texts occur by chance."""

_MAX_CONFIG = 16 << 20
"""Maximum number of bytes of a config file that a connector changed."""
SUCCESS, FAILURE, ANY = "success", "failure", "any"
"""The ends that can be expected of a process."""

Execute = Callable[[Sequence[str], Path, Path, float], Ended]
"""Function with the arguments of `run_process`."""
Converse = Callable[[Sequence[str], Path, Path, float, Listener], Ended]
"""Function with the arguments of `converse`."""
Stop = Callable[[Sequence[str], Path, float], Stopped | None]
"""Function with the arguments of `stop_process`."""


@dataclass(frozen=True)
class Leak:
    """A secret in an output. `secret`: its place in the config; `output`: "stdout" or "stderr"."""

    secret: str
    output: str
    line: int


@dataclass(frozen=True)
class Run:
    """One process of the connector, and what it printed.

    Args:
        verb: the command: spec, help, check, discover or read.
        purpose: the command and what it was started for, for messages.
        started: the time of the start.
        ended: how it ended.
        transcript: what it printed.
        streams: the streams that it had to read.
        expected_end: SUCCESS, FAILURE (its arguments are not valid) or ANY.
        leaks: the secrets that it printed.
        slices: how its slices were read; None if it was not asked for slices.
    """

    verb: str
    purpose: str
    started: dt.datetime
    ended: Ended
    transcript: Transcript
    streams: Sequence[ConfiguredStream] = ()
    expected_end: str = SUCCESS
    leaks: Sequence[Leak] = ()
    slices: SliceReads | None = None

    @property
    def succeeded(self) -> bool:
        return self.ended.code == 0

    @cached_property
    def records(self) -> Sequence[SeenRecord]:
        """The records, with those of its slices, in the order of their lines."""
        if self.slices is None:
            return self.transcript.records
        records = [*self.transcript.records, *self.slices.records()]
        return sorted(records, key=lambda record: record.line)

    def drop_records(self) -> Run:
        """Return the process without its records, which take memory."""
        return replace(self, transcript=replace(self.transcript, records=[]), slices=None)


@dataclass(frozen=True)
class Processes:
    """How the processes of a connector are started.

    Args:
        on_run: called after each process.
        execute: runs a command; see `run_process`.
        stop: starts a command and stops it; see `stop_process`. None if its output does not reach this
            process directly, so that the command cannot be kept from its end.
        converse: runs a command that waits for its slices to be read; see `converse`. None if its stdin is
            not reached either.
    """

    on_run: Callable[[Run], None] = lambda _: None
    execute: Execute = run_process
    stop: Stop | None = stop_process
    converse: Converse | None = converse


class Connector:
    """A connector and its config. Every process is listed in `runs`, without its records.

    A change of the config by the connector (a CONTROL message, or a tap that writes to its config file) is
    used for the next process.

    Args:
        command: the program and its first arguments.
        options: its `secrets`, and the `seconds` of each process.
        processes: how processes are started.
    """

    def __init__(
        self,
        protocol: Protocol,
        command: Sequence[str],
        config: Mapping[str, Any],
        options: KitOptions,
        processes: Processes,
    ):
        self.protocol = protocol
        self.config = dict(config)
        self.runs: list[Run] = []
        self.mask = Masker()
        self.secrets: dict[str, str] = {}
        """The secrets in the config by their places; shorter ones than `MIN_SECRET` too."""
        self._command = list(command)
        self._seconds = options.seconds
        self._processes = processes
        self.can_be_stopped = processes.stop is not None
        self.module = _find_module(command)
        self.can_converse = processes.converse is not None and self.module is not None
        self._schema: Mapping[str, Any] = {}
        self._places = [tuple(place.split(".")) for place in options.secrets]
        self.learn_secrets({})

    def learn_secrets(self, schema: Mapping[str, Any]) -> None:
        """Search all further output for the values in the config that a specification marks as secret."""
        self._schema = schema
        named = [(place, value_at(self.config, place)) for place in self._places]
        for place, value in (*named, *secret_places(self.config, schema)):
            if value is not None and not isinstance(value, bool) and value != "":
                self.secrets[".".join(["config", *map(str, place)])] = str(value)
        self.mask.add(self.secrets.values())

    def run(
        self,
        verb: str,
        purpose: str,
        *,
        config: Mapping[str, Any] | None = None,
        streams: Sequence[ConfiguredStream] = (),
        states: Sequence[State] = (),
        expected_end: str = SUCCESS,
        without_file: bool = False,
        by_slices: bool = False,
    ) -> Run:
        """Start the connector and wait for its end.

        Args:
            verb: spec, help, check, discover or read.
            purpose: what it is started for, for messages.
            config: a config instead of the connector's own.
            streams: the streams to read, from `states` on.
            expected_end: SUCCESS, FAILURE or ANY.
            without_file: whether the config file does not exist.
            by_slices: whether the streams that have slices are read by them, as tasks do.

        Raises:
            ConfigError: the connector cannot be started, or a stream cannot be selected.
        """
        reads: SliceReads | None = None
        asked = [*map(_ask_for_slices, streams)] if by_slices else streams
        contents = self._contents(verb, config, asked, states)
        started = dt.datetime.now(dt.timezone.utc)
        with _files(contents) as (folder, files):
            if without_file:
                files["config"].unlink()
            stdout, stderr = folder / "stdout", folder / "stderr"
            command = [*self._command, *self.protocol.arguments(verb, files)]
            if by_slices:
                reads = self._listen(streams, folder / "slices")
            if reads is None:
                ended = self._processes.execute(command, stdout, stderr, self._seconds)
            else:
                assert self._processes.converse is not None
                ended = self._processes.converse(command, stdout, stderr, self._seconds, reads)
            transcript = self.protocol.output(verb, stdout, streams)
            changes = {m.line for m in transcript.messages if m.message.control is not None}
            leaks = [*self._leaks(stdout, changes), *self._leaks(stderr)]
            if config is None and "config" in files:
                self._update_config(transcript, files["config"])
        run = Run(verb, purpose, started, ended, transcript, streams, expected_end, leaks, reads)
        self.runs.append(run.drop_records())
        self._processes.on_run(run)
        return run

    def _listen(self, streams: Sequence[ConfiguredStream], folder: Path) -> SliceReads:
        assert self.module is not None
        folder.mkdir()
        return SliceReads(self.module, folder, self.config, streams, self._seconds)

    def stop(self, streams: Sequence[ConfiguredStream], after: float) -> Stopped | None:
        """Start a read, and send it SIGTERM while it waits for a reader of its output.

        Args:
            streams: the streams to read.
            after: the time of the signal after the start, in seconds.

        Raises:
            ConfigError: the connector cannot be started, or a stream cannot be selected.
        """
        assert self._processes.stop is not None
        with _files(self._contents("read", None, streams, ())) as (folder, files):
            command = [*self._command, *self.protocol.arguments("read", files)]
            return self._processes.stop(command, folder / "stderr", after)

    def _contents(
        self,
        verb: str,
        config: Mapping[str, Any] | None,
        streams: Sequence[ConfiguredStream],
        states: Sequence[State],
    ) -> dict[str, bytes]:
        """Return the contents of the files that are arguments of a command."""
        if verb in ("spec", "help"):
            return {}
        files = {"config": json.dumps(self.config if config is None else config).encode()}
        if verb == "read":
            files["catalog"] = self.protocol.catalog(streams)
            state = self.protocol.state(states)
            if state is not None:
                files["state"] = state
        return files

    def _leaks(self, output: Path, changes: Collection[int] = ()) -> Iterator[Leak]:
        """Yield the secrets in an output, each with the first line that it occurs in.

        Args:
            output: the file.
            changes: the lines that change the config, which they have with its secrets: the reader does not
                show them. Spec: AirbyteControlConnectorConfigMessage.
        """
        searched = {
            place: SecretSearch(secret)
            for place, secret in self.secrets.items()
            if len(secret) >= MIN_SECRET
        }
        with output.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines if searched else (), 1):
                sought = {} if number in changes else searched
                for place in [place for place, search in sought.items() if search(line)]:
                    del searched[place]
                    yield Leak(place, output.name, number)

    def _update_config(self, transcript: Transcript, path: Path) -> None:
        controls = (seen.message.control for seen in transcript.messages)
        updates = [
            control.connectorConfig.config
            for control in controls
            if control and control.connectorConfig
        ]
        for update in (_read_changed_config(path), *updates):
            self.config |= update
        self.learn_secrets(self._schema)


def _read_changed_config(path: Path) -> dict[str, Any]:
    """Return the config in a file that the connector may have replaced; empty if there is none.

    A link is not followed, and a pipe or a device is not waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}
            config = json.loads(file.read(_MAX_CONFIG))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _find_module(command: Sequence[str]) -> str | None:
    """Return the module that a command runs with Python; None if it runs something else."""
    names = [Path(word).name for word in command[:-1]]
    before = next((n for n, name in enumerate(names) if name in ("-m", "module_start")), None)
    return None if before is None else command[before + 1]


def _ask_for_slices(stream: ConfiguredStream) -> ConfiguredStream:
    asked = copy.copy(stream)
    asked.extra = {**stream.extra, SLICES: Raw(b"true")}
    return asked


class SecretSearch:
    """Searches texts for a secret, also if it is encoded for a URL, in JSON or in base64."""

    def __init__(self, secret: str):
        self._secret = secret
        self._mask = Masker([secret])

    def __call__(self, line: str) -> bool:
        """Return whether the secret is in a line."""
        # The masker also masks passwords in URLs, and secrets that are cut off at the end of a long text.
        plain = line.replace("://", ": //").replace(":\\/\\/", ": \\/\\/").rstrip("\n") + "\n"
        return self._secret in line or self._mask(plain) != plain


@contextmanager
def _files(contents: Mapping[str, bytes]) -> Iterator[tuple[Path, dict[str, Path]]]:
    """Yield a private folder, and the files with these contents in it by their names."""
    with tempfile.TemporaryDirectory(prefix="connector-test-") as name:
        folder = Path(name)
        yield (
            folder,
            {file: _write(folder / f"{file}.json", text) for file, text in contents.items()},
        )


def _write(path: Path, content: bytes) -> Path:
    """Write a file that only this user can read, and return its path."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path
