"""A connection as people write it: the attributes of `defs.yaml`, and the catalog beside it.

Loading one reads two files and nothing else: no process, no network, no secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import (
    INCREMENTAL,
    AirbyteStream,
    Catalog,
    ConfiguredStream,
    StreamId,
)

CATALOG_FILE = "catalog.json"
DEFINITION_FILE = "defs.yaml"
COMPONENT = "elt_assets.ConnectionComponent"
SOURCE_KINDS = ("connector", "command", "package", "image", "manifest", "tap")
_NAME = r"^[A-Za-z0-9_]+$"

FieldName = Annotated[str, Field(min_length=1)]
FieldPath = Annotated[list[FieldName], Field(min_length=1)]


class Written(BaseModel):
    """Base of everything written by hand: an unknown key is refused, with the nearest known one."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            known = set(cls.model_fields)
            unknown = [key for key in value if key not in known]
            if unknown:
                label = f" of {value['name']!r}" if "name" in value else ""
                hints = "; ".join(_suggest(str(key), known) for key in unknown)
                raise ValueError(f"{cls.label()}{label}: {hints}")
        return value

    @classmethod
    def label(cls) -> str:
        return cls.__name__.lower()


def _suggest(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(sorted(known))}"
    return f"unknown key {key!r}; {meant}"


class Source(Written):
    """Where records come from: exactly one kind of connector, and its config."""

    connector: str | None = None
    command: list[str] | None = Field(default=None, min_length=1)
    package: str | None = None
    image: str | None = None
    manifest: str | None = None
    tap: list[str] | None = Field(default=None, min_length=1)
    config: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> Source:
        given = [kind for kind in SOURCE_KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(
                f"source: exactly one of {', '.join(SOURCE_KINDS)} is wanted, "
                f"{' and '.join(given) or 'none'} is given"
            )
        return self

    @property
    def kind(self) -> str:
        return next(kind for kind in SOURCE_KINDS if getattr(self, kind) is not None)


class Stream(Written):
    """One stream that is wanted, and how."""

    name: str
    namespace: str | None = None
    sync_mode: Literal["full_refresh", "incremental"] = "full_refresh"
    destination_sync_mode: Literal["append", "overwrite", "append_dedup", "overwrite_dedup"] = (
        "append"
    )
    cursor_field: FieldPath | None = None
    primary_key: Annotated[list[FieldPath], Field(min_length=1)] | None = None

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)


class Checkpoint(Written):
    """When a commit is due: at the first state after any of these is reached."""

    rows: int = Field(default=1_000_000, gt=0)
    megabytes: int = Field(default=256, gt=0)
    seconds: float = Field(default=300, gt=0)


class Connection(Written):
    """The attributes of a `ConnectionComponent`."""

    name: str = Field(pattern=_NAME)
    namespace: str | None = Field(default=None, pattern=_NAME)
    source: Source
    streams: list[Stream] = Field(min_length=1)
    schedule: str | None = None
    read_together: bool = False
    checkpoint: Checkpoint = Checkpoint()

    @property
    def lake_namespace(self) -> str:
        """The first level under the lake's root."""
        return self.namespace or self.name


