"""Run a Singer tap as a connector, for the kind `tap:`; `elt new` asks whether a program is one.

A tap sends no stream statuses and has no check. Exit code 0 means success.

Spec: Singer, running taps (`--config`, `--discover`, `--catalog` or `--properties`, `--state`); Singer SDK
(`--about`).
"""

from __future__ import annotations

import codecs
import contextlib
import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.protocol.catalog import (
    Catalog,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamDescriptor,
)
from elt_assets.protocol.lines import MAX_LINE
from elt_assets.protocol.message_output import stream_status
from elt_assets.protocol.messages import (
    COMPLETE,
    ConnectionStatus,
    ConnectorConfig,
    Control,
    Message,
    RawRecord,
    Received,
    Record,
    Specification,
    State,
)
from elt_assets.protocol.routing import singer_runs
from elt_assets.protocol.singer import ReadFile, Translator, state_value
from elt_assets.protocol.singer_catalog import (
    catalog_options,
    find_shared_names,
    map_record_names,
    read_catalog,
    selection,
)
from elt_assets.protocol.wire import as_read
from elt_assets.runner.config import CONNECTOR_CONFIG
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import ConnectorLog
from elt_assets.runner.failures import raise_for_exit
from elt_assets.runner.process import Process
from elt_assets.runner.references import HIDDEN_ENDING
from elt_assets.runner.singer_batches import BatchFiles, file_root
from elt_assets.runner.source_kind import private_files
from elt_assets.storage.staging import MissingFile, StagedFiles

_ABOUT_SECONDS = 120
"""Time limit for `--about`."""
_HELP_SECONDS = 60
"""Time limit for `--help`."""
_AIRBYTE_VERBS = re.compile(r"\bspec\b.*\bcheck\b.*\bdiscover\b.*\bread\b", re.DOTALL)
"""Pattern of the help of an Airbyte source: its commands."""
_MAX_CONFIG_GROWTH = 1 << 20
"""Maximum number of bytes by which a tap may make its config file larger."""
_MAX_OUTPUT = 1 << 30
"""Maximum number of bytes of a catalog or another document."""
_ANY = "#/definitions/elt_any"
_NAMED_SECRETS = {
    "patternProperties": {HIDDEN_ENDING: {"airbyte_secret": True}},
    "additionalProperties": {"$ref": _ANY},
    "items": {"$ref": _ANY},
}


