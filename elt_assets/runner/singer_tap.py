"""A Singer tap as a connector.

spec: Singer, running taps (`--config`, `--discover`, `--catalog` or `--properties`, `--state`); Singer SDK
(`--about`). A tap has no statuses and no check: it has succeeded when its exit code is 0.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.protocol.airbyte.catalog import (
    Catalog,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamDescriptor,
)
from elt_assets.protocol.airbyte.lines import MAX_LINE
from elt_assets.protocol.airbyte.message_factory import stream_status
from elt_assets.protocol.airbyte.messages import (
    COMPLETE,
    ConnectionStatus,
    ConnectorConfig,
    Control,
    Message,
    RawRecord,
    Record,
    Specification,
    State,
)
from elt_assets.protocol.singer.catalog import read_catalog, selection, shared_names, stream_names
from elt_assets.protocol.singer.messages import ReadFile, Translator, state_value
from elt_assets.runner.config.settings import CONNECTOR_CONFIG
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import ConnectorLog
from elt_assets.runner.ending import raise_for_end
from elt_assets.runner.process.argument_files import private_files
from elt_assets.runner.process.child import Process
from elt_assets.runner.process.singer_batches import BatchFiles, file_root

_ABOUT = 120
"""Seconds that a tap may take to tell of itself."""
_MOST_OUTPUT = 1 << 30
"""Bytes that a catalog may have."""
_HIDDEN = (
    r"(?i)(password|passwd|passphrase|pwd|secret|token|credentials?"
    r"|(api|private|access|secret|encryption|signing)[_-]?key)s?$"
)
"""How the names of settings end whose values are secret, whether or not the tap says so."""
_ANY = "#/definitions/elt_any"
_NAMED_SECRETS = {
    "patternProperties": {_HIDDEN: {"airbyte_secret": True}},
    "additionalProperties": {"$ref": _ANY},
    "items": {"$ref": _ANY},
}


class SingerTap(Connector):
    """A tap and its config, with the verbs of any connector."""

    @cached_property
    def specification(self) -> Specification:
        """What the tap says of its settings, if it is one that can be asked; else any config will do.

        Values are secret where the tap says so, and under names that secrets have.
        """
        schema = _specification(self._about)
        return Specification(connectionSpecification=schema, supportsIncremental=True)

    def check(self) -> ConnectionStatus:
        """Whether the tap can discover its streams."""
        try:
            self.discover()
        except SystemFailure as failed:
            told = [failed.message, *(failed.detail or "").splitlines()[-1:]]
            return ConnectionStatus(status="FAILED", message=": ".join(told))
        return ConnectionStatus(status="SUCCEEDED")

    def discover(self) -> Catalog:
        """Its catalog; a stream's name is its `tap_stream_id`.

        Raises:
            SystemFailure: it ended with another exit code than 0, or printed no catalog.
        """
        return read_catalog(_document(self._output("discover", {"config": self.config})))

    def read(
        self,
        catalog: ConfiguredCatalog,
        states: Sequence[State] = (),
        *,
        withhold: bool = False,
        whole: bool = False,
    ) -> Generator[RawRecord | Message, None, None]:
        """As `Connector.read`. Each stream of which the tap has told the schema is COMPLETE when it has
        ended well.

        Raises:
            ConfigError: the catalog is not of a tap; or the tap sent a BATCH from where none may be read.
        """
        config = self.config
        chosen = dict.fromkeys(self._catalog_options, selection(catalog.streams))
        files: dict[str, Any] = {"config": config, **chosen}
        state = state_value(states)
        if state is not None:
            files["state"] = state
        reading = _Reading(catalog.streams, config, self.mask, whole=whole)
        yield from self._messages("read", files, withhold=withhold, said=reading.said)
        yield from reading.completed()

    @cached_property
    def _catalog_options(self) -> Sequence[str]:
        """Which options take the catalog: what is selected is read by `--properties` in old taps, of which
        some have `--catalog` too and do not look at it."""
        if self._about:
            return ["catalog"]
        self._deadline = time.monotonic() + _ABOUT
        try:
            text = self._output("help", {}).decode(errors="replace")
        except EltError:
            return ["catalog"]
        finally:
            self._deadline = None
        if "--properties" not in text:
            return ["catalog"]
        return ["catalog", "properties"] if "--catalog" in text else ["properties"]

    @contextmanager
    def _started(self, verb: str, arguments: Sequence[str], **fed: Any) -> Iterator[Process]:
        """A tap that renews a credential, and can use it once, writes it to its config file."""
        files = dict(zip(arguments[::2], arguments[1::2], strict=True))
        path = files.get("--config")
        before = None if path is None else _json_object(Path(path))
        try:
            with super()._started(verb, arguments, **fed) as process:
                yield process
        finally:
            if path is not None and before is not None:
                self._keep(before, _json_object(Path(path)))

    def _keep(self, before: dict[str, Any], after: Mapping[str, Any] | None) -> None:
        """Persist what the tap changed in its config file. One that cannot be read was cut off."""
        changed = {name: of for name, of in (after or {}).items() if before.get(name) != of}
        if changed:
            update = Control(type=CONNECTOR_CONFIG, connectorConfig=ConnectorConfig(config=changed))
            self._obey(update, before)

    def _words(self, verb: str, arguments: Sequence[str]) -> Sequence[str]:
        flags = {
            "read": [],
            "discover": ["--discover"],
            "about": ["--about", "--format=json"],
            "help": ["--help"],
        }
        if verb not in flags:
            raise ConfigError(f"the tap {self.name} has no `{verb}`: that is a connector's")
        return [*arguments, *flags[verb]]

    @cached_property
    def _about(self) -> Mapping[str, Any]:
        """The schema of its settings; of a tap that cannot be asked, an empty one.

        Raises:
            ConfigError: it cannot be had at all.
            TransientError: likewise; or it took too long, and which of its settings are secret is not known.
        """
        self._deadline = time.monotonic() + _ABOUT
        try:
            told = json.loads(_document(self._output("about", {})))
            settings = told.get("settings")
        except (SystemFailure, ValueError, AttributeError, RecursionError):
            return {}
        finally:
            self._deadline = None
        return settings if isinstance(settings, dict) else {}

    def _output(self, verb: str, files: Mapping[str, Any]) -> bytes:
        """All that it prints."""
        log = ConnectorLog(self.mask, self.name)
        with (
            private_files(self._workdir, files) as arguments,
            self._started(verb, arguments) as running,
        ):
            try:
                text = b"\n".join(_bounded(running.lines()))
                running.wait()
            except SystemFailure as failed:
                raise log.failure(failed) from None
            for message in (*log.stderr(*running.new_stderr()), *log.end()):
                self._heard(message)
            raise_for_end(self._named(verb), running, None, log)
        return text


class _Reading:
    """What the lines of one read say, as the tap says it."""

    def __init__(
        self,
        streams: Sequence[ConfiguredStream],
        config: Mapping[str, Any],
        mask: Callable[[str], str],
        *,
        whole: bool,
    ):
        self._wanted = {stream.stream.name for stream in streams}
        names, files = stream_names(streams), _batch_files(config)
        self._translate = Translator(names, files, streams=self._wanted).messages
        self._shared_names = shared_names(streams)
        self._mask = mask
        self._whole = whole
        self._heard: dict[str, None] = {}

    def said(self, process: Process) -> Iterator[RawRecord | Message]:
        try:
            for line in process.lines():
                for message in self._translate(line):
                    if type(message) is RawRecord:
                        yield _whole(message) if self._whole else message
                        continue
                    assert isinstance(message, Message)
                    for stream in () if message.catalog is None else message.catalog.streams:
                        self._hear(stream.name)
                    yield message
        except ConfigError as refused:
            raise ConfigError(self._mask(refused.message), guidance=refused.guidance) from None

    def completed(self) -> Iterator[Message]:
        """Of each stream of which the tap has told the schema: it has ended well."""
        return (
            stream_status(StreamDescriptor(name=name), COMPLETE)
            for name in self._heard
            if name in self._wanted
        )

    def _hear(self, name: str) -> None:
        """Note that the tap has told a stream's schema.

        Raises:
            ConfigError: it calls several of the streams so.
        """
        self._heard[name] = None
        if name in self._shared_names:
            ids = ", ".join(map(repr, self._shared_names[name]))
            raise ConfigError(
                f"the tap calls the streams {ids} {name!r} alike: whose its records are cannot be told",
                guidance="leave out `read_together`: then each of them is read by a process of its own",
            )


def _whole(record: RawRecord) -> Message:
    """To be sent on, in Airbyte's words, which ask for a time."""
    at = time.time() * 1000 if record.emitted_at is None else record.emitted_at
    whole = Record(stream=record.stream, data=record.data, emitted_at=int(at))
    return Message(type="RECORD", record=whole)


