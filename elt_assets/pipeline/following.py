"""The followers of a project's tables, by its settings, and the tables that they follow.

`read` tells followers of the commits of a read; `follow_now` is for commits that no read makes:
`orchestration` calls it after downstream assets, changed states and maintenance. `drop_published` is for
tables that are removed or moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.followers import Followers, LakeTable
from elt_assets.lake.write.companions import SUFFIXES
from elt_assets.settings import Settings, load_object, settings
from elt_assets.storage.location import Location

_NO_CONNECTION = "default"
"""The connection of a table directly below the root of the lake."""
PUBLISHER = "elt_assets.lake.publish.iceberg:Publisher"
ENTRIES = "elt_assets.lake.publish.entries:open_entries"


_FOLLOWERS: Mapping[str, Callable[[Settings], bool]] = {
    PUBLISHER: lambda present: present.iceberg is not None,
    ENTRIES: lambda present: present.entry_catalog is not None,
}
"""Whether the settings ask for a follower, by the name of the function that opens it. The function is loaded
when a follower is opened: its module imports a library that not every project has."""


def open_followers() -> Followers:
    """Return the followers that the settings of the project ask for. Nothing is loaded or read yet."""
    return Followers([partial(open_follower, name) for name in _list_followers()])


class Followed(NamedTuple):
    """What became of tables that were followed."""

    metadata: Mapping[str, Any]
    """What the event of the first of them says of the places."""
    problems: Sequence[str]
    """Why a place is not up to date with a table, as warnings."""


def follow_now(tables: Sequence[LakeTable]) -> Followed:
    """Have tables followed that have new commits, and wait for it."""
    with closing(open_followers()) as followers:
        for table in tables:
            followers.notice(table)
        followers.wait()
        metadata = followers.metadata(tables[0]) if tables else {}
        return Followed(metadata, list(describe_problems(followers, tables)))


def describe_problems(followers: Followers, tables: Sequence[LakeTable]) -> Iterator[str]:
    """Yield a warning for each place that is not up to date with a table."""
    for table in tables:
        for problem in followers.problems(table):
            yield f"the table {table.name} is committed, and not published: {problem}"


def drop_published(tables: Sequence[LakeTable]) -> list[LakeTable]:
    """Remove tables from all places in which they are published, before they are removed or moved.

    Returns:
        those that were published.

    Raises:
        EltError: a place cannot be asked, or another program has changed what it has of a table. Calling it
            again goes on.
    """
    published: dict[str, LakeTable] = {}
    for name in _list_followers():
        follower = open_follower(name)
        published |= {table.name: table for table in tables if follower.drop(table)}
    return list(published.values())


def make_lake_table(
    table: Table,
    lake: Location,
    connection: str | None = None,
    companion: str | None = None,
    *,
    iceberg: bool | None = None,
) -> LakeTable:
    """Return a table as followers get it, without descriptions: those that a place has stay.

    Args:
        connection: the connection's name; default: the first level above the table.
    """
    levels = tuple(table.uri.removeprefix(f"{lake.uri.rstrip('/')}/").split("/"))
    above = connection or connection_of(levels)
    return LakeTable(table.storage.location, above, levels, companion, iceberg=iceberg)


def connection_of(levels: Sequence[str]) -> str:
    """Return what stands for the connection of a table that is of none: the first level above the table."""
    return levels[0] if len(levels) > 1 else _NO_CONNECTION


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


def _list_followers() -> list[str]:
    present = settings()
    return [name for name, is_asked in _FOLLOWERS.items() if is_asked(present)]


def open_follower(name: str) -> Any:
    """Return the follower that a function of a module opens, by its name.

    Raises:
        ConfigError: its library is not installed.
    """
    try:
        function = load_object("the followers of tables", name)
    except Exception as error:
        missing = error.__cause__
        if not isinstance(missing, ModuleNotFoundError):
            # pyiceberg reads its file when it is loaded, though nothing of it is used here.
            raise ConfigError(
                f"tables cannot be published: a library cannot be loaded: {type(error).__name__}: "
                f"{' '.join(str(error).split())}",
                guidance="correct what the message names. pyiceberg reads `.pyiceberg.yaml` in "
                "PYICEBERG_HOME, the home directory or the working directory, and variables PYICEBERG_…",
            ) from error
        raise ConfigError(
            f"tables cannot be published: the library {missing.name} is not installed",
            guidance="install it: pip install 'elt-assets[iceberg]'",
        ) from None
    return function()
