"""Catalogs: the streams that a source offers, those configured for a sync, and their destination sync modes.

Used by most packages, and by connectors.

First `SyncMode`: what connections, relays and tables ask about a mode. `lake.merge.key_order` defines how a
commit of a mode changes a table. Packages add modes by entry points of `GROUP`: each names a module with a
`MODE` and a `merge`. Then the streams and the two catalogs; at the end the readers of the files that a
connector gets as arguments, its config and the configured catalog.

Spec: Airbyte Protocol, Catalog; additions of 0.9 (generations), 0.10 (is_resumable), 0.15 (files);
Destination Sync Modes; Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.json_schema import compose_schema, shallow
from elt_assets.protocol.wire import W, Wire, read

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


APPEND = "append"
OVERWRITE = "overwrite"
APPEND_DEDUP = "append_dedup"
OVERWRITE_DEDUP = "overwrite_dedup"
SOFT_DELETE = "soft_delete"

GROUP = "elt_assets.sync_modes"


@dataclass(frozen=True)
class SyncMode:
    """The properties of a destination sync mode."""

    name: str
    deduplicates: bool = False  # the table keeps one row per primary key, so the stream needs one
    overwrites: bool = False  # each full refresh replaces all rows
    keeps_deleted: bool = False  # rows stay that the source has deleted
    # The mode is a member of the protocol's enumeration that readers of any age know.
    is_standard: bool = True
    # The mode used instead for a partition whose rows each sync replaces.
    partition_mode: str = OVERWRITE
    # The mode that a source gets instead, since many sources refuse modes that were added later.
    source_mode: str | None = None
    # The mode that, with a new generation, has the same effect in a destination that does not support this
    # one.
    generation_mode: str | None = None


def find_added_modes() -> Mapping[str, EntryPoint]:
    """Return the modes that installed packages add, by name."""
    entry_points = import_module("importlib.metadata").entry_points
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@functools.cache
def find_modes() -> Mapping[str, SyncMode]:
    """Return all modes, by name. A source needs none of them: packages are searched with the first call."""
    modes = [
        SyncMode(APPEND),
        SyncMode(OVERWRITE, overwrites=True),
        SyncMode(APPEND_DEDUP, deduplicates=True, partition_mode=OVERWRITE_DEDUP),
        SyncMode(
            OVERWRITE_DEDUP,
            deduplicates=True,
            overwrites=True,
            is_standard=False,
            partition_mode=OVERWRITE_DEDUP,
            source_mode=OVERWRITE,
            generation_mode=APPEND_DEDUP,
        ),
        SyncMode(SOFT_DELETE, deduplicates=True, keeps_deleted=True, is_standard=False),
        *(entry.load().MODE for entry in find_added_modes().values()),
    ]
    return MappingProxyType({mode.name: mode for mode in modes})


FULL_REFRESH = "full_refresh"
INCREMENTAL = "incremental"


DELETED_AT = "_ab_cdc_deleted_at"
DELETE_MARKERS = (DELETED_AT, "_sdc_deleted_at")
"""Fields that make a record a delete marker if they are set: of Airbyte's CDC sources and of Singer taps."""

FieldPath = list[str]


class StreamDescriptor(Wire):
    """The name and the namespace of a stream. Any UTF-8 string is valid, including the empty one."""

    name: str
    namespace: str | None = None

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)


class StreamId(tuple[str, "str | None"]):
    """The key by which a stream is looked up: (name, namespace)."""

    __slots__ = ()

    def __new__(cls, name: str, namespace: str | None = None) -> StreamId:
        return super().__new__(cls, (name, namespace))

    @property
    def name(self) -> str:
        return self[0]

    @property
    def namespace(self) -> str | None:
        return self[1]

    @property
    def descriptor(self) -> StreamDescriptor:
        return StreamDescriptor(name=self.name, namespace=self.namespace)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace is not None else self.name

    @property
    def quoted(self) -> str:
        """The name in a unique form: a part that is empty or has a dot or a double quote is in double quotes,
        and the double quotes inside it are doubled."""
        return ".".join(_quote(part) for part in (self.namespace, self.name) if part is not None)


def _quote(part: str) -> str:
    if part and not set(part) & {".", '"'}:
        return part
    return '"{}"'.format(part.replace('"', '""'))


def stream_names(streams: Collection[StreamId]) -> dict[StreamId, str]:
    """Return the name of each of a connection's streams for users: NAME or NAMESPACE.NAME. A stream gets its
    `quoted` name if two streams have the same name, or if the name has a double quote."""
    count = Counter(map(str, streams))
    unique = {name for name in count if count[name] == 1 and '"' not in name}
    return {stream: str(stream) if str(stream) in unique else stream.quoted for stream in streams}


class _ShallowWire(Wire):
    """A JSON object that contains JSON schemas, of which only `shallow` ones are read."""

    @classmethod
    def from_json(cls: type[W], data: bytes | str | Raw) -> W:
        return super().from_json(shallow(data.encode() if isinstance(data, str) else bytes(data)))


class AirbyteStream(Wire):
    """A stream that a source offers. It is read-only after discovery. Its schema is `compose_schema`."""

    name: str
    json_schema: dict[str, Any]
    supported_sync_modes: list[str] | None = None
    source_defined_cursor: bool | None = None
    default_cursor_field: FieldPath | None = None
    source_defined_primary_key: list[FieldPath] | None = None
    namespace: str | None = None
    is_resumable: bool | None = None
    is_file_based: bool | None = None

    def __post_init__(self) -> None:
        self.json_schema = compose_schema(self.json_schema)

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    @property
    def sync_modes(self) -> list[str]:
        """The supported sync modes. Full refresh is always supported, even if the source's list is empty."""
        return list(dict.fromkeys([FULL_REFRESH, *(self.supported_sync_modes or [])]))


