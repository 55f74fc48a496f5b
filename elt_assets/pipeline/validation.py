"""A connection joined with its catalog: its streams, and what is not valid in them.

Called when Dagster loads definitions (`orchestration.component`, `orchestration.build`).

The models of `elt_assets.connection` check what is in the YAML alone, when it is loaded. What needs the
catalog, or the types of columns, is checked here, once. `partition_by`, `cluster_by` and cron expressions are
checked where the specs of the assets are made.
"""

from __future__ import annotations

from functools import partial

from elt_assets import paths
from elt_assets.connection import Connection, join_streams
from elt_assets.errors import Problems
from elt_assets.lake.write.sync_columns import check_columns
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.contracts import refuse_violations
from elt_assets.pipeline.rules import find_rule_problems, find_unused_rules
from elt_assets.pipeline.stream import ConnectionStream, default_key
from elt_assets.protocol.catalog import Catalog


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
    problems.of(partial(make_source, connection, paths.staging()))
    return streams
