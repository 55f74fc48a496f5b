"""A connection joined with its catalog: its streams, and what is not valid in them.

Called when Dagster loads definitions (`orchestration.component`, `orchestration.build`).

The models of `elt_assets.connection` check what is in the YAML alone, when it is loaded. What needs the
catalog, or the types of columns, is checked here, once. `partition_by`, `cluster_by` and cron expressions are
checked where the specs of the assets are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from elt_assets import paths
from elt_assets.connection import Connection, join_streams
from elt_assets.connection.stream_settings import join_names
from elt_assets.errors import Problems
from elt_assets.lake.write.sync_columns import check_columns
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.contracts import refuse_violations
from elt_assets.pipeline.rules import find_rule_problems, find_unused_rules
from elt_assets.pipeline.stream import ConnectionStream, default_key
from elt_assets.protocol.catalog import DELETED_AT, INCREMENTAL, Catalog
from elt_assets.runner.kinds import KINDS


def resolve_connection(
    connection: Connection, catalog: Catalog, problems: Problems
) -> list[ConnectionStream]:
    """Return the streams of a connection, each with what the catalog has of it.

    Nothing is started, and no secret is read.

    Args:
        problems: gets what is not valid. A stream that does not fit the catalog is left out.
    """
    streams = [
        ConnectionStream(connection, stream, default_key(connection, stream))
        for stream in join_streams(connection, catalog, problems)
    ]
    is_complete = not problems
    for stream in streams:
        stored = stream.make_stored_stream()
        problems.of(partial(check_columns, stored))
        problems.of(stream.check_rows)
        problems.of(stream.check_deletes)
        name = f"stream {str(stream.stream.id)!r}"
        problems.add(f"{name}: {problem}" for problem in find_rule_problems(stream))
        problems.of(partial(refuse_violations, stream.settings.contract, stored))
    if is_complete:  # a stream that is left out may have their columns
        problems.add(find_unused_rules(streams))
        problems.add(_find_follow_problems(connection, streams))
    problems.of(partial(make_source, connection, paths.staging()))
    return streams


def _find_follow_problems(
    connection: Connection, streams: Sequence[ConnectionStream]
) -> Iterator[str]:
    """Yield why the log of a connection cannot be followed as `follow` asks for."""
    kind = KINDS[connection.source.kind]
    others = [str(stream.stream.id) for stream in streams if not _is_read_from_log(stream)]
    if connection.follow is None:
        return
    if connection.destination is not None:
        yield (
            "follow: only tables of the lake can follow a log, and the connection has another `destination`; "
            "leave `follow` out, and write a `schedule`"
        )
    elif not kind.follows:
        yield (
            f"follow: `source.{kind.key}` cannot follow a log; use `connector: postgres` or `mysql` with "
            "`incremental: log`, or leave `follow` out, and write a `schedule`"
        )
    elif others:
        yield (
            f"follow: not read from a log: {join_names(others)}; configure the source with `incremental: "
            "log`, run `elt discover` and write `sync_mode: incremental`; or move these streams to a "
            "connection of their own; or leave `follow` out, and write a `schedule`"
        )
    elif not connection.read_together:
        yield "follow: the streams of a log are read together; write `read_together: true`"


def _is_read_from_log(stream: ConnectionStream) -> bool:
    configured = stream.stream
    declared = configured.stream.json_schema.get("properties") or {}
    return configured.sync_mode == INCREMENTAL and DELETED_AT in declared