class Catalog(_ShallowWire):
    """The catalog that `discover` returns."""

    streams: list[AirbyteStream]

    @property
    def repeated(self) -> frozenset[StreamId]:
        """The names that several streams have: their records and states cannot be separated."""
        count = Counter(stream.id for stream in self.streams)
        return frozenset(stream for stream in count if count[stream] > 1)

    def index_streams(self) -> dict[StreamId, AirbyteStream]:
        """Return the streams by their names; of several with one name, the first."""
        return {stream.id: stream for stream in reversed(self.streams)}

    def find(self, stream: StreamId) -> AirbyteStream | None:
        return self.index_streams().get(stream)


class ConfiguredStream(Wire):
    """A stream with the configuration of its sync.

    Spec: ConfiguredAirbyteStream. `generation_id`, `minimum_generation_id` and `sync_id` as of 0.9.
    """

    stream: AirbyteStream
    sync_mode: str = FULL_REFRESH
    destination_sync_mode: str = APPEND
    cursor_field: FieldPath | None = None
    primary_key: list[FieldPath] | None = None
    generation_id: int | None = None
    minimum_generation_id: int | None = None
    sync_id: int | None = None
    destination_object_name: str | None = None
    include_files: bool | None = None

    @property
    def id(self) -> StreamId:
        return self.stream.id

    @property
    def cursor(self) -> FieldPath:
        """The effective cursor field. It is empty if the source defines a cursor but does not publish it, or
        if neither the catalog nor the source names one: then records are ordered by arrival.

        Spec: "Logic for resolving the Cursor Field".
        """
        default = self.stream.default_cursor_field or []
        return default if self.stream.source_defined_cursor else self.cursor_field or default

    @property
    def lacks_cursor(self) -> bool:
        """Return whether a source cannot read the stream, because an incremental read needs a cursor.

        A destination needs none: it reads nothing. PyAirbyte, for example, names no cursor for a stream whose
        source publishes none.
        """
        is_undefined = not self.stream.source_defined_cursor and not self.cursor
        return self.sync_mode == INCREMENTAL and is_undefined

    @property
    def key(self) -> list[FieldPath]:
        """The effective primary key: the source's own if the source defines one."""
        return self.stream.source_defined_primary_key or self.primary_key or []

    @property
    def key_columns(self) -> list[str]:
        """The fields of the effective primary key, of a source whose fields are not nested."""
        return [path[0] for path in self.key if len(path) == 1]

    @property
    def resumable(self) -> bool:
        """Return whether a read can resume from this stream's states: those of an incremental sync, or of a
        refresh that the source declares as resumable."""
        return self.sync_mode == INCREMENTAL or bool(self.stream.is_resumable)

    @property
    def has_documents(self) -> bool:
        """Return whether the files that records refer to are part of the sync.

        Spec: ConfiguredAirbyteStream: `include_files` is ignored if the stream is not one of files.
        """
        return bool(self.include_files and self.stream.is_file_based)

    @property
    def mode(self) -> SyncMode:
        """The properties of the destination sync mode; those of `append` if the mode is unknown."""
        modes = find_modes()
        return modes.get(self.destination_sync_mode, modes[APPEND])

    @property
    def deduplicates(self) -> bool:
        return self.mode.deduplicates

    @property
    def overwrites(self) -> bool:
        return self.mode.overwrites


class ConfiguredCatalog(_ShallowWire):
    """The catalog that `read` gets."""

    streams: list[ConfiguredStream]


T = TypeVar("T")


class _RequiredStream(msgspec.Struct):
    """The properties, besides `stream`, that the protocol requires of a configured stream."""

    sync_mode: Literal["full_refresh", "incremental"]
    destination_sync_mode: Literal[
        "append", "overwrite", "append_dedup", "overwrite_dedup", "update", "soft_delete"
    ]


class _RequiredCatalog(msgspec.Struct):
    streams: list[_RequiredStream]


_decode_required = msgspec.json.Decoder(_RequiredCatalog).decode


def load_config(path: str) -> dict[str, Any]:
    """Return the config of a file.

    Raises:
        ConfigError: the file is not readable, or is not a JSON object.
    """
    return decode_json(read_file(path, "config"), dict[str, Any], "config")


def load_catalog(path: str) -> ConfiguredCatalog:
    """Return the configured catalog of a file.

    Raises:
        ConfigError: the file is not readable, or is not a configured catalog.
    """
    data = shallow(read_file(path, "catalog"))
    try:
        catalog = ConfiguredCatalog.from_json(data)
        read(_decode_required, data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(
            f"the catalog file is not a configured catalog: {error}",
            guidance="each stream needs `stream`, `sync_mode` and `destination_sync_mode`; "
            "docs/destination.md has an example",
        ) from error
    return catalog


def read_file(path: str, what: str) -> bytes:
    """Return the content of a file. `what`: its purpose, for the message.

    Raises:
        ConfigError: the file is not readable.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the {what} file {path}: {error.strerror}",
            guidance=f"correct the path after --{what}, or make the file readable",
        ) from error


def decode_json(data: bytes | Raw, kind: type[T], what: str) -> T:
    """Return JSON data decoded as `kind`. `what`: its purpose, for the message.

    Raises:
        ConfigError: the data is not JSON of that type.
    """
    try:
        return read(msgspec.json.Decoder(kind).decode, data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the {what} is not JSON of the expected form: {error}",
            guidance="write a config as a JSON object, and a state as a JSON list of STATE messages",
        ) from error