def _batch_files(config: Mapping[str, Any]) -> ReadFile | None:
    """Reads the files of a BATCH from where the tap is told to write them, if it is told so."""
    found: Any = config
    for step in ("batch_config", "storage", "root"):
        found = found.get(step) if isinstance(found, Mapping) else None
    root = file_root(found)
    return None if root is None else BatchFiles([root], MAX_LINE)


def _json_object(path: Path) -> dict[str, Any] | None:
    """Return the object that a file holds; None if it holds none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _bounded(lines: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for line in lines:
        size += len(line)
        if size > _MOST_OUTPUT:
            raise SystemFailure(f"the tap printed more than {_MOST_OUTPUT >> 20} MiB")
        yield line


def _document(text: bytes) -> bytes:
    """The JSON object in what a tap printed: some print a greeting before it."""
    start = 0 if text.startswith(b"{") else text.find(b"\n{") + 1
    return text[start:]


def _specification(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A `connectionSpecification` of a tap's settings, its secrets marked as Airbyte marks them."""
    marked = _marked(settings)
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


def _marked(schema: Any) -> Any:
    """Also without options that are no schemas: the SDK's own settings have one."""
    if isinstance(schema, list):
        return [_marked(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: _marked(part) for key, part in schema.items()}
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(found.get(key), list):
            found[key] = [part for part in found[key] if isinstance(part, (dict, bool))]
    if found.get("secret") is True or found.get("writeOnly") is True:
        found["airbyte_secret"] = True
    return found
