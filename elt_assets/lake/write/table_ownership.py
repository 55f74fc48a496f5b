"""Ownership of tables: writers do not share a table, and do not change a table that another one filled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.lake.write.stream_tables import DEAD_LETTER_SUFFIX


def check_claims(claims: Iterable[tuple[str, Sequence[str], bool]]) -> None:
    """Check that no two writers share a table, and that no table lies within another.

    Args:
        claims: for each table its writer, its levels below the root of the lake, and whether it has a
            history; its companions are claimed with it. Names that differ only in case are the same.

    Raises:
        ConfigError: names both writers and the table.
    """
    owners: dict[tuple[str, ...], str] = {}
    for writer, path, has_history in claims:
        *above, name = (level.casefold() for level in path)
        suffixes = ["", DEAD_LETTER_SUFFIX, *([HISTORY_SUFFIX] if has_history else [])]
        for suffix in suffixes:
            claimed = (*above, name + suffix)
            _refuse_shared(writer, owners.setdefault(claimed, writer), claimed)
    for claimed, writer in owners.items():
        for depth in range(1, len(claimed)):
            _refuse_shared(writer, owners.get(claimed[:depth], writer), claimed[:depth])


def _refuse_shared(writer: str, other: str, table: Sequence[str]) -> None:
    if writer != other:
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
    found = table.newest_writer
    if partitions_of is not None and found is not None and found.startswith(f"{partitions_of}|"):
        return
    whose = found or "another program"
    raise ConfigError(
        f"the table {table.uri} was not written by {owner}, but by {whose}", guidance=guidance
    )
