"""The generation that a sync of a stream writes.

spec: ConfiguredAirbyteStream as of 0.9: a refresh that truncates has a generation of its own, below which
none is kept; until it is complete readers see the older ones.

A table numbers its generations itself: they only grow. Their numbers are those that the platform gives, but
where it overwrites a complete generation under the same `generation_id` once more, as PyAirbyte does.
"""

from __future__ import annotations

import copy

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.write import write_spec
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, ConfiguredStream


def publishes_at_end(stream: ConfiguredStream) -> bool:
    """Whether the states of the stream wait for its last record: it overwrites without a generation.

    The next sync could not know whether its source resumes from an earlier state, or begins again.
    """
    return stream.overwrites and not _is_numbered(stream)


def read_as(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream as the session reads it: one whose states are committed as they come, unless it
    `publishes_at_end`."""
    found = _resumable(stream)
    if publishes_at_end(stream):
        found.sync_mode, found.stream.is_resumable = FULL_REFRESH, False
    return found


def repeats(stream: ConfiguredStream, head: CommitMetadata) -> bool:
    """Whether the stream overwrites a generation that is complete, under the same `generation_id`."""
    is_building = head.refresh is not None and head.refresh.truncates
    is_complete = head.sequence > 0 and not is_building
    overwrites = stream.overwrites and _is_numbered(stream)
    return overwrites and is_complete and stream.generation_id == _newest_requested(head)


def numbered(
    stream: ConfiguredStream, head: CommitMetadata, *, adds: bool = False
) -> ConfiguredStream:
    """Return the stream with the table's generation and the sync id that are in force.

    Those that the catalog gives; without them, or where it lets an overwrite keep what it is to replace,
    those of the lake. An unfinished refresh is resumed if it has the same generation.

    Args:
        adds: a complete generation that is overwritten once more gets the records, in place of a new one.

    Raises:
        ConfigError: the generation is older than the table's, or it was begun in another way.
    """
    found = _resumable(stream)
    if stream.generation_id is None or not _is_numbered(stream):
        if not stream.overwrites and write_spec.must_restart(stream, head):
            raise _other_making(stream, head.refresh)
        own = write_spec.generations(stream, head, "truncate" if stream.overwrites else "none")
        found.generation_id = own.generation_id
        found.minimum_generation_id = own.minimum_generation_id
    elif stream.minimum_generation_id in (0, stream.generation_id):
        _refuse_older(stream, stream.generation_id, head)
        begins = stream.generation_id > _newest_requested(head)
        if begins or (repeats(stream, head) and not adds):
            found.generation_id = max(stream.generation_id, _newest(head) + 1)
        else:
            found.generation_id = _newest(head)
        if stream.minimum_generation_id:
            found.minimum_generation_id = found.generation_id
        _refuse_other_making(found, head)
    if found.sync_id is None:
        found.sync_id = write_spec.next_sync_id(head)
    return found


def requested(stream: ConfiguredStream, head: CommitMetadata, written: int | None) -> int | None:
    """Return the `requested_generation` (`CommitMetadata`) of the generation that a sync writes.

    Args:
        written: the table's number of it.
    """
    if not _is_numbered(stream):
        return head.requested_generation if written == _newest(head) else None
    return stream.generation_id if written != stream.generation_id else None


def _resumable(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream as one whose states can all be resumed from, so that each of them is committed. An
    overwrite builds its generation where no reader sees it, until it is complete."""
    found = copy.copy(stream)
    found.stream = copy.copy(stream.stream)
    found.stream.is_resumable = True
    return found


def _is_numbered(stream: ConfiguredStream) -> bool:
    """Whether the catalog's generation is in force. Who knows of no refreshes sends zeros."""
    overwrites_all = stream.overwrites and not stream.minimum_generation_id
    return stream.generation_id is not None and not overwrites_all


def _newest(head: CommitMetadata) -> int:
    """Return the table's newest generation, complete or not."""
    return max(head.generation, 0 if head.refresh is None else head.refresh.generation)


def _newest_requested(head: CommitMetadata) -> int:
    """Return the platform's number of the newest generation."""
    known = head.requested_generation
    return _newest(head) if known is None else known


def _refuse_older(stream: ConfiguredStream, given: int, head: CommitMetadata) -> None:
    present = _newest_requested(head)
    if given < present:
        raise ConfigError(
            f"stream {str(stream.id)!r}: generation_id {given} is older than what its table has, {present}",
            guidance="refresh the stream with a generation_id that is greater, or move its table away",
        )


def _refuse_other_making(stream: ConfiguredStream, head: CommitMetadata) -> None:
    """Refuse to resume a refresh in another way: its source will not send again what was acknowledged."""
    begun, given = head.refresh, stream.generation_id
    if begun is None or not begun.truncates or begun.generation != given:
        return
    if stream.minimum_generation_id == 0 or write_spec.has_incompatible_refresh(
        stream, given, head
    ):
        raise _other_making(stream, begun)


def _other_making(stream: ConfiguredStream, begun: Refresh | None) -> ConfigError:
    generation = None if begun is None else begun.generation
    return ConfigError(
        f"stream {str(stream.id)!r}: its refresh, generation {generation}, was begun with another schema, "
        "key, cursor, sync mode or minimum_generation_id, and cannot be gone on with in this way",
        guidance="refresh it with a greater generation_id, or go on with the former settings",
    )
