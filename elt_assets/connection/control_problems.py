"""Run controls that would have no effect, or that a stream cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from elt_assets.connection.automation import OnCron
from elt_assets.connection.connection_model import Connection
from elt_assets.connection.stream_model import Stream
from elt_assets.protocol.airbyte.sync_modes import find_modes

_OF_THE_OP = ("pool", "op_tags", "run_tags", "full_refresh")
"""Controls that streams which are read together have in common, since one op reads them in one run."""


def find_unused_refresh(connection: Connection) -> Iterator[str]:
    """Yield that no stream of a connection needs its `full_refresh`."""
    if connection.full_refresh is None:
        return
    if not any(can_refresh(connection, stream) for stream in connection.streams):
        yield (
            "full_refresh: no stream of the connection needs it: each has `partitions`, or is replaced by "
            "every sync; leave it out"
        )


def find_control_problems(connection: Connection, stream: Stream) -> Iterator[str]:
    """Yield the run controls of a stream that are not valid."""
    own = stream.model_fields_set
    if connection.read_together:
        for key in _OF_THE_OP:
            if key in own:
                yield (
                    f"{key}: streams that are read together have it in common; write it at the connection"
                )
    elif stream.full_refresh is not None and stream.partitions is not None:
        yield (
            "full_refresh: a stream with `partitions` is read again by a backfill of its partitions; leave "
            "it out"
        )
    elif stream.full_refresh is not None and _is_replaced(stream):
        yield (
            f"full_refresh: with `destination_sync_mode: {stream.destination_sync_mode}` every sync replaces "
            "the rows; write a `schedule` instead"
        )
    if stream.timezone is not None and not _has_cron(connection, stream):
        yield (
            "timezone: the stream has no cron expression of its own; add a `schedule`, or write `timezone` "
            "at the connection"
        )


def can_refresh(connection: Connection, stream: Stream) -> bool:
    """Return whether a stream can have a refresh on a schedule, and is not replaced by each sync anyway.

    Streams that are read together are refreshed together.
    """
    if connection.read_together:
        return any(not _is_replaced(other) for other in connection.streams)
    return stream.partitions is None and not _is_replaced(stream)


def _is_replaced(stream: Stream) -> bool:
    return find_modes()[stream.destination_sync_mode].overwrites


def _has_cron(connection: Connection, stream: Stream) -> bool:
    has_own = "automation" in stream.model_fields_set
    automation = stream.automation if has_own else connection.automation
    freshness = stream.freshness or connection.freshness
    return (
        stream.schedule is not None
        or stream.full_refresh is not None
        or isinstance(automation, OnCron)
        or (freshness is not None and freshness.cron is not None)
    )