def load_connection(folder: Path) -> Connection:
    """Read `<folder>/defs.yaml`.

    Raises:
        ConfigError: the file is missing, not YAML, or not a connection; names file and field.
    """
    path = folder / DEFINITION_FILE
    try:
        # From the file, not from its text: the parser would quote lines of that in its errors.
        with path.open(encoding="utf-8") as file:
            document = yaml.load(file, _Loader)  # noqa: S506 - a safe one
    except FileNotFoundError:
        known = sorted(p.parent.name for p in folder.parent.glob(f"*/{DEFINITION_FILE}"))
        raise ConfigError(
            f"there is no connection {folder.name!r}: {path} does not exist",
            guidance=f"known connections: {', '.join(known)}" if known else None,
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(document, Mapping) or document.get("type") != COMPONENT:
        raise ConfigError(
            f"{path} is no connection", guidance=f"it should start `type: {COMPONENT}`"
        )
    return parse_connection(document.get("attributes"), path)


def parse_connection(attributes: Any, path: Path) -> Connection:
    """The attributes that `path` holds, as a connection.

    Raises:
        ConfigError: lists everything that is wrong, and quotes no value, which may be a secret.
    """
    if not isinstance(attributes, Mapping):
        raise ConfigError(
            f"{path}: `attributes` is missing",
            guidance="it should hold `name`, `source`, `streams`",
        )
    try:
        return Connection.model_validate(attributes)
    except ValidationError as error:
        lines = [
            f"  - {_place(e['loc'], attributes)}{e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigError(f"{path} is not valid:\n" + "\n".join(lines)) from None


class _Loader(yaml.SafeLoader):
    """As Dagster reads YAML: a date stays the text that was written."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _place(path: Sequence[str | int], attributes: Mapping[str, Any]) -> str:
    """Where in the YAML, a stream by its name."""
    at, words = list(path), []
    if len(at) > 1 and at[0] == "streams":
        written = attributes["streams"][at[1]]
        name = written.get("name") if isinstance(written, Mapping) else None
        words = [f"stream {name!r}: "] if name is not None else [f"streams[{at[1]}]: "]
        at = at[2:]
    return "".join([*words, f"{'.'.join(map(str, at))}: " if at else ""])


def load_catalog(folder: Path) -> Catalog:
    """Read the `catalog.json` that `elt discover` wrote beside the YAML.

    Raises:
        ConfigError: it is missing or no catalog.
    """
    path = folder / CATALOG_FILE
    remedy = f"write it with `elt discover {folder.name}`"
    try:
        catalog = Catalog.from_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", guidance=remedy) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no valid catalog: {error}", guidance=remedy) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    return catalog


def configure(connection: Connection, catalog: Catalog) -> list[ConfiguredStream]:
    """Join what is wanted with what there is.

    Raises:
        ConfigError: one error that lists every stream that cannot be synced as written, and what to
            write instead.
    """
    problems: list[str] = []
    configured: list[ConfiguredStream] = []
    for wanted in connection.streams:
        stream = catalog.find(wanted.id)
        if stream is None:
            problems.append(_missing(wanted, catalog))
            continue
        configured.append(_configured(wanted, stream))
        found = _overridden(wanted, stream) + _problems(configured[-1])
        problems += [f"stream {str(wanted.id)!r}: {text}" for text in found]
    problems += _repeated(connection.streams)
    if connection.read_together:
        problems.append("read_together: not supported by this version; leave it out")
    if problems:
        raise ConfigError(
            f"the streams in {DEFINITION_FILE} of connection {connection.name!r} are not valid:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
        )
    return configured


def _configured(wanted: Stream, stream: AirbyteStream) -> ConfiguredStream:
    configured = ConfiguredStream(
        stream=stream,
        sync_mode=wanted.sync_mode,
        destination_sync_mode=wanted.destination_sync_mode,
        cursor_field=wanted.cursor_field,
        primary_key=wanted.primary_key,
    )
    # Connectors read the configured fields, so what is in force is written into them.
    own = stream.source_defined_cursor
    if configured.sync_mode == INCREMENTAL and (own or not configured.cursor_field):
        configured.cursor_field = stream.default_cursor_field
    if not configured.primary_key:
        configured.primary_key = stream.source_defined_primary_key
    return configured


def _missing(wanted: Stream, catalog: Catalog) -> str:
    known = [str(stream.id) for stream in catalog.streams]
    near = difflib.get_close_matches(str(wanted.id), known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, known))}"
    return f"stream {str(wanted.id)!r} is not in the catalog ({CATALOG_FILE}); {meant}"


def _overridden(wanted: Stream, stream: AirbyteStream) -> list[str]:
    """What the source defines for itself, and the YAML says otherwise."""
    found, own = [], stream.default_cursor_field
    if stream.source_defined_cursor and wanted.cursor_field not in (None, own):
        found.append(
            "cursor_field: the source defines its own cursor, which cannot be overridden; "
            + (f"write {_yaml(own)}, or leave it out" if own else "leave it out")
        )
    key = stream.source_defined_primary_key
    if key and wanted.primary_key and sorted(wanted.primary_key) != sorted(key):
        found.append(
            "primary_key: the source defines its own key, which cannot be overridden; "
            f"write {_yaml(key)}, or leave it out"
        )
    return found


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, allow_unicode=True)).strip()


def _problems(configured: ConfiguredStream) -> list[str]:
    stream, found = configured.stream, []
    if configured.sync_mode not in stream.sync_modes:
        found.append(
            f"sync_mode: {configured.sync_mode!r} is not supported by the source; "
            f"write one of {', '.join(stream.sync_modes)}"
        )
    try:
        cursor = configured.cursor
    except ConfigError as error:
        found.append(f"cursor_field: {error.message}; {error.guidance}")
        cursor = []
    if configured.sync_mode == INCREMENTAL and configured.overwrites:
        found.append(
            "sync_mode: an incremental sync sends what is new, and overwriting would keep that alone; "
            "write `sync_mode: full_refresh`, or `destination_sync_mode: append_dedup` or `append`"
        )
    if configured.deduplicates and not configured.key:
        found.append(
            f"primary_key: {configured.destination_sync_mode} needs one and the source defines none; "
            "write `primary_key: [[<field>]]`"
        )
    paths = [("cursor_field", cursor), *(("primary_key", path) for path in configured.key)]
    found += [_unknown_path(field, path, stream) for field, path in paths if _unknown(path, stream)]
    return found


def _unknown(path: Sequence[str], stream: AirbyteStream) -> bool:
    """Whether the schema has no such field. A schema that lists no properties allows any."""
    schema: Any = stream.json_schema
    for name in path:
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if not properties or not isinstance(properties, Mapping):
            return False
        if name not in properties:
            return True
        schema = properties[name]
    return False


def _unknown_path(field: str, path: Sequence[str], stream: AirbyteStream) -> str:
    known = stream.json_schema.get("properties") or {}
    return f"{field}: the stream has no field {'.'.join(path)!r}; it has {', '.join(known)}"


def _repeated(streams: Sequence[Stream]) -> list[str]:
    seen: set[StreamId] = set()
    found = []
    for stream in streams:
        if stream.id in seen:
            found.append(f"stream {str(stream.id)!r} is configured twice; remove one")
        seen.add(stream.id)
    return found
