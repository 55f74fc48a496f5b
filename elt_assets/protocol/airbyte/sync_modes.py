"""The destination sync modes, and the properties of each that connections, relays and tables use.

`lake.merge.policies` defines how a commit of a mode changes a table. Packages add modes by entry points of
`GROUP`: each names a module with a `MODE` and a `merge`.

Spec: Airbyte Protocol, Destination Sync Modes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

APPEND = "append"
OVERWRITE = "overwrite"
APPEND_DEDUP = "append_dedup"
OVERWRITE_DEDUP = "overwrite_dedup"

GROUP = "elt_assets.sync_modes"


@dataclass(frozen=True)
class SyncMode:
    """The properties of a destination sync mode."""

    name: str
    deduplicates: bool = False  # the table keeps one row per primary key, so the stream needs one
    overwrites: bool = False  # each full refresh replaces all rows
    is_standard: bool = True  # the mode is a member of the protocol's enumeration
    # The mode used instead for a partition whose rows each sync replaces.
    partition_mode: str = OVERWRITE
    # The mode that a source gets instead, since many sources refuse modes that were added later.
    source_mode: str | None = None
    # The mode that, with a new generation, has the same effect in a destination that does not support this
    # one.
    generation_mode: str | None = None


def find_added_modes() -> Mapping[str, EntryPoint]:
    """Return the modes that installed packages add, by name."""
    entry_points = import_module("importlib.metadata").entry_points
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@functools.cache
def find_modes() -> Mapping[str, SyncMode]:
    """Return all modes, by name. A source needs none of them: packages are searched with the first call."""
    modes = [
        SyncMode(APPEND),
        SyncMode(OVERWRITE, overwrites=True),
        SyncMode(APPEND_DEDUP, deduplicates=True, partition_mode=OVERWRITE_DEDUP),
        SyncMode(
            OVERWRITE_DEDUP,
            deduplicates=True,
            overwrites=True,
            is_standard=False,
            partition_mode=OVERWRITE_DEDUP,
            source_mode=OVERWRITE,
            generation_mode=APPEND_DEDUP,
        ),
        *(entry.load().MODE for entry in find_added_modes().values()),
    ]
    return MappingProxyType({mode.name: mode for mode in modes})
