"""Reading of tables in code of a project: `read_table`, `open_document`, and `changes` since the last run.

`read_table` returns the table of any asset as a data frame, for a notebook or a script. `changes` returns, to
a downstream asset, the rows of an upstream table since its own last materialisation.

The position up to which an asset has read a table is metadata of the asset's materialisation. So it is
recorded if, and only if, the asset was materialised: after a failure or a kill, the next run gets the same
rows again, and those that came since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, BinaryIO, Generic, TypeAlias, TypeVar, cast, overload

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.admin.maintenance import find_document
from elt_assets.lake.delta.table import Table
from elt_assets.lake.read.changes import ChangeReader, Position, TableChanges, find_changes
from elt_assets.lake.read.frames import FrameType, find_frame_type
from elt_assets.lake.read.snapshots import open_snapshot, scan, snapshot
from elt_assets.lake.session import DataFrame, SparkSession
from elt_assets.lake.write.companions import app_id
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.io_manager import (
    locate_asset_table,
    project_lake,
    refuse_other_destination,
    resources,
)
from elt_assets.orchestration.metadata import POSITION, PRIMARY_KEY, table_identity, unwrap
from elt_assets.orchestration.resources import SPARK_KEY, spark_provider
from elt_assets.orchestration.table_events import choose, find_relation
from elt_assets.pipeline.table_names import table_of, tables_with_documents

Frame = TypeVar("Frame")
AnyKey: TypeAlias = str | Sequence[str] | dg.AssetKey
"""The key of an asset: "shop/users", ["shop", "users"] or an AssetKey."""


@overload
def read_table(
    spark: SparkSession,
    key: AnyKey,
    *,
    version: int | None = None,
    partition: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame: ...


@overload
def read_table(
    key: AnyKey,
    /,
    *,
    form: type[Frame],
    version: int | None = None,
    partition: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Frame: ...


def read_table(
    spark: SparkSession | AnyKey | None = None,
    key: AnyKey | None = None,
    *,
    form: type[Any] = DataFrame,
    version: int | None = None,
    partition: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Any:
    """Return the table of an asset at one snapshot, from the lake of the project.

    `read_table(spark, "shop/users")` returns a DataFrame of that session;
    `read_table("shop/users", form=polars.DataFrame)` needs no Spark.

    Args:
        key: the asset's key, for example "shop/users" or ["shop", "users"]; with `_history` or `_dead_letter`
            at its end, that companion table of the stream.
        form: `pyspark.sql.DataFrame` (default), `polars.LazyFrame`, `polars.DataFrame`, `pyarrow.Table`,
            `pandas.DataFrame` or `duckdb.DuckDBPyRelation`.
        version: version of the Delta table; default: the newest.
        partition: the Dagster partition whose rows are returned, or several; default: all rows.
        columns: the columns to read; default: all.

    Raises:
        ConfigError: there is no such table, version, partition or column; or no table can be read in `form`.
    """
    session, asset = (None, spark) if key is None else (spark, key)
    if not isinstance(asset, str | list | tuple | dg.AssetKey) or not asset:
        raise ConfigError(
            "read_table needs the key of an asset",
            guidance='write read_table("shop/users", form=…), or read_table(spark, "shop/users")',
        )
    frame_type = find_frame_type(form, "the argument `form` of read_table")
    levels = asset_levels(asset)
    place, writer = table_of(project_lake(), levels), app_id(levels)
    partitions = [partition] if isinstance(partition, str) else partition
    if frame_type is not None:
        rows = scan(place, writer, version=version, partitions=partitions, columns=columns)
        return frame_type.load(rows)
    return snapshot(
        project_session() if session is None else cast("SparkSession", session),
        place,
        writer,
        version=version,
        partitions=partitions,
        columns=columns,
    )


def open_document(key: AnyKey, reference: Mapping[str, Any] | str) -> BinaryIO:
    """Open the document of a row for reading, from the lake of the project.

    The file is a context manager, and can be read at any place.

    Args:
        key: the key of the asset that has the row, as for `read_table`.
        reference: the row's `file_reference`, or its `path`.

    Raises:
        ConfigError: the reference is none of a document, or the document is not there.
    """
    path = reference if isinstance(reference, str) else str(reference["path"])
    levels = asset_levels(key)
    document = find_document(tables_with_documents(project_lake(), levels), path)
    if document is None:
        raise ConfigError(
            f"there is no document {path} of {'/'.join(levels)}",
            guidance="read the row again: maintenance removes a document when no row of a kept version names "
            "it",
        )
    return document


def asset_levels(key: AnyKey) -> list[str]:
    """Return the levels of an asset's key, which may be written with slashes."""
    if isinstance(key, dg.AssetKey):
        return list(key.path)
    return key.split("/") if isinstance(key, str) else list(key)


