"""Catalogs: the streams that a source offers, and the streams that are configured for a sync.

Spec: Airbyte Protocol, Catalog; additions of 0.9 (generations), 0.10 (is_resumable), 0.15 (files).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from msgspec import Raw

from elt_assets.protocol.airbyte.json_schema import compose_schema, shallow
from elt_assets.protocol.airbyte.sync_modes import APPEND, SyncMode, find_modes
from elt_assets.protocol.airbyte.wire import W, Wire

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
