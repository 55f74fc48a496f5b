"""Tables of streams whose names have changed: found before a sync or a change of state, and moved.

`planning` and `states` find them; `elt rename` moves them. `erasing`, too, refuses to work beside a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.admin.moving import (
    find_ended_move,
    list_moved_writers,
    move_tables,
    refuse_move,
)
from elt_assets.lake.delta.rules import Move
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables, app_id
from elt_assets.lake.write.paths import Levels
from elt_assets.orchestration.metadata import (
    TABLE,
    TABLE_PATH,
    commit_metadata,
    table_metadata,
    unwrap,
)
from elt_assets.orchestration.runs.liveness import IN_PROGRESS, fail_dead_runs
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_events import is_below, read_newest_materializations
from elt_assets.pipeline.following import drop_published, follow_now, list_tables_at
from elt_assets.pipeline.former_tables import (
    FormerTable,
    connection_of_writer,
    find_former_tables,
    find_table_of_others,
    refuse_former_tables,
    rename_command,
    rename_state,
    stream_of_writer,
)
from elt_assets.pipeline.publication import list_lake_tables, show_name_of
from elt_assets.storage.location import Location

_TABLE_NAME = "dagster/table_name"
"""The path of a table in events that do not have `TABLE_PATH` yet."""


@dataclass(frozen=True)
class Renamed:
    """A move that has ended: the paths of the table before and after, and the partitions with a state."""

    source: str
    target: str
    partitions: Sequence[str | None]
    warnings: Sequence[str] = ()
    """Why a place where the table is published does not have it under its new name yet."""


def refuse_lost_table(
    instance: dg.DagsterInstance, asset: StreamAsset, lake: Location, tables: StreamTables
) -> None:
    """Refuse to begin a new table for a stream that has one under former names.

    Raises:
        ConfigError: see `refuse_former_tables`.
    """
    if not tables.main.exists:
        refuse_former_tables(lake, asset, _find_recorded_paths(instance, asset, lake))


def _find_recorded_paths(
    instance: dg.DagsterInstance, asset: StreamAsset, lake: Location
) -> list[Levels]:
    """Return the paths of the stream's table in the events of a lake, and in those of any lake.

    The newest event may be of another lake, in which the table was moved already. The events of another lake
    count too: the lake may have been moved. The caller looks whether a table of the stream is there.
    """
    names: list[str] = []
    for metadata in read_newest_materializations(instance, asset.key):
        path = unwrap(metadata.get(TABLE_PATH)) or unwrap(metadata.get(_TABLE_NAME))
        if path is None:
            continue
        is_of_lake = is_below(lake, unwrap(metadata.get(TABLE)) or {})
        if is_of_lake or not names:
            names.append(str(path).replace(".", "/"))
        if is_of_lake:
            break
    return [tuple(name.split("/")) for name in names]


def rename_tables(
    asset: StreamAsset, lake: Location, former: str, instance: dg.DagsterInstance
) -> Renamed:
    """Move the tables and the state that a stream has under a former name to its present names.

    Args:
        former: the former name: of the stream or of its table, or the path of the table.

    Raises:
        ConfigError: there is no such table, or several; something is at the new place; or a run of the
            connection is in progress. Nothing was changed.
        EltError: a place where the table is published does not let go of the former name. No table was moved.
    """
    refuse_running(instance, asset)
    move = _plan(asset, lake, former, instance)
    is_published = asset.connection.destination is None
    if find_ended_move(asset.tables(lake).main) == move:
        # An earlier call was killed, perhaps before it has reported it.
        writers = list_moved_writers(lake, move)
    else:
        refuse_move(lake, move)
        connection = connection_of_writer(move.former)
        has_new_name = move.source != move.target or connection != asset.connection.name
        if is_published and has_new_name:
            # Before the move, so that an entry under the former name is never left behind.
            drop_published(list_tables_at(lake, move.source.split("/"), connection))
        former_stream = stream_of_writer(move.former)
        convert = partial(rename_state, former=former_stream, stream=asset.stream.id)
        writers = move_tables(lake, move, convert)
    partitions = [writer.removeprefix(move.writer)[1:] or None for writer in writers]
    target = lake.child(*move.target.split("/"))
    for writer, partition in zip(writers, partitions, strict=True):
        _report(asset, Table(target, writer), partition, move, instance)
    tables = list_lake_tables(asset, asset.tables(lake)) if is_published else []
    return Renamed(move.source, move.target, partitions, follow_now(tables).problems)


def _plan(asset: StreamAsset, lake: Location, former: str, instance: dg.DagsterInstance) -> Move:
    target, writer = "/".join(asset.table_path.levels), app_id(asset.levels)
    main = asset.tables(lake).main
    if main.move is not None and main.move.target == target:
        return main.move
    ended = find_ended_move(main)
    if ended is not None and ended.target == target and former in _names_of_move(ended):
        return ended
    tables = find_former_tables(lake, asset, _find_recorded_paths(instance, asset, lake))
    chosen = [table for table in tables if former in _names(table)]
    own_path = asset.table_path.levels
    if not chosen and main.exists and main.newest_writer is not None and main.is_foreign:
        # The table stays where it is: only the stream or the connection has another name.
        foreign = find_table_of_others(lake, asset, own_path) or FormerTable(
            own_path,
            main.newest_writer.partition("|")[0],
            is_own=False,
            has_same_columns=True,
        )
        chosen = [foreign] if former in _names(foreign) else []
    if not chosen and "/" in former:
        other = find_table_of_others(lake, asset, tuple(former.split("/")))
        chosen = [] if other is None else [other]
    if len(chosen) != 1:
        names = ", ".join(table.name for table in chosen or tables)
        raise ConfigError(
            f"{asset.connection.name} has {len(chosen) or 'no'} tables {former!r} that could be those of "
            f"{asset.name}, whose table is {'' if main.exists else 'to be '}{target}",
            guidance=f"write one of {names}"
            if names
            else "every table in the folders of the connection belongs to a configured stream; write the new "
            "name in defs.yaml first",
        )
    is_renamed = stream_of_writer(chosen[0].writer) != stream_of_writer(writer)
    if is_renamed and asset.connection.read_together:
        raise ConfigError(
            f"{asset.name} shares a state with other streams, which knows it as {chosen[0].stream}",
            guidance="write the former name of the stream again, and its new name as `table`; or write a "
            "`table` for the new stream, and read it from the beginning",
        )
    begun = Table(lake.child(*chosen[0].levels), writer).move
    command = rename_command(asset, chosen[0])
    source = "/".join(chosen[0].levels)
    return begun or Move(source, target, chosen[0].writer, writer, command)


def _names_of_move(move: Move) -> set[str]:
    levels = tuple(move.source.split("/"))
    return _names(FormerTable(levels, move.former, is_own=False, has_same_columns=True))


def _names(table: FormerTable) -> set[str]:
    """Return the names by which a user may call a former table."""
    key = table.stream.split("/")
    return {
        table.name,
        ".".join(table.levels),
        table.levels[-1],
        table.stream,
        key[-1],
        ".".join(key[1:]),
    }


def refuse_running(instance: dg.DagsterInstance, asset: StreamAsset | None = None) -> None:
    """Refuse to go on while a run is in progress that may sync the connection of a stream, or any run.

    Raises:
        ConfigError: names the run.
    """
    fail_dead_runs(instance)
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS)):
        keys = run.asset_selection
        if asset is None or keys is None or any(k.path[:1] == asset.key.path[:1] for k in keys):
            owner = "" if asset is None else " of the connection"
            raise ConfigError(
                f"a run{owner} is in progress: {run.run_id} ({run.job_name})",
                guidance="wait until it has ended, or terminate it; nothing was changed",
            )


def _report(
    asset: StreamAsset,
    table: Table,
    partition: str | None,
    move: Move,
    instance: dg.DagsterInstance,
) -> None:
    """Report the table to Dagster: as a materialisation if the asset has another key, to which no event is
    known."""
    metadata = {
        **commit_metadata(table),
        "elt/renamed_from": move.source,
    }
    if move.former == move.writer:
        observation = dg.AssetObservation(asset.key, metadata=metadata, partition=partition)
        instance.report_runless_asset_event(observation)
        return
    definition = asset.partitions
    if isinstance(definition, dg.DynamicPartitionsDefinition) and partition is not None:
        assert definition.name is not None
        instance.add_dynamic_partitions(definition.name, [partition])
    if asset.connection.destination is None and partition is None:
        name, display_name = asset.name_of(table), show_name_of(asset, table)
        details = table_metadata(table, name, asset.make_stored_stream(), display_name=display_name)
        metadata = {**metadata, **details}
    event = dg.AssetMaterialization(asset.key, metadata=metadata, partition=partition)
    instance.report_runless_asset_event(event)
