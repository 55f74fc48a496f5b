"""What is published of the tables of streams: which tables, up to which version in Iceberg, and catching up.

`connection_read` tells followers which tables a stream has; `orchestration` asks for checks and `elt status`,
and before a vacuum; `elt publish` publishes with it.

The module that publishes is loaded by its name, when it is used: its library is not in every project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.followers import (
    IcebergPublisher,
    LakeTable,
    Publication,
    TableTexts,
)
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import key_of
from elt_assets.machine_faults import translated
from elt_assets.pipeline.following import PUBLISHER, open_follower
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.settings import settings
from elt_assets.storage.location import Location
from elt_assets.sync.field_selection import properties


def open_publisher() -> IcebergPublisher | None:
    """Return what publishes in Iceberg; None if the settings have no catalog. It is not connected yet.

    Raises:
        ConfigError: its library is not installed.
    """
    if settings().iceberg is None:
        return None
    publisher: IcebergPublisher = open_follower(PUBLISHER)
    return publisher


def is_published(asset: ConnectionStream) -> bool:
    """Return whether a stream's table is to be published, by the settings and the connection."""
    present, connection = settings().iceberg, asset.connection
    if present is None or connection.destination is not None:
        return False
    own = asset.settings.iceberg
    chosen = connection.iceberg if own is None else own
    return present.tables == "all" if chosen is None else chosen


@dataclass(frozen=True)
class PublishedState:
    """How what is published of a stream's table stands to it."""

    lag: int | None
    """How many versions of the table are newer; None if that is not known, or nothing is published."""
    problem: str | None = None
    """Why it is not known, or nothing is published; None if the catalog was asked, and has the table."""


class CatalogLook:
    """Asks the Iceberg catalog what is published of tables. A catalog that does not answer is asked once."""

    def __init__(self) -> None:
        self._publisher: IcebergPublisher | None = None
        self._silence: PublishedState | None = None

    def look(self, asset: ConnectionStream, tables: StreamTables) -> PublishedState | None:
        """Return the state of a stream's table; None if it is not to be published, or does not exist."""
        if not is_published(asset) or not tables.main.exists:
            return None
        if self._silence is not None:
            return self._silence
        try:
            with translated():
                self._publisher = self._publisher or open_publisher()
                assert self._publisher is not None
                publication = self._publisher.look(list_lake_tables(asset, tables)[0])
        except EltError as error:
            text = "; ".join(filter(None, (error.message, error.guidance)))
            state = PublishedState(None, text)
            self._silence = state if isinstance(error, TransientError) else None
            return state
        if publication is None:
            text = "nothing is published yet; the next sync, or `elt publish`, does it"
            return PublishedState(None, text)
        return PublishedState(publication.lag)


@dataclass(frozen=True)
class PublishedTable:
    """The result of publishing one table."""

    table: LakeTable
    publication: Publication | None = None
    error: EltError | None = None
    """Why it is not published up to its newest version."""
    reason: str | None = None
    """Why nothing was to be done, if there was nothing."""


def publish_tables(
    asset: ConnectionStream, lake: Location, *, replace: bool = False
) -> Iterator[PublishedTable]:
    """Publish the newest versions of a stream's table and its companions; yield the result of each.

    Args:
        replace: start new Iceberg tables, whatever has their names.

    Raises:
        ConfigError: the settings have no catalog, or the library is not installed.
    """
    publisher = open_publisher()
    if publisher is None:
        raise ConfigError(
            "there is no Iceberg catalog in the settings of the project",
            guidance="write its properties in [tool.elt.iceberg.catalog] (docs/open-lake.md)",
        )
    tables = asset.tables(lake)
    for table in list_lake_tables(asset, tables):
        kind = table.companion
        if not publisher.publishes(table):
            yield PublishedTable(table, reason="not to be published")
        elif not (tables.main if kind is None else tables.companions[kind]).exists:
            yield PublishedTable(table, reason="no table yet")
        elif kind is not None and tables.is_ahead(kind):
            # Its newest commit is rolled back by the next sync.
            yield PublishedTable(
                table, reason="a sync of the stream was killed; the next one goes on"
            )
        else:
            try:
                yield PublishedTable(table, publisher.publish(table, replace=replace))
            except EltError as error:
                yield PublishedTable(table, error=error)


def list_lake_tables(asset: ConnectionStream, tables: StreamTables) -> list[LakeTable]:
    """Return a stream's table and its companions, as followers get them."""
    schema = asset.make_stored_stream().stream.json_schema
    described = {name: _describe(field) for name, field in properties(schema).items()}
    own, connection = asset.settings.iceberg, asset.connection
    return [
        LakeTable(
            table.storage.location,
            connection.name,
            tuple(asset.name_of(table).split(".")),
            companion,
            TableTexts(
                asset.settings.description or _describe(schema) if companion is None else None,
                {name: text for name, text in described.items() if text is not None},
                _list_key(asset, table) if companion is None else (),
            ),
            connection.iceberg if own is None else own,
        )
        for companion, table in _list_tables(tables)
    ]


def _list_tables(tables: StreamTables) -> Iterator[tuple[str | None, Table]]:
    yield None, tables.main
    yield from tables.companions.items()


def _list_key(asset: ConnectionStream, table: Table) -> tuple[str, ...]:
    """Return the columns of the stream's key in its table; none if rows have no key, or a nested one."""
    stream = asset.make_stored_stream()
    key = key_of(stream, table) if stream.deduplicates and table.exists else []
    return tuple(path[0] for path in key) if all(len(path) == 1 for path in key) else ()


def _describe(schema: object) -> str | None:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    return text if isinstance(text, str) else None
