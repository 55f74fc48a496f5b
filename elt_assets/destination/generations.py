"""The generation that a sync of a stream writes.

Spec: ConfiguredAirbyteStream as of 0.9: a truncating refresh has its own generation, and no older generation
is kept. Until it is complete, readers see the older generations.

The generation numbers of a table only increase. They are those of the platform, unless it overwrites a
complete generation again under the same `generation_id`, as PyAirbyte does: then the table assigns its own.
"""

from __future__ import annotations

import copy

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.write.sync_columns import StoredStream, next_sync_id
from elt_assets.protocol.catalog import FULL_REFRESH, ConfiguredStream


class OlderGenerationError(ConfigError):
    """The generation of a sync is older than that of its table."""


class IncompatibleRefreshError(ConfigError):
    """An unfinished refresh was started with other settings, and cannot be resumed."""


def publishes_at_end(stream: ConfiguredStream) -> bool:
    """Return whether the states of a stream are withheld until its last record: it overwrites, without a
    generation from the platform.

    Otherwise the next sync cannot know whether its source resumes from a state or reads from the beginning.
    """
    return stream.overwrites and not _is_numbered(stream)


def read_as(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream as the session reads it: its states are committed as they arrive, unless it
    `publishes_at_end`."""
    resumable = _resumable(stream)
    if publishes_at_end(stream):
        resumable.sync_mode, resumable.stream.is_resumable = FULL_REFRESH, False
    return resumable


def is_repeated_overwrite(stream: ConfiguredStream, metadata: CommitMetadata) -> bool:
    """Return whether the stream overwrites a complete generation again, under the same `generation_id`."""
    is_building = metadata.refresh is not None and metadata.refresh.truncates
    is_complete = metadata.sequence > 0 and not is_building
    overwrites = stream.overwrites and _is_numbered(stream)
    return overwrites and is_complete and stream.generation_id == _newest_requested(metadata)


def set_generation(
    stream: ConfiguredStream, metadata: CommitMetadata, *, adds: bool = False
) -> ConfiguredStream:
    """Return the stream with the generation and the sync id that its sync writes.

    They are those of the catalog. The lake assigns them if the catalog has none, or gives an overwrite the
    minimum 0, which keeps older rows. An omitted minimum is 0. An unfinished refresh of the same generation
    is resumed.

    Args:
        adds: whether a repeated overwrite adds its records to the complete generation, instead of a new one.

    Raises:
        ConfigError: the generation is older than the table's, or is a refresh that was started differently.
    """
    numbered = _resumable(stream)
    if stream.generation_id is None or not _is_numbered(stream):
        stored = StoredStream(stream, metadata)
        if not stream.overwrites and stored.must_restart:
            raise _incompatible_refresh(stream, metadata.refresh)
        own = stored.generations("truncate" if stream.overwrites else "none")
        numbered.generation_id = own.generation_id
        numbered.minimum_generation_id = own.minimum_generation_id
    elif stream.minimum_generation_id in (None, 0, stream.generation_id):
        _refuse_older(stream, stream.generation_id, metadata)
        is_new = stream.generation_id > _newest_requested(metadata)
        if is_new or (is_repeated_overwrite(stream, metadata) and not adds):
            numbered.generation_id = max(stream.generation_id, _newest(metadata) + 1)
        else:
            numbered.generation_id = _newest(metadata)
        numbered.minimum_generation_id = (
            numbered.generation_id if stream.minimum_generation_id else 0
        )
        _refuse_incompatible(numbered, metadata)
    if numbered.sync_id is None:
        numbered.sync_id = next_sync_id(metadata)
    return numbered


def find_requested_generation(
    stream: ConfiguredStream, metadata: CommitMetadata, generation: int | None
) -> int | None:
    """Return the `requested_generation` (see `CommitMetadata`) of the generation that a sync writes.

    Args:
        generation: the number of this generation in the table.
    """
    if not _is_numbered(stream):
        return metadata.requested_generation if generation == _newest(metadata) else None
    return stream.generation_id if generation != stream.generation_id else None


def _resumable(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream as resumable from each of its states, so that each state is committed. The generation
    of an overwrite is invisible to readers until it is complete."""
    resumable = copy.copy(stream)
    resumable.stream = copy.copy(stream.stream)
    resumable.stream.is_resumable = True
    return resumable


def _is_numbered(stream: ConfiguredStream) -> bool:
    """Return whether the catalog's generation is in force. Platforms without refreshes send zeros."""
    overwrites_all = stream.overwrites and not stream.minimum_generation_id
    return stream.generation_id is not None and not overwrites_all


def _newest(metadata: CommitMetadata) -> int:
    """Return the table's newest generation, complete or not."""
    return max(metadata.generation, 0 if metadata.refresh is None else metadata.refresh.generation)


def _newest_requested(metadata: CommitMetadata) -> int:
    """Return the platform's number of the newest generation."""
    requested = metadata.requested_generation
    return _newest(metadata) if requested is None else requested


def _refuse_older(stream: ConfiguredStream, generation: int, metadata: CommitMetadata) -> None:
    newest = _newest_requested(metadata)
    if generation < newest:
        raise OlderGenerationError(
            f"stream {str(stream.id)!r}: generation_id {generation} is older than the generation of its "
            f"table, {newest}",
            guidance="refresh the stream with a greater generation_id, or move its table away",
        )


def _refuse_incompatible(stream: ConfiguredStream, metadata: CommitMetadata) -> None:
    """Refuse to resume a refresh that was started differently: its source does not send acknowledged records
    again."""
    refresh, generation = metadata.refresh, stream.generation_id
    if refresh is None or not refresh.truncates or refresh.generation != generation:
        return
    stored = StoredStream(stream, metadata)
    if stream.minimum_generation_id == 0 or stored.has_incompatible_refresh(generation):
        raise _incompatible_refresh(stream, refresh)


def _incompatible_refresh(
    stream: ConfiguredStream, refresh: Refresh | None
) -> IncompatibleRefreshError:
    generation = None if refresh is None else refresh.generation
    return IncompatibleRefreshError(
        f"stream {str(stream.id)!r}: its unfinished refresh, generation {generation}, has another schema, "
        "key, cursor, sync mode or minimum_generation_id, and cannot be resumed with the present ones",
        guidance="refresh the stream with a greater generation_id, or resume with the former settings",
    )