class SingerTap(Connector):
    """A tap and its config, with the interface of a connector."""

    @cached_property
    def specification(self) -> Specification:
        """The specification of the tap's settings; without support of `--about`, it accepts any config.

        A value is secret if the tap declares it, or if its name is typical of secrets.
        """
        schema = _specification(self._about)
        return Specification(connectionSpecification=schema, supportsIncremental=True)

    def check(self) -> ConnectionStatus:
        """Return whether the tap can discover its streams."""
        try:
            self.discover()
        except SystemFailure as failed:
            reasons = [failed.message, *(failed.detail or "").splitlines()[-1:]]
            return ConnectionStatus(status="FAILED", message=": ".join(reasons))
        return ConnectionStatus(status="SUCCEEDED")

    def discover(self) -> Catalog:
        """Return the tap's catalog. The name of a stream is its `tap_stream_id`.

        Raises:
            SystemFailure: the exit code is not 0, or the tap printed no catalog.
        """
        output = _document(self._output("discover", {"config": self.config}))
        try:
            return read_catalog(output)
        except SystemFailure as failed:
            raise ConnectorLog(self.mask, self.spec.title).failure(failed) from None

    def read(
        self,
        catalog: ConfiguredCatalog,
        states: Sequence[State] = (),
        *,
        withhold: bool = False,
        whole: bool = False,
        runs: bool = False,
    ) -> Generator[Received, None, None]:
        """Read streams, as `Connector.read`.

        After exit code 0, each stream whose schema the tap has sent gets the status COMPLETE.

        Raises:
            ConfigError: the catalog is not a tap's; or the tap sent a BATCH that may not be read.
        """
        config = self.config
        # `--about` is of the Singer SDK, whose taps have `--catalog`; the help of others names the option.
        options = ["catalog"] if self._about else catalog_options(self._help)
        files: dict[str, Any] = {
            "config": config,
            **dict.fromkeys(options, selection(catalog.streams)),
        }
        state = state_value(states)
        if state is not None:
            files["state"] = state
        batches = _batch_files(
            self._settings.resolve_written(self.specification.connectionSpecification)
        )
        reading = _Reading(catalog.streams, batches, self.mask, whole=whole, runs=runs)
        yield from self._messages("read", files, withhold=withhold, decoder=reading.messages)
        yield from reading.statuses()

    @property
    def is_tap(self) -> bool:
        """Return whether the program's `--help` is that of a tap, and not that of an Airbyte source."""
        return "--discover" in self._help and not _AIRBYTE_VERBS.search(self._help)

    @cached_property
    def _help(self) -> str:
        """The output of `--help`; empty if the program does not support it."""
        try:
            with self.read_within(_HELP_SECONDS):
                return self._output("help", {}).decode(errors="replace")
        except EltError:
            return ""

    @contextlib.contextmanager
    def _start(self, verb: str, arguments: Sequence[str], **stdin: Any) -> Iterator[Process]:
        """Start the tap, and store what it changes in its config file: a renewed single-use credential."""
        files = dict(zip(arguments[::2], arguments[1::2], strict=True))
        path = files.get("--config")
        before = b"" if path is None else Path(path).read_bytes()
        folder = None if path is None else StagedFiles(Path(path).parent, f"the tap {self.name}")
        try:
            with super()._start(verb, arguments, **stdin) as process:
                yield process
        finally:
            if path is not None and folder is not None:
                with contextlib.suppress(MissingFile):
                    after = folder.read(path, len(before) + _MAX_CONFIG_GROWTH)
                    self._store_changes(json.loads(before), after)

    def _store_changes(self, before: dict[str, Any], content: bytes) -> None:
        """Persist the tap's changes to its config file; an incomplete file changes nothing."""
        try:
            after = json.loads(content)
        except (ValueError, RecursionError):
            after = None
        if not isinstance(after, dict):
            self._warn(
                f"the tap {self.name} left a config file that is not a JSON object: its changes are not kept"
            )
            return
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        if changed:
            update = Control(type=CONNECTOR_CONFIG, connectorConfig=ConnectorConfig(config=changed))
            self._apply_control(update, before)

    def _verb_arguments(self, verb: str, files: Sequence[str]) -> Sequence[str]:
        flags = {
            "read": [],
            "discover": ["--discover"],
            "about": ["--about", "--format=json"],
            "help": ["--help"],
        }
        if verb not in flags:
            raise ConfigError(
                f"the tap {self.name} has no `{verb}`: Singer taps do not support it",
                guidance="use an Airbyte connector for it",
            )
        return [*files, *flags[verb]]

    @cached_property
    def _about(self) -> Mapping[str, Any]:
        """The schema of the tap's settings; empty if the tap does not support `--about`.

        Raises:
            ConfigError: the tap cannot be started.
            TransientError: the tap cannot be started, or takes too long: its secret settings are unknown.
        """
        try:
            with self.read_within(_ABOUT_SECONDS):
                about = json.loads(as_read(_document(self._output("about", {}))))
            settings = about.get("settings")
        except (SystemFailure, ValueError, AttributeError, RecursionError):
            return {}
        return settings if isinstance(settings, dict) else {}

    def _output(self, verb: str, files: Mapping[str, Any]) -> bytes:
        """Return all output of a verb."""
        log = ConnectorLog(self.mask, self.spec.title)
        with (
            private_files(self.spec.workdir, files) as arguments,
            self._start(verb, arguments) as running,
        ):
            try:
                text = b"\n".join(_limit_output(running.lines()))
                running.wait()
            except SystemFailure as failed:
                raise log.failure(failed) from None
            for message in (*log.stderr(*running.new_stderr()), *log.end()):
                self._log_message(message)
            raise_for_exit(self._process_name(verb), running, None, log)
        return text


