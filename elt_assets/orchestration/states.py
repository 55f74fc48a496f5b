"""List, set, rewind and reset the state of a stream, for `elt state` and `elt reset`.

The state belongs to the table: each acknowledged state is in a commit of the table's log, and also in an
event of the asset. Setting a state is a commit too, so the next sync starts from it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import PastCommit
from elt_assets.lake.write import states
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import make_declared_schema
from elt_assets.orchestration.metadata import commit_metadata
from elt_assets.orchestration.renaming import refuse_lost_table
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.stream_plan import as_message, refuse_stateless
from elt_assets.protocol.message_rules import STREAM, kind_of
from elt_assets.protocol.messages import State
from elt_assets.storage.location import Location

_MAX_LISTED = 6
"""Maximum number of partitions that an error lists in full."""


def history(
    asset: StreamAsset, lake: Location | str, partition: str | None = None
) -> list[PastCommit]:
    """Return the acknowledged states, the newest first. States that a restore undid are left out."""
    return list(asset.tables(lake, partition).main.past_commits())


def set_state(
    asset: StreamAsset,
    lake: Location | str,
    state: Mapping[str, Any],
    instance: dg.DagsterInstance,
    partition: str | None = None,
) -> StreamTables:
    """Make the next sync start from a state. The rows of the table do not change.

    Raises:
        ConfigError: the state is not valid (see `as_message`); the streams of the connection share one
            state; or the stream never starts from a state.
        ConcurrentSync: a running sync of the stream committed first.
    """
    refuse_stateless(asset)
    message, tables = json.dumps(as_message(state, asset.stream)), asset.tables(lake, partition)
    _refuse_shared(asset, tables.metadata.state)
    refuse_lost_table(instance, asset, Location.parse(lake), tables)
    return _commit_state(asset, tables, message, instance, partition)


def rewind(
    asset: StreamAsset,
    lake: Location | str,
    sequence: int,
    instance: dg.DagsterInstance,
    partition: str | None = None,
) -> StreamTables:
    """Make the next sync start from the state of an earlier commit. The rows of the table do not change.

    Raises:
        ConfigError: there is no commit with this sequence, or it has no state; or the stream never starts
            from a state.
        ConcurrentSync: a running sync of the stream committed first.
    """
    refuse_stateless(asset)
    tables = asset.tables(lake, partition)
    commits = list(tables.main.past_commits())
    chosen = next((commit for commit in commits if commit.metadata.sequence == sequence), None)
    if chosen is None or chosen.metadata.state is None:
        sequences = [
            str(commit.metadata.sequence) for commit in commits if commit.metadata.state is not None
        ]
        raise ConfigError(
            f"{asset.key.to_user_string()} has no state with sequence {sequence}",
            guidance=f"sequences with a state: {', '.join(sequences)}"
            if sequences
            else "it has no state yet",
        )
    return _commit_state(asset, tables, chosen.metadata.state, instance, partition)


def reset(
    asset: StreamAsset,
    lake: Location | str,
    instance: dg.DagsterInstance,
    partition: str | None = None,
) -> StreamTables:
    """Make the next sync read from the beginning, in a new generation. The rows of the table do not change.

    Raises:
        ConcurrentSync: a running sync of the stream committed first.
    """
    tables = asset.tables(lake, partition)
    refuse_lost_table(instance, asset, Location.parse(lake), tables)
    return _commit_state(asset, tables, None, instance, partition)


def reset_partitions(
    asset: StreamAsset, lake: Location | str, instance: dg.DagsterInstance
) -> int | None:
    """Reset a stream, or each of its partitions that has a state, and return the number of these partitions.

    The number is None for a stream without partitions.

    Raises:
        ConcurrentSync: as for `reset`.
    """
    if asset.partitions is None:
        reset(asset, lake, instance)
        return None
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        every = asset.partitions.get_partition_keys()
    keys = [key for key in every if asset.tables(lake, key).metadata.state is not None]
    for key in keys:
        reset(asset, lake, instance, key)
    return len(keys)


def remove_rows(asset: StreamAsset, lake: Location | str, instance: dg.DagsterInstance) -> int:
    """Make the next sync read from the beginning into a table without rows; return how many it had.

    Raises:
        ConfigError: the rows are in another destination; or the stream has partitions, whose rows belong to
            several states.
        ConcurrentSync: a running sync of the stream committed first.
    """
    refuse_removal(asset)
    tables, run_id = asset.tables(lake), str(uuid.uuid4())
    asset.refuse_foreign(tables.main)
    tables.roll_back_companions(run_id)
    if not tables.main.exists:
        return 0
    rows = states.remove_rows(tables, run_id)
    _report(asset, tables, instance, None)
    return rows


def refuse_removal(asset: StreamAsset) -> None:
    """Refuse to remove the rows of a stream where `remove_rows` cannot.

    Raises:
        ConfigError: see `remove_rows`.
    """
    key = asset.key.to_user_string()
    if asset.connection.destination is not None:
        raise ConfigError(
            f"the rows of {key} are in another destination",
            guidance="remove them there, and omit --data",
        )
    if asset.partitions is not None:
        raise ConfigError(
            f"{key} has partitions, and each has rows and a state of its own",
            guidance="move the table and its dead letter away: the next sync of each partition reads it from "
            "the beginning",
        )


def _commit_state(
    asset: StreamAsset,
    tables: StreamTables,
    state: str | None,
    instance: dg.DagsterInstance,
    partition: str | None,
) -> StreamTables:
    run_id = str(uuid.uuid4())
    asset.refuse_foreign(tables.main)
    tables.roll_back_companions(run_id)
    schema = make_declared_schema(
        asset.make_stored_stream(),
        partitioned=asset.partitions is not None,
        keeps_deleted=asset.keeps_deleted,
    )
    states.set_state(tables, state, run_id, schema, str(asset.stream.id))
    _report(asset, tables, instance, partition)
    return tables


def _report(
    asset: StreamAsset, tables: StreamTables, instance: dg.DagsterInstance, partition: str | None
) -> None:
    metadata = {**commit_metadata(tables.main), "elt/set_by_hand": True}
    instance.report_runless_asset_event(
        dg.AssetObservation(asset.key, metadata=metadata, partition=partition)
    )


def _refuse_shared(asset: StreamAsset, current: str | None) -> None:
    if not asset.connection.read_together or current is None:
        return
    if kind_of(State.from_json(current)) != STREAM:
        raise ConfigError(
            f"the state of {asset.key.to_user_string()} is shared by all streams of its connection",
            guidance="restore an earlier state with `--sequence`, or run all streams with a whole STATE "
            "message as the run config `state`",
        )


def partition_of(
    asset: StreamAsset, requested: str | None, instance: dg.DagsterInstance
) -> str | None:
    """Return the requested partition after validation; None for a stream without partitions.

    Raises:
        ConfigError: a partition is requested of a stream without partitions; none is requested of a stream
            with partitions; or the stream has no such partition.
    """
    key = asset.key.to_user_string()
    if asset.partitions is None:
        if requested is not None:
            raise ConfigError(f"{key} has no partitions", guidance="omit the partition")
        return None
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        if requested is not None and asset.partitions.has_partition_key(requested):
            return requested
        keys = asset.partitions.get_partition_keys()
    ends = keys if len(keys) <= _MAX_LISTED else [*keys[:3], "…", *keys[-3:]]
    listed = ", ".join(ends).replace(", …, ", " … ")
    listed += "" if ends is keys else f" ({len(keys)})"
    guidance = f"its partitions: {listed}" if keys else "it has no partitions yet"
    if requested is None:
        raise ConfigError(
            f"{key} has partitions, each with its own state, and no partition is given",
            guidance=f"add `--partition KEY`; {guidance}",
        )
    raise ConfigError(f"{key} has no partition {requested!r}", guidance=guidance)


def find(assets: Sequence[StreamAsset], key: str) -> StreamAsset:
    """Return the stream with an asset key, for example "shop/users".

    A slash inside a part of the key may be escaped with a backslash. It must be escaped if two keys are the
    same without escapes.

    Raises:
        ConfigError: no stream or several streams have this key; the guidance lists the possible keys.
    """
    matches = [asset for asset in assets if asset.key.to_escaped_user_string() == key]
    matches = matches or [asset for asset in assets if asset.key.to_user_string() == key]
    if len(matches) > 1:
        raise ConfigError(
            f"there are {len(matches)} streams with the asset key {key!r}",
            guidance=f"write {' or '.join(match.key.to_escaped_user_string() for match in matches)}",
        )
    if not matches:
        keys = ", ".join(sorted(asset.key.to_user_string() for asset in assets))
        raise ConfigError(
            f"there is no stream with the asset key {key!r}",
            guidance=f"known asset keys: {keys}" if keys else "there are no streams",
        )
    return matches[0]
