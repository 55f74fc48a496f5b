"""Conversion of a configured catalog to destination sync modes that a destination or a source supports.

Spec: Actor Specification, `supported_destination_sync_modes`; Destination Sync Modes.
"""

from __future__ import annotations

import copy

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import ConfiguredCatalog
from elt_assets.protocol.airbyte.messages import Specification
from elt_assets.protocol.airbyte.sync_modes import find_modes
from elt_assets.protocol.airbyte.versions import GENERATIONS, protocol_version


def catalog_for_destination(
    catalog: ConfiguredCatalog, specification: Specification, connector: str
) -> ConfiguredCatalog:
    """Return the catalog with modes that a destination supports.

    Most destinations do not support `overwrite_dedup`. It equals an `append_dedup` that replaces the older
    generations, so a destination that supports generations gets that mode instead. A destination that
    lists no modes is assumed to support those of the protocol.

    Raises:
        ConfigError: the destination does not support a stream's mode, and the error names the supported
            modes; or a stream is refreshed and the destination does not support generations.
    """
    modes = specification.supported_destination_sync_modes or []
    version = protocol_version(specification)
    has_generations = version is not None and version >= GENERATIONS
    streams, unsupported, unrefreshed = [], [], []
    for configured in catalog.streams:
        stream, mode = configured, configured.mode.generation_mode
        replaces_older = (
            bool(stream.generation_id) and stream.generation_id == stream.minimum_generation_id
        )
        is_supported = mode is None or stream.destination_sync_mode in modes
        if replaces_older and has_generations and not is_supported and _supports(modes, str(mode)):
            stream = copy.copy(stream)
            stream.destination_sync_mode = str(mode)
        streams.append(stream)
        if not _supports(modes, stream.destination_sync_mode):
            unsupported.append(f"{str(stream.id)!r} ({stream.destination_sync_mode})")
        # A destination without generations ignores them. In a mode that overwrites it removes old rows all
        # the same; in any other it would keep them beside the new ones.
        if replaces_older and not has_generations and not stream.mode.overwrites:
            unrefreshed.append(repr(str(stream.id)))
    if unsupported:
        supported = ", ".join(modes) or "those of the protocol (the destination lists none)"
        raise ConfigError(
            f"destination {connector} does not support the destination_sync_mode of "
            f"{', '.join(unsupported)}; supported modes: {supported}",
            guidance="set the stream's `destination_sync_mode` in defs.yaml to a supported mode",
        )
    if unrefreshed:
        raise ConfigError(
            f"destination {connector} cannot refresh {', '.join(unrefreshed)}: it does not declare a "
            f"`protocol_version` of {'.'.join(map(str, GENERATIONS))} or later, so it would ignore the new "
            "generation and keep the old rows beside the new ones",
            guidance="remove the rows in the destination and read the stream from the beginning with "
            "`elt state reset`; or use `refresh: retain`, which keeps the old rows; or set "
            "`destination_sync_mode: overwrite`",
        )
    return ConfiguredCatalog(streams=streams, extra=catalog.extra)


def catalog_for_source(catalog: ConfiguredCatalog) -> ConfiguredCatalog:
    """Return a catalog that sources of any age can read. Most sources refuse modes that were added later, and
    no source depends on how its records are stored."""
    streams = [copy.copy(stream) for stream in catalog.streams]
    for stream in streams:
        mode = stream.mode.source_mode
        if mode is not None:
            stream.destination_sync_mode = mode
    return ConfiguredCatalog(streams=streams, extra=catalog.extra)


def _supports(modes: list[str], mode: str) -> bool:
    """Return whether a destination that lists `modes` supports `mode`; an empty list means the protocol's."""
    all_modes = find_modes()
    return mode in modes if modes else mode not in all_modes or all_modes[mode].is_standard
