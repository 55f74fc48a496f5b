"""A stream's state in hand: what it is and was, setting it, going back to one, starting anew.

The state is the table's: each one that was acknowledged is in a commit of the table's log, and an event
of the asset besides. One that is set is a commit too, so that it is where the next sync starts from.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.write import state_log
from elt_assets.lake.write.state_log import Acknowledged
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import declared_schema
from elt_assets.orchestration.events.metadata import head_metadata
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.given_state import as_message, refuse_stateless
from elt_assets.protocol.airbyte.messages import State
from elt_assets.protocol.airbyte.states import STREAM, kind_of


def history(asset: StreamAsset, lake_uri: str, partition: str | None = None) -> list[Acknowledged]:
    """The states that were acknowledged and are in force, the newest first."""
    return state_log.history(asset.tables(lake_uri, partition).main)


def set_state(
    asset: StreamAsset,
    lake_uri: str,
    state: Mapping[str, Any],
    instance: dg.DagsterInstance,
    partition: str | None = None,
) -> StreamTables:
    """Make the next sync start from a state; the rows stay as they are.

    Raises:
        ConfigError: as `as_message`; or no sync of the stream starts from a state.
        ConcurrentSync: a sync of the stream is running, and was first.
    """
    refuse_stateless(asset)
    message, tables = json.dumps(as_message(state, asset.stream)), asset.tables(lake_uri, partition)
    _refuse_shared(asset, tables.head.state)
    return _set(asset, tables, message, instance, partition)


def rewind(
    asset: StreamAsset,
    lake_uri: str,
    sequence: int,
    instance: dg.DagsterInstance,
    partition: str | None = None,
) -> StreamTables:
    """Make the next sync start from the state of an earlier commit; the rows stay as they are.

    Raises:
        ConfigError: there is no such commit, or it had no state; or no sync of the stream starts from one.
        ConcurrentSync: a sync of the stream is running, and was first.
    """
    refuse_stateless(asset)
    tables = asset.tables(lake_uri, partition)
    past = state_log.history(tables.main)
    found = next((one for one in past if one.head.sequence == sequence), None)
    if found is None or found.head.state is None:
        known = [str(one.head.sequence) for one in past if one.head.state is not None]
        raise ConfigError(
            f"{asset.key.to_user_string()} has no state of sequence {sequence}",
            guidance=f"it has those of {', '.join(known)}" if known else "it has none yet",
        )
    return _set(asset, tables, found.head.state, instance, partition)


def reset(
    asset: StreamAsset,
    lake_uri: str,
    instance: dg.DagsterInstance,
    partition: str | None = None,
) -> StreamTables:
    """Make the next sync read from the beginning, in a new generation; the rows stay as they are.

    Raises:
        ConcurrentSync: a sync of the stream is running, and was first.
    """
    return _set(asset, asset.tables(lake_uri, partition), None, instance, partition)


def _set(
    asset: StreamAsset,
    tables: StreamTables,
    state: str | None,
    instance: dg.DagsterInstance,
    partition: str | None,
) -> StreamTables:
    run_id = str(uuid.uuid4())
    asset.refuse_foreign(tables.main)
    tables.settle(run_id)
    schema = declared_schema(asset.landed(), partitioned=asset.partitions is not None)
    state_log.set_state(tables, state, run_id, schema, str(asset.stream.id))
    metadata = {**head_metadata(tables.head, tables.main.version), "elt/set_by_hand": True}
    instance.report_runless_asset_event(
        dg.AssetObservation(asset.key, metadata=metadata, partition=partition)
    )
    return tables


def _refuse_shared(asset: StreamAsset, present: str | None) -> None:
    if not asset.connection.read_together or present is None:
        return
    if kind_of(State.from_json(present)) != STREAM:
        raise ConfigError(
            f"the state of {asset.key.to_user_string()} is one of all streams of its connection",
            guidance="go back to an earlier one with `--sequence`, or give a run of all of them a whole "
            "STATE message as `state`",
        )


def partition_of(asset: StreamAsset, given: str | None, instance: dg.DagsterInstance) -> str | None:
    """The partition that is meant: None for a stream that has none.

    Raises:
        ConfigError: the stream has none, or has them and none is named, or not that one.
    """
    key = asset.key.to_user_string()
    if asset.partitions is None:
        if given is not None:
            raise ConfigError(f"{key} has no partitions", guidance="leave the partition out")
        return None
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        if given is not None and asset.partitions.has_partition_key(given):
            return given
        known = asset.partitions.get_partition_keys()
    some = f"it has {_some(known)}" if known else "it has none yet"
    if given is None:
        raise ConfigError(
            f"{key} has partitions, each with a state of its own; none is named", guidance=some
        )
    raise ConfigError(f"{key} has no partition {given!r}", guidance=some)


def _some(names: Sequence[str]) -> str:
    few = 6
    if len(names) <= few:
        return ", ".join(names)
    return f"{', '.join(names[: few // 2])} … {', '.join(names[-few // 2 :])} ({len(names)})"


def find(assets: Sequence[StreamAsset], key: str) -> StreamAsset:
    """The stream of an asset key, as "shop/users". A slash inside a part may be written with a backslash
    before it, and must be where two keys are otherwise written the same.

    Raises:
        ConfigError: there is none, or there are several; names those that are.
    """
    found = [one for one in assets if one.key.to_escaped_user_string() == key]
    found = found or [one for one in assets if one.key.to_user_string() == key]
    if len(found) > 1:
        raise ConfigError(
            f"there are {len(found)} streams with the asset key {key!r}",
            guidance=f"write {' or '.join(one.key.to_escaped_user_string() for one in found)}",
        )
    if not found:
        known = ", ".join(sorted(one.key.to_user_string() for one in assets))
        raise ConfigError(
            f"there is no stream with the asset key {key!r}",
            guidance=f"known: {known}" if known else "there is none at all",
        )
    return found[0]