class _Reading:
    """Translates the lines of one read into messages."""

    def __init__(
        self,
        streams: Sequence[ConfiguredStream],
        batches: ReadFile | None,
        mask: Callable[[str], str],
        *,
        whole: bool,
        runs: bool,
    ):
        self._selected = {stream.stream.name for stream in streams}
        translator = Translator(map_record_names(streams), batches, streams=self._selected)
        self._translate = translator.messages
        self._runs = singer_runs(translator) if runs and not whole else None
        self._shared_names = find_shared_names(streams)
        self._mask = mask
        self._whole = whole
        self._with_schema: dict[str, None] = {}

    def messages(self, process: Process) -> Iterator[Received]:
        try:
            for message in self._decode(process):
                if type(message) is RawRecord and self._whole:
                    yield _whole_record(message)
                    continue
                if isinstance(message, Message) and message.catalog is not None:
                    for stream in message.catalog.streams:
                        self._add_schema(stream.name)
                yield message
        except ConfigError as error:
            raise ConfigError(self._mask(error.message), guidance=error.guidance) from None

    def _decode(self, process: Process) -> Iterator[Received]:
        if self._runs is not None:
            for block in process.blocks():
                yield from self._runs.messages(block)
        else:
            for line in process.lines():
                yield from self._translate(line)

    def statuses(self) -> Iterator[Message]:
        """Return the status COMPLETE for each selected stream whose schema the tap has sent."""
        return (stream_status(StreamDescriptor(name=name), COMPLETE) for name in self._with_schema)

    def _add_schema(self, name: str) -> None:
        """Remember that the tap has sent the schema of a stream.

        Raises:
            ConfigError: the tap uses this name for several of the streams.
        """
        if name in self._selected:
            self._with_schema[name] = None
        if name in self._shared_names:
            ids = ", ".join(map(repr, self._shared_names[name]))
            raise ConfigError(
                f"the tap sends streams {ids} under one name, {name!r}: their records cannot be separated",
                guidance="remove `read_together`, so that a separate process reads each stream",
            )


def _whole_record(record: RawRecord) -> Message:
    """Return a record as an Airbyte message. It requires a time: a missing one becomes the present time."""
    emitted_at = time.time() * 1000 if record.emitted_at is None else record.emitted_at
    whole = Record(stream=record.stream, data=record.data, emitted_at=int(emitted_at))
    return Message(type="RECORD", record=whole)


def _batch_files(config: Mapping[str, Any]) -> ReadFile | None:
    """Return a reader for the folder of batch files in the config; None if the config has no such folder.

    Args:
        config: the config without the changes that the tap made: it may not choose the folder.
    """
    setting: Any = config
    for key in ("batch_config", "storage", "root"):
        setting = setting.get(key) if isinstance(setting, Mapping) else None
    root = file_root(setting)
    return None if root is None else BatchFiles([root], MAX_LINE)


def _limit_output(lines: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for line in lines:
        size += len(line)
        if size > _MAX_OUTPUT:
            raise SystemFailure(
                f"the tap printed more than {_MAX_OUTPUT >> 20} MiB",
                guidance="reduce the number of tables that the tap discovers, or report it to the "
                "maintainer of the tap",
            )
        yield line


def _document(text: bytes) -> bytes:
    """Return the JSON object in a tap's output; some taps print other lines before it."""
    text = text.removeprefix(codecs.BOM_UTF8)
    start = 0 if text.startswith(b"{") else text.find(b"\n{") + 1
    return text[start:]


def _specification(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `connectionSpecification` of a tap's settings, with secrets marked as in Airbyte."""
    marked = _mark_secrets(settings)
    definitions, parts = marked.get("definitions"), marked.get("allOf")
    return {
        "type": "object",
        **marked,
        "definitions": {
            **(definitions if isinstance(definitions, dict) else {}),
            "elt_any": _NAMED_SECRETS,
        },
        "allOf": [*(parts if isinstance(parts, list) else []), {"$ref": _ANY}],
    }


def _mark_secrets(schema: Any) -> Any:
    """Return a schema with its secrets marked, and without alternatives that are not schemas.

    The SDK's own settings contain such an alternative.
    """
    if isinstance(schema, list):
        return [_mark_secrets(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    marked = {key: _mark_secrets(part) for key, part in schema.items()}
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(marked.get(key), list):
            marked[key] = [part for part in marked[key] if isinstance(part, (dict, bool))]
    if marked.get("secret") is True or marked.get("writeOnly") is True:
        marked["airbyte_secret"] = True
    return marked
