"""A catalog in the destination sync modes that its reader takes: a destination, or a source.

spec: Actor Specification, `supported_destination_sync_modes`; Destination Sync Modes.
"""

from __future__ import annotations

import copy

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.airbyte.messages import Specification
from elt_assets.protocol.airbyte.sync_modes import MODES
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
        known = ", ".join(modes) or "it lists none, so those of the protocol alone"
        raise ConfigError(
            f"destination {connector} does not take the destination_sync_mode of {', '.join(refused)}; "
            f"modes that it takes: {known}",
            guidance="write one of the modes that it takes as the stream's `destination_sync_mode` in "
            "defs.yaml",
        )
    return ConfiguredCatalog(streams=streams, extra=catalog.extra)


def catalog_for_source(catalog: ConfiguredCatalog) -> ConfiguredCatalog:
    """A catalog that sources of any age can read: most refuse modes that came late, and none of them cares
    how its records are kept."""
    streams = [copy.copy(stream) for stream in catalog.streams]
    for stream in streams:
        told = stream.mode.told_to_sources
        if told is not None:
            stream.destination_sync_mode = told
    return ConfiguredCatalog(streams=streams, extra=catalog.extra)


def _takes(modes: list[str], mode: str) -> bool:
    """Whether a destination that lists these modes takes one; one that lists none, any of the protocol's."""
    return mode in modes if modes else mode not in MODES or MODES[mode].is_standard


def _as_taken(
    stream: ConfiguredStream, modes: list[str], specification: Specification
) -> ConfiguredStream:
    """The stream with another mode of a new generation, where its own is not known."""
    other = stream.mode.as_generation_of
    is_known = other is None or stream.destination_sync_mode in modes
    version = protocol_version(specification)
    if is_known or version is None or version < GENERATIONS or not _takes(modes, str(other)):
        return stream
    if stream.generation_id is None or stream.generation_id != stream.minimum_generation_id:
        return stream
    taken = copy.copy(stream)
    taken.destination_sync_mode = str(other)
    return taken
