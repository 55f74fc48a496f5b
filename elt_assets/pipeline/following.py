"""The followers of a project's tables, by its settings, and the tables that they follow.

`read` tells followers of the commits of a read; `follow_now` is for commits that no read makes:
`orchestration` calls it after downstream assets, changed states and maintenance. `drop_published` is for
tables that are removed or moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.followers import Follower, Followers, LakeTable
from elt_assets.lake.write.companions import SUFFIXES, StreamTables
from elt_assets.lake.write.sync_columns import key_of
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.settings import Settings, load_object, settings
from elt_assets.storage.location import Location
from elt_assets.sync.field_selection import properties

WAIT_SECONDS = 60.0
"""How long the end of a read waits for its followers."""

_FOLLOWERS: Mapping[str, Callable[[Settings], bool]] = {
    "elt_assets.lake.publish.entries:open_entries": lambda present: (
        present.catalog is not None and present.catalog.type != "none"
    ),
}
"""Whether the settings ask for a follower, by the name of the function that opens it. The function is loaded
when a follower is opened: its module imports a library that not every project has."""


def open_followers() -> Followers:
    """Return the followers that the settings of the project ask for. Nothing is loaded or read yet."""
    return Followers([partial(_open, name) for name in _list_followers()])


def follow_now(tables: Sequence[LakeTable], seconds: float = WAIT_SECONDS) -> list[str]:
    """Have tables followed that have new commits, and wait for it.

    Returns:
        why a place is not up to date with a table, as warnings.
    """
    with closing(open_followers()) as followers:
        for table in tables:
            followers.notice(table)
        followers.wait(seconds)
        return list(describe_problems(followers, tables))


def describe_problems(followers: Followers, tables: Sequence[LakeTable]) -> Iterator[str]:
    """Yield a warning for each place that is not up to date with a table."""
    for table in tables:
        for problem in followers.problems(table):
            yield f"the table {table.name} is committed, and not published: {problem}"


def drop_published(tables: Sequence[LakeTable]) -> None:
    """Remove tables from all places in which they are published, before they are removed or moved.

    Raises:
        EltError: a place cannot be asked, or has another table by this name. Calling it again goes on.
    """
    for name in _list_followers():
        follower = _open(name)
        for table in tables:
            follower.drop(table)


def list_lake_tables(asset: ConnectionStream, tables: StreamTables) -> list[LakeTable]:
    """Return a stream's table and its companions, as followers get them."""
    schema = asset.make_stored_stream().stream.json_schema
    described = {name: _describe(field) for name, field in properties(schema).items()}
    return [
        LakeTable(
            table.storage.location,
            asset.connection.name,
            tuple(asset.name_of(table).split(".")),
            companion,
            asset.settings.description or _describe(schema) if companion is None else None,
            {name: text for name, text in described.items() if text is not None},
            _list_key(asset, table) if companion is None else (),
        )
        for companion, table in _list_tables(tables)
    ]


def list_tables_at(lake: Location, levels: Sequence[str], connection: str) -> list[LakeTable]:
    """Return the tables of a stream at a place where they may be or may have been, to be dropped."""
    *above, name = levels
    return [
        LakeTable(lake.child(*above, own), connection, (*above, own), companion)
        for companion, own in (
            (None, name),
            *((kind, f"{name}{suffix}") for kind, suffix in SUFFIXES.items()),
        )
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


def _list_followers() -> list[str]:
    present = settings()
    return [name for name, is_asked in _FOLLOWERS.items() if is_asked(present)]


def _open(name: str) -> Follower:
    follower: Follower = load_object("the followers of tables", name)()
    return follower
