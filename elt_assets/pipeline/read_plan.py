"""Plans one read of a connection's source, from the plans of its streams.

A plan has no effects: no process is started and no table is written before the read is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elt_assets.pipeline import shared_state_start
from elt_assets.pipeline.connection_read import ConnectionRead, RunResources
from elt_assets.pipeline.connectors import connect, connect_destination
from elt_assets.pipeline.destination_read import DestinationRead
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.protocol.messages import State


def plan_read(
    plan: StreamPlan, resources: RunResources, config: Mapping[str, Any] | None = None
) -> ConnectionRead:
    """Plan the read of one stream, or of one of its partitions.

    Args:
        config: config of the source for a window or a partition; it replaces the connection's.
    """
    states = [] if plan.state is None else [State.from_json(plan.state)]
    return _plan([plan], states, resources, config)


def plan_shared_read(
    plans: Sequence[StreamPlan], resources: RunResources, start: Mapping[str, Any] | None
) -> ConnectionRead:
    """Plan one read of several streams of a connection, from a state that covers all of them.

    Args:
        start: starting state; ignored if all streams continue an earlier attempt.

    Raises:
        ConfigError: the given state is not one that streams share.
    """
    sync_id = max(plan.stream.sync_id or 0 for plan in plans)
    for plan in plans:
        plan.stream.sync_id = sync_id
    if start is None or all(plan.continues for plan in plans):
        states = shared_state_start.choose_starting_states(
            plans, lambda text: resources.log("WARN", text)
        )
    else:
        states = [shared_state_start.as_shared(start)]
    return _plan(plans, states, resources, shares_state=True)


def _plan(
    plans: Sequence[StreamPlan],
    states: Sequence[State],
    resources: RunResources,
    config: Mapping[str, Any] | None = None,
    *,
    shares_state: bool = False,
) -> ConnectionRead:
    connection, folder = plans[0].asset.connection, resources.staging.folder
    connector = connect(connection, folder, config, on_log=resources.log)
    destination = connect_destination(connection, folder, on_log=resources.log)
    if destination is None:
        return ConnectionRead(plans, states, connector, resources, shares_state=shares_state)
    return DestinationRead(
        destination, plans, states, connector, resources, shares_state=shares_state
    )
