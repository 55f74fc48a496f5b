"""Which destination sync modes a destination takes, and how a catalog is put for it.

spec: Actor Specification, `supported_destination_sync_modes`; Destination Sync Modes.
"""

from __future__ import annotations

import copy

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import (
    APPEND_DEDUP,
    OVERWRITE_DEDUP,
    ConfiguredCatalog,
    ConfiguredStream,
)
from elt_assets.protocol.airbyte.messages import Specification
from elt_assets.protocol.airbyte.versions import GENERATIONS, protocol_version


def catalog_for_destination(
    catalog: ConfiguredCatalog, specification: Specification, connector: str
) -> ConfiguredCatalog:
    """The catalog in the modes that a destination takes.

    Most destinations know no `overwrite_dedup`. It is an `append_dedup` that replaces the older
    generations, so it goes as that to a destination that knows generations. A destination that lists no
    modes is given what is wanted.

    Raises:
        ConfigError: the destination lacks a stream's mode; names the modes that it takes.
    """
    modes = specification.supported_destination_sync_modes or []
    streams = [_as_taken(stream, modes, specification) for stream in catalog.streams]
    refused = [
        f"{str(stream.id)!r} ({stream.destination_sync_mode})"
        for stream in streams
        if not _takes(modes, stream.destination_sync_mode)
    ]
    if refused:
        known = ", ".join(modes) or "it lists none, and overwrite_dedup is no mode of the protocol"
        raise ConfigError(
            f"destination {connector} does not take the destination_sync_mode of {', '.join(refused)}; "
            f"modes that it takes: {known}",
            guidance="write one of the modes that it takes as the stream's `destination_sync_mode` in "
            "defs.yaml",
        )
    return ConfiguredCatalog(streams=streams, extra=catalog.extra)


def _takes(modes: list[str], mode: str) -> bool:
    """Whether a destination that lists these modes takes one; one that lists none, any of the protocol's."""
    return mode in modes if modes else mode != OVERWRITE_DEDUP


def _as_taken(
    stream: ConfiguredStream, modes: list[str], specification: Specification
) -> ConfiguredStream:
    """The stream with `append_dedup` of a new generation for an `overwrite_dedup` that is not known."""
    is_known = stream.destination_sync_mode != OVERWRITE_DEDUP or OVERWRITE_DEDUP in modes
    version = protocol_version(specification)
    if is_known or version is None or version < GENERATIONS or not _takes(modes, APPEND_DEDUP):
        return stream
    if stream.generation_id is None or stream.generation_id != stream.minimum_generation_id:
        return stream
    taken = copy.copy(stream)
    taken.destination_sync_mode = APPEND_DEDUP
    return taken
