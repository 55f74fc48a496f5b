"""The destination sync modes, and the facts of each: all that a connection, a relay and a table decide by it.

What a commit of a mode does to a table is in `lake.merge.policies`. Packages add modes by entry points of
`GROUP`: each names a module with a `MODE` and a `merge`.

spec: Airbyte Protocol, Destination Sync Modes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

APPEND = "append"
OVERWRITE = "overwrite"
APPEND_DEDUP = "append_dedup"
OVERWRITE_DEDUP = "overwrite_dedup"

GROUP = "elt_assets.sync_modes"


@dataclass(frozen=True)
class SyncMode:
    """What is true of a destination sync mode.

    `deduplicates`: one row stays of each primary key, which it therefore needs. `overwrites`: each full
    refresh replaces all rows. `is_standard`: it is a member of the protocol's enumeration. `replacing`: the
    mode of a partition whose rows each sync replaces. `told_to_sources`: what a source is told, since many
    refuse modes that came late. `as_generation_of`: the mode that, with a new generation, does the same in a
    destination that does not know this one.
    """

    name: str
    deduplicates: bool = False
    overwrites: bool = False
    is_standard: bool = True
    replacing: str = OVERWRITE
    told_to_sources: str | None = None
    as_generation_of: str | None = None


def added() -> Mapping[str, EntryPoint]:
    """The modes that installed packages add."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _modes() -> Iterator[SyncMode]:
    yield SyncMode(APPEND)
    yield SyncMode(OVERWRITE, overwrites=True)
    yield SyncMode(APPEND_DEDUP, deduplicates=True, replacing=OVERWRITE_DEDUP)
    yield SyncMode(
        OVERWRITE_DEDUP,
        deduplicates=True,
        overwrites=True,
        is_standard=False,
        replacing=OVERWRITE_DEDUP,
        told_to_sources=OVERWRITE,
        as_generation_of=APPEND_DEDUP,
    )
    for entry in added().values():
        yield entry.load().MODE


MODES: Mapping[str, SyncMode] = MappingProxyType({mode.name: mode for mode in _modes()})
"""By their names."""
