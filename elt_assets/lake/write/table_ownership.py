"""Whose a table is: no two writers share one, and what another has written is left alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.lake.write.stream_tables import DEAD_LETTER_SUFFIX


def check_claims(claims: Iterable[tuple[str, Sequence[str], bool]]) -> None:
    """Refuse tables that two writers would share, or that would lie one within the other.

    Args:
        claims: who writes, the table's levels under the lake's root, and whether it has a history; its
            companions are claimed with it. Names that differ in case alone are one.

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
            guidance="give one of them a `namespace` of its own, in a connection of its own",
        )


def refuse_foreign(
    table: Table, owner: str, guidance: str, *, partitions_of: str | None = None
) -> None:
    """Refuse a table that another writer filled.

    Args:
        owner: who is about to write, as people know it.
        guidance: what to do.
        partitions_of: the owner's `app_id`, where it may have partitions, which are writers of their own.

    Raises:
        ConfigError: says whose it is.
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