def project_session() -> SparkSession:
    """Return the Spark session of the project's resources; it is started if there is none yet."""
    return spark_provider(resources()[SPARK_KEY]).get()


_EVENTS = 100
"""The number of latest materialisations among which the position is looked for: one that the asset's code did
not make (reported in the UI, for example) has none."""


@dataclass(frozen=True)
class Changes(Generic[Frame]):
    """The rows of an upstream table that are new, updated or deleted since the last materialisation."""

    reason: str | None  # why all rows are read; None if `is_reload` is false
    # Partitions of the upstream that were replaced as a whole: `rows` has all of their rows, and `deleted`
    # none of them.
    reloaded_partitions: frozenset[str]
    version: int  # the version of the table that was read
    _reader: ChangeReader
    _frame_type: FrameType | None

    @property
    def is_reload(self) -> bool:
        """Whether `rows` has all rows of the table, which replace what was made of earlier rows."""
        return self.reason is not None

    @property
    def is_empty(self) -> bool:
        """Whether no file has changed. A file that was only rewritten, as by a compaction, has changed."""
        selections = (*self._reader.changes.rows, *self._reader.changes.removed)
        return not self.is_reload and not any(selection.files for selection in selections)

    @cached_property
    def rows(self) -> Frame:
        """The new and updated rows, as they are now; in a reload, all rows."""
        if self._frame_type is None:
            return cast("Frame", self._reader.select_rows(project_session()))
        return cast("Frame", self._frame_type.load(self._reader.scan_rows()))

    @cached_property
    def deleted(self) -> Frame:
        """The rows that were deleted, as they were; none in a reload."""
        if self._frame_type is None:
            return cast("Frame", self._reader.select_deleted(project_session()))
        return cast("Frame", self._frame_type.load(self._reader.scan_deleted()))


@overload
def changes(
    context: dg.AssetExecutionContext,
    upstream: AnyKey,
    *,
    form: type[Frame],
    columns: Sequence[str] | None = None,
) -> Changes[Frame]: ...


@overload
def changes(
    context: dg.AssetExecutionContext,
    upstream: AnyKey,
    *,
    columns: Sequence[str] | None = None,
) -> Changes[DataFrame]: ...


def changes(
    context: dg.AssetExecutionContext,
    upstream: AnyKey,
    *,
    form: type[Any] = DataFrame,
    columns: Sequence[str] | None = None,
) -> Changes[Any]:
    """Return the rows of an upstream table since the last materialisation of the asset, or of its partition.

    Args:
        upstream: the key of an asset that the asset of `context` depends on.
        form: the type of `rows` and `deleted`, as in `read_table`.
        columns: the columns to read; default: all.

    Raises:
        Failure: there is no such table or column, the asset does not depend on it, or the run has several
            partitions.
    """
    with as_dagster_failure():
        frame_type = find_frame_type(form, "the argument `form` of changes")
        link = _Link(context, dg.AssetKey(asset_levels(upstream)))
        metadata = link.read_metadata()
        refuse_other_destination(link.upstream, metadata)
        place, writer = locate_asset_table(project_lake(), link.upstream, metadata)
        partitions = link.find_partitions()
        table = open_snapshot(place, writer)
        since = link.read_position(table)
        is_same = since is None or since.get("partitions") == _digest(partitions)
        position = (
            None
            if since is None or not is_same
            else Position(int(since["version"]), str(since["commit"]))
        )
        table_changes = find_changes(table, position, partitions)
        if not is_same:
            reason = "other partitions of the upstream asset are read than before"
            table_changes = replace(table_changes, reload=reason)
        key_fields = unwrap(metadata.get(PRIMARY_KEY)) or ()
        reader = ChangeReader.create(table_changes, columns, key_fields)
    link.record(table_changes, partitions)
    return Changes(
        table_changes.reload,
        table_changes.reloaded_partitions,
        table_changes.position.version,
        reader,
        frame_type,
    )


