"""The generation that a sync of a stream writes.

spec: ConfiguredAirbyteStream as of 0.9: a refresh that truncates has a generation of its own, below which
none is kept; until it is complete readers see the older ones.
"""

from __future__ import annotations

import copy

from elt_assets.errors import ConfigError
from elt_assets.lake import landing
from elt_assets.lake.head import Head, Refresh
from elt_assets.protocol.catalog import ConfiguredStream


def resumable(stream: ConfiguredStream) -> ConfiguredStream:
    """The stream as one whose states can all be gone on from: so that each of them is committed. An
    overwrite builds its generation where no reader sees it, until it is complete."""
    found = copy.copy(stream)
    found.stream = copy.copy(stream.stream)
    found.stream.is_resumable = True
    return found


def numbered(stream: ConfiguredStream, head: Head) -> ConfiguredStream:
    """The stream, `resumable`, with the generation and the sync id that are in force.

    Those that the catalog gives; without them, or where it lets an overwrite keep what it is to replace,
    those of the lake. A refresh that was begun is gone on with if it has the same generation.

    Raises:
        ConfigError: the generation is older than the table's, or it was begun in another way.
    """
    found = resumable(stream)
    if stream.generation_id is None or (stream.overwrites and not stream.minimum_generation_id):
        if not stream.overwrites and landing.begins_anew(stream, head):
            raise _other_making(stream, head.refresh)
        own = landing.generations(stream, head, "truncate" if stream.overwrites else "none")
        found.generation_id = own.generation_id
        found.minimum_generation_id = own.minimum_generation_id
    else:
        _refuse_older(stream, stream.generation_id, head)
        _refuse_other_making(found, head)
    if found.sync_id is None:
        found.sync_id = landing.begins(head)
    return found


def _refuse_older(stream: ConfiguredStream, given: int, head: Head) -> None:
    present = max(head.generation, 0 if head.refresh is None else head.refresh.generation)
    if given < present:
        raise ConfigError(
            f"stream {str(stream.id)!r}: generation_id {given} is older than what its table has, {present}",
            guidance="refresh the stream with a generation_id that is greater, or move its table away",
        )


def _refuse_other_making(stream: ConfiguredStream, head: Head) -> None:
    """What was committed of a refresh was acknowledged: its source will not send it again."""
    begun, given = head.refresh, stream.generation_id
    if begun is None or not begun.truncates or begun.generation != given:
        return
    if stream.minimum_generation_id == 0 or landing.begun_otherwise(stream, given, head):
        raise _other_making(stream, begun)


def _other_making(stream: ConfiguredStream, begun: Refresh | None) -> ConfigError:
    generation = None if begun is None else begun.generation
    return ConfigError(
        f"stream {str(stream.id)!r}: its refresh, generation {generation}, was begun with another schema, "
        "key, cursor, sync mode or minimum_generation_id, and cannot be gone on with in this way",
        guidance="refresh it with a greater generation_id, or go on with the former settings",
    )
