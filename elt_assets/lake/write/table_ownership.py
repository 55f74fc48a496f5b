"""Ownership of tables: writers do not share a table, and do not change a table that another one filled."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.lake.write.stream_tables import DEAD_LETTER_SUFFIX

Owner = TypeVar("Owner", bound=Hashable)


class Claims(Generic[Owner]):
    """Tables that writers have claimed, by their levels below the root of the lake.

    Names that differ only in case are the same. The companions of a table are claimed with it.
    """

    def __init__(self) -> None:
        self._owners: dict[tuple[str, ...], Owner] = {}
        self._inside: dict[tuple[str, ...], Owner] = {}
        """A writer of a table within a folder, by the folder."""

    def claim(
        self, writer: Owner, path: Sequence[str], has_history: bool
    ) -> tuple[Owner, Sequence[str]] | None:
        """Claim a table and its companions.

        Returns:
            None; or another writer and the table that both would write to, or within: nothing is claimed.
        """
        *above, name = (level.casefold() for level in path)
        folders = [tuple(above[: depth + 1]) for depth in range(len(above))]
        suffixes = ["", DEAD_LETTER_SUFFIX, *([HISTORY_SUFFIX] if has_history else [])]
        tables = [(*above, name + suffix) for suffix in suffixes]
        for owner, table in self._neighbours(tables, folders):
            if owner != writer:
                return owner, table
        self._owners |= dict.fromkeys(tables, writer)
        self._inside |= dict.fromkeys(folders, writer)
        return None

    def _neighbours(
        self, tables: Sequence[tuple[str, ...]], folders: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[Owner, Sequence[str]]]:
        for owners, paths in (
            (self._owners, tables),
            (self._inside, tables),
            (self._owners, folders),
        ):
            yield from ((owners[path], path) for path in paths if path in owners)


def check_claims(claims: Iterable[tuple[str, Sequence[str], bool]]) -> None:
    """Check that no two writers share a table, and that no table lies within another.

    Args:
        claims: for each table its writer, its levels below the root of the lake, and whether it has a
            history; its companions are claimed with it. Names that differ only in case are the same.

    Raises:
        ConfigError: names both writers and the table.
    """
    claimed = Claims[str]()
    for writer, path, has_history in claims:
        rival = claimed.claim(writer, path, has_history)
        if rival is not None:
            other, table = rival
            raise ConfigError(
                f"{other} and {writer} would both write to the table {'/'.join(table)}, or within it",
                guidance="put one of them into a separate connection with another `namespace`",
            )


def refuse_foreign(
    table: Table, owner: str, guidance: str, *, partitions_of: str | None = None
) -> None:
    """Check that a table was not filled by another writer.

    Args:
        owner: the writer, as users know it.
        guidance: what to do.
        partitions_of: the owner's `app_id` if it may have partitions, which are separate writers.

    Raises:
        ConfigError: names the other writer.
    """
    if not table.is_foreign:
        return
    writer = table.newest_writer
    if partitions_of is not None and writer is not None and writer.startswith(f"{partitions_of}|"):
        return
    whose = writer or "another program"
    raise ConfigError(
        f"the table {table.uri} was not written by {owner}, but by {whose}", guidance=guidance
    )
