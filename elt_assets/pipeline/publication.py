"""What is published of the project's tables: which tables, up to which version in Iceberg, and catching up.

A table is published in Iceberg (`[tool.elt.iceberg]`), registered in a catalog (`[tool.elt.catalog]`), or
both.

`connection_read` tells followers which tables a stream has; `orchestration` asks for checks and `elt status`,
and before a vacuum; `elt publish` publishes with it.

The module that publishes is loaded by its name, when it is used: its library is not in every project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.followers import (
    IcebergPublisher,
    LakeTable,
    Publication,
    TableTexts,
)
from elt_assets.lake.publish.names import find_kind, iceberg_identifier
from elt_assets.lake.write.companions import DEAD_LETTER, StreamTables, app_id
from elt_assets.lake.write.sync_columns import key_of
from elt_assets.machine_faults import translated
from elt_assets.pipeline.following import ENTRIES, PUBLISHER, make_lake_table, open_follower
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.settings import settings
from elt_assets.storage.location import Location
from elt_assets.sync.field_selection import properties

if TYPE_CHECKING:
    from elt_assets.lake.publish.entries import CatalogEntries


def open_publisher() -> IcebergPublisher | None:
    """Return what publishes in Iceberg; None if the settings have no catalog. It is not connected yet.

    Raises:
        ConfigError: its library is not installed.
    """
    if settings().iceberg is None:
        return None
    publisher: IcebergPublisher = open_follower(PUBLISHER)
    return publisher


def open_entries() -> CatalogEntries | None:
    """Return what registers tables in a catalog; None if the settings have none.

    Raises:
        ConfigError: its library is not installed, or the settings are not complete.
    """
    if settings().entry_catalog is None:
        return None
    entries: CatalogEntries = open_follower(ENTRIES)
    return entries


def is_published(asset: ConnectionStream) -> bool:
    """Return whether a stream's table is to be published in Iceberg, by the settings and the connection."""
    present, connection = settings().iceberg, asset.connection
    if present is None or connection.destination is not None:
        return False
    own = asset.settings.iceberg
    chosen = connection.iceberg if own is None else own
    return present.tables == "all" if chosen is None else chosen


def show_name(
    levels: Sequence[str],
    connection: str,
    iceberg: bool | None = None,
    companion: str | None = None,
) -> str:
    """Return the name of a table as analysts find it: in the Iceberg catalog, or else in the lake.

    Args:
        levels: the path of the table below the root of the lake.
        iceberg: whether its connection or stream says that it is published, or is not.
    """
    present, name = settings().iceberg, ".".join(levels)
    if present is None or (companion == DEAD_LETTER and not present.dead_letters):
        return name
    if not (present.tables == "all" if iceberg is None else iceberg):
        return name
    kind = find_kind(present.catalog)
    try:
        return ".".join(iceberg_identifier(kind, present.namespace, connection, levels))
    except ConfigError:  # the sync says so
        return name


def show_name_of(asset: ConnectionStream, table: Table, companion: str | None = None) -> str:
    """Return the name of a stream's table, or of a companion, as analysts find it."""
    levels, own = asset.name_of(table).split("."), asset.settings.iceberg
    connection = asset.connection
    if connection.destination is not None:
        return ".".join(levels)
    chosen = connection.iceberg if own is None else own
    return show_name(levels, connection.name, chosen, companion)


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


def find_entry_problem(asset: ConnectionStream, tables: StreamTables) -> str | None:
    """Return in what the entry of a stream's table is not what it should be; None if in nothing."""
    try:
        with translated():
            entries = open_entries()
            return None if entries is None else entries.look(list_lake_tables(asset, tables)[0])
    except EltError as error:
        return "; ".join(filter(None, (error.message, error.guidance)))


@dataclass(frozen=True)
class PublishedTable:
    """The result of publishing one table in one place."""

    table: LakeTable
    publication: Publication | None = None
    """What is published in Iceberg, if that is the place."""
    entry: str | None = None
    """What was done with the entry in the catalog, if that is the place."""
    error: EltError | None = None
    """Why it is not published up to its newest version."""
    reason: str | None = None
    """Why nothing was to be done, if there was nothing."""


def publish_stream(
    asset: ConnectionStream, lake: Location, *, replace: bool = False
) -> Iterator[PublishedTable]:
    """Publish the newest versions of a stream's table and its companions; yield the result of each place.

    Args:
        replace: start new Iceberg tables, and replace entries of catalogs, whatever has their names.

    Raises:
        ConfigError: the settings have no catalog, or a library is not installed.
    """
    tables = asset.tables(lake)
    listed = list_lake_tables(asset, tables)
    reasons = [(table, _find_reason(tables, table.companion)) for table in listed]
    yield from _publish_tables(reasons, replace=replace)


def publish_downstream(
    levels: Sequence[str], lake: Location, *, replace: bool = False
) -> Iterator[PublishedTable]:
    """Publish the newest version of a downstream asset's table; see `publish_stream`."""
    table = make_lake_table(Table(lake.child(*levels), app_id(levels)), lake)
    yield from _publish_tables([(table, None)], replace=replace)


def _publish_tables(
    reasons: Sequence[tuple[LakeTable, str | None]], *, replace: bool
) -> Iterator[PublishedTable]:
    """`reasons`: the tables, with why each cannot be published now."""
    publisher, entries = open_publisher(), open_entries()
    if publisher is None and entries is None:
        raise ConfigError(
            "there is no catalog in the settings of the project",
            guidance="write the properties of an Iceberg catalog in [tool.elt.iceberg.catalog], or a catalog "
            "of Delta tables in [tool.elt.catalog] (docs/open-lake.md)",
        )
    for table, reason in reasons:
        if reason is not None:
            yield PublishedTable(table, reason=reason)
            continue
        if publisher is not None and publisher.publishes(table):
            yield _publish(table, partial(publisher.publish, table, replace=replace))
        elif entries is None:
            yield PublishedTable(table, reason="not to be published")
        if entries is not None:
            yield _register(table, entries, replace=replace)


def _find_reason(tables: StreamTables, kind: str | None) -> str | None:
    """Return why a table, or a companion of it, cannot be published now."""
    if not (tables.main if kind is None else tables.companions[kind]).exists:
        return "no table yet"
    if kind is not None and tables.is_ahead(kind):
        # Its newest commit is rolled back by the next sync.
        return "a sync of the stream was killed; the next one goes on"
    return None


def _publish(table: LakeTable, publish: Callable[[], Publication | None]) -> PublishedTable:
    try:
        return PublishedTable(table, publish())
    except EltError as error:
        return PublishedTable(table, error=error)


def _register(table: LakeTable, entries: CatalogEntries, *, replace: bool) -> PublishedTable:
    try:
        outcome = entries.register(table, replace=replace)
    except EltError as error:
        return PublishedTable(table, error=error)
    if outcome is None:
        return PublishedTable(table, reason="not to be registered")
    return PublishedTable(table, entry=f"{outcome.value} in {entries.name}")


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