class _Link:
    """The dependency of the asset that is materialised on another one."""

    def __init__(self, context: dg.AssetExecutionContext, upstream: dg.AssetKey):
        self.upstream = upstream
        self._context = context
        names = context.assets_def.keys_by_input_name
        self._input = next((name for name, key in names.items() if key == upstream), None)
        if self._input is None:
            raise ConfigError(
                f"{context.op_execution_context.op_def.name} reads the changes of "
                f"{upstream.to_user_string()}, but does not depend on it",
                guidance=f"add {upstream.path} to `deps` of the asset",
            )
        if len(context.selected_asset_keys) != 1:
            raise ConfigError(
                "changes are read in an operation that materialises several assets",
                guidance="read them in an asset of its own",
            )
        # The asset may have no partitions in a run that has some.
        is_partitioned = self._node(context.asset_key).partitions_def is not None
        self._partitions = list(map(str, context.partition_keys)) if is_partitioned else None
        if self._partitions is not None and len(self._partitions) != 1:
            raise ConfigError(
                f"the run has {len(self._partitions)} partitions, each of which has read the changes "
                "up to a version of its own",
                guidance="give the asset `backfill_policy=BackfillPolicy.multi_run(1)`, so that each "
                "partition has a separate run",
            )

    def read_metadata(self) -> Mapping[str, Any]:
        """Return the metadata of the upstream asset's definition."""
        return dict(self._node(self.upstream).metadata)

    def _node(self, key: dg.AssetKey) -> Any:
        return self._context.job_def.asset_layer.asset_graph.get(key)

    def find_partitions(self) -> list[str] | None:
        """Return the partitions of the upstream asset in the partition mapping; None for all rows."""
        partitions_def = self._node(self.upstream).partitions_def
        if partitions_def is None:
            return None
        keys = list(self._context.asset_partition_keys_for_input(self._input or ""))
        if self._partitions is not None:
            return keys
        every = partitions_def.get_partition_keys(dynamic_partitions_store=self._context.instance)
        return None if set(keys) >= set(every) else keys

    @property
    def _key(self) -> str:
        return POSITION + self.upstream.to_user_string()

    def read_position(self, table: Table) -> Mapping[str, Any] | None:
        """Return the position in the latest materialisation that has one in this table; None if none has.

        The asset may have read a table of another lake since, in another environment.
        """
        context = self._context
        records = context.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=self._partitions),
            limit=_EVENTS,
        ).records
        events = [record.asset_materialization for record in records]
        positions: list[Mapping[str, Any]] = [
            dict(unwrap(event.metadata[self._key]))
            for event in events
            if event is not None and self._key in event.metadata
        ]
        return choose(positions, lambda position: find_relation(position.get("table", {}), table))

    def record(self, table_changes: TableChanges, partitions: Sequence[str] | None) -> None:
        """Add the position to the materialisation that the run is going to report."""
        position, reload = table_changes.position, table_changes.reload
        value = {
            "version": position.version,
            "commit": position.commit,
            "partitions": _digest(partitions),
            "reload": reload,
            "table": table_identity(table_changes.table),
        }
        self._context.add_asset_metadata({self._key: dg.MetadataValue.json(value)})
        name = self.upstream.to_user_string()
        if reload is not None:
            self._context.log.info(f"All rows of {name} are read: {reload}.")


def _digest(partitions: Sequence[str] | None) -> str | None:
    """Return what tells a set of partitions from another one; None for all rows."""
    if partitions is None:
        return None
    return hashlib.sha256("\0".join(sorted(partitions)).encode()).hexdigest()[:16]
