"""Catalogs: what a source has, and what of it is wanted, how.

spec: Airbyte Protocol, Catalog; additions of 0.9 (generations), 0.10 (is_resumable), 0.15 (files).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.sync_modes import APPEND, MODES, SyncMode
from elt_assets.protocol.airbyte.wire import Wire

FULL_REFRESH = "full_refresh"
INCREMENTAL = "incremental"


DELETED_AT = "_ab_cdc_deleted_at"
DELETE_MARKERS = (DELETED_AT, "_sdc_deleted_at")
"""Fields that are set in a record that tells of a delete: of Airbyte's CDC sources, and of Singer's taps."""

FieldPath = list[str]


class StreamDescriptor(Wire):
    """Names a stream. Any UTF-8 string is valid, the empty one included."""

    name: str
    namespace: str | None = None

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)


class StreamId(tuple[str, "str | None"]):
    """(name, namespace): what a stream is looked up by."""

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
        """The name as no other stream has it: a part with a dot or a quote is in double quotes, doubled
        inside them."""
        return ".".join(_quoted(part) for part in (self.namespace, self.name) if part is not None)


def _quoted(part: str) -> str:
    if part and not set(part) & {".", '"'}:
        return part
    return '"{}"'.format(part.replace('"', '""'))


def stream_names(streams: Collection[StreamId]) -> dict[StreamId, str]:
    """Return a name for each of a connection's streams, as people read and write it: NAME or NAMESPACE.NAME,
    and, where two would have the same, the form that tells them apart."""
    count = Counter(map(str, streams))
    clear = {name for name in count if count[name] == 1 and '"' not in name}
    return {each: str(each) if str(each) in clear else each.quoted for each in streams}


class AirbyteStream(Wire):
    """A stream that a source offers. Read only once discovered."""

    name: str
    json_schema: dict[str, Any]
    supported_sync_modes: list[str] | None = None
    source_defined_cursor: bool | None = None
    default_cursor_field: FieldPath | None = None
    source_defined_primary_key: list[FieldPath] | None = None
    namespace: str | None = None
    is_resumable: bool | None = None
    is_file_based: bool | None = None

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    @property
    def sync_modes(self) -> list[str]:
        """Full refresh is always supported, even where the source's list is empty."""
        return list(dict.fromkeys([FULL_REFRESH, *(self.supported_sync_modes or [])]))


class Catalog(Wire):
    """What `discover` returns."""

    streams: list[AirbyteStream]

    def find(self, stream: StreamId) -> AirbyteStream | None:
        return next((candidate for candidate in self.streams if candidate.id == stream), None)


class ConfiguredStream(Wire):
    """How one stream is to be synced.

    spec: ConfiguredAirbyteStream. `generation_id`, `minimum_generation_id` and `sync_id` as of 0.9.
    """

    stream: AirbyteStream
    sync_mode: str = FULL_REFRESH
    destination_sync_mode: str = APPEND
    cursor_field: FieldPath | None = None
    primary_key: list[FieldPath] | None = None
    generation_id: int | None = None
    minimum_generation_id: int | None = None
    sync_id: int | None = None
    include_files: bool | None = None

    @property
    def id(self) -> StreamId:
        return self.stream.id

    @property
    def cursor(self) -> FieldPath:
        """The cursor field that is in force; empty where the source keeps its cursor to itself.

        spec: "Logic for resolving the Cursor Field".

        Raises:
            ConfigError: incremental, and nobody names a cursor.
        """
        if self.stream.source_defined_cursor:
            return self.stream.default_cursor_field or []
        resolved = self.cursor_field or self.stream.default_cursor_field or []
        if not resolved and self.sync_mode == INCREMENTAL:
            raise ConfigError(
                f"stream {str(self.id)!r} is incremental, "
                "but neither it nor its source names a cursor field",
                guidance="set `cursor_field: [<field>]`, or `sync_mode: full_refresh`",
            )
        return resolved

    @property
    def key(self) -> list[FieldPath]:
        """The primary key that is in force: the source's own, where it defines one."""
        return self.stream.source_defined_primary_key or self.primary_key or []

    @property
    def resumable(self) -> bool:
        """Whether its states can be gone on from: those of an incremental sync, and those of a
        refresh that the source says it can resume."""
        return self.sync_mode == INCREMENTAL or bool(self.stream.is_resumable)

    @property
    def mode(self) -> SyncMode:
        """The facts of its destination sync mode; of one that is not known, those of `append`."""
        return MODES.get(self.destination_sync_mode, MODES[APPEND])

    @property
    def deduplicates(self) -> bool:
        return self.mode.deduplicates

    @property
    def overwrites(self) -> bool:
        return self.mode.overwrites


class ConfiguredCatalog(Wire):
    """What `read` is given."""

    streams: list[ConfiguredStream]
