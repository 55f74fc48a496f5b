"""One stream of a connection: what it is, and how and where it lands. Dagster shows it as an asset."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from functools import cached_property

from elt_assets import paths
from elt_assets.connection import Connection, Stream, as_landed, field_selection
from elt_assets.connection.partitions import has_window
from elt_assets.lake.delta.table import Table
from elt_assets.lake.schema.names import table_path as path_of
from elt_assets.lake.write.stream_tables import StreamTables, app_id
from elt_assets.lake.write.table_ownership import refuse_foreign
from elt_assets.protocol.airbyte.catalog import INCREMENTAL, AirbyteStream, ConfiguredStream
from elt_assets.storage.location import Location
from elt_assets.sync.selection.fields import FieldSelection, asked
from elt_assets.sync.selection.filters import RecordFilter

STATES = "_elt_states"
"""The first level of what keeps the states of streams whose rows are in another destination."""


def default_key(connection: Connection, stream: ConfiguredStream) -> tuple[str, ...]:
    """The levels of a stream's asset key, by the public contract: the connection, the stream's namespace if
    it has one, the stream."""
    namespace = stream.stream.namespace
    levels = () if namespace is None else (namespace,)
    return (connection.name, *levels, stream.stream.name)


def table_path(connection: Connection, stream: ConfiguredStream) -> list[str]:
    """The levels of its table under the lake's root."""
    path = path_of(connection.lake_namespace, stream.id)
    return path if connection.destination is None else [STATES, *path]


@dataclass(frozen=True)
class ConnectionStream:
    """One configured stream of a connection.

    `stream`: as the source has it and the connection wants it; `levels`: of the asset key, by which its
    tables know their writer.
    """

    connection: Connection
    stream: ConfiguredStream
    levels: tuple[str, ...]

    @property
    def name(self) -> str:
        """The asset key, as people write it."""
        return "/".join(self.levels)

    @property
    def table_path(self) -> list[str]:
        return table_path(self.connection, self.stream)

    @property
    def table_name(self) -> str:
        return ".".join(self.table_path)

    @cached_property
    def wanted(self) -> Stream:
        return self.connection.wanted(self.stream.id)

    @cached_property
    def fields(self) -> FieldSelection | None:
        """Which of its fields are stored."""
        return field_selection(self.connection, self.stream)

    def asked(self, stream: ConfiguredStream | None = None) -> ConfiguredStream:
        """The stream as its source is asked for it: without the fields that are not stored.

        Args:
            stream: with the generation of a sync; default, without one.
        """
        return asked(stream or self.stream, self.fields)

    def record_filter(self) -> RecordFilter | None:
        """What removes and hashes fields of its records; None where all of them are stored as they are.

        Raises:
            ConfigError: as `paths.hash_salt`.
        """
        fields = self.fields
        if fields is None:
            return None
        return RecordFilter(fields, paths.hash_salt() if fields.hashed else None)

    @property
    def salt_fingerprint(self) -> str | None:
        """Of what its fields are hashed with; read when a sync starts, never at load."""
        hashes = self.fields is not None and self.fields.hashed
        return paths.fingerprint(paths.hash_salt()) if hashes else None

    @property
    def selection(self) -> str | None:
        """The fingerprint of which fields are stored, and how."""
        if self.fields is None:
            return None
        text = f"{self.fields} {self.salt_fingerprint}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def tables(self, lake_uri: str, partition: str | None = None) -> StreamTables:
        """Its tables as they stand, with the state of one partition."""
        writer = app_id(self.levels)
        if partition is not None:
            writer = f"{writer}|{partition}"
        place = Location.of(lake_uri).child(*self.table_path)
        return StreamTables(place.uri, writer, history=self.wanted.history)

    def refuse_foreign(self, table: Table) -> None:
        """Refuse a table that another asset filled, or this one when it had another key, or no partitions.

        Raises:
            ConfigError: says whose it is.
        """
        refuse_foreign(
            table,
            f"{self.name} as it is now",
            "give the asset back its former key or partitions; or move the table away, and "
            "the stream is read anew",
            partitions_of=None if self.wanted.partitions is None else app_id(self.levels),
        )

    def landed(self, described: AirbyteStream | None = None) -> ConfiguredStream:
        """The stream as its table gets it, of the catalog's schema or of what its source says of it
        otherwise. A partition with a window is read whole each time, and its
        rows replaced; so are those of a key, unless the stream is incremental: then the partition has a
        cursor of its own, and goes on from it."""
        found = as_landed(self.connection, self.stream, described)
        written = self.wanted.partitions
        if written is None:
            return found
        if has_window(written) or found.sync_mode != INCREMENTAL:
            found = copy.copy(found)
            found.destination_sync_mode = found.mode.replacing
        return found
