"""The IO manager: it writes streams and data frames to tables, and loads tables as data frames.

`step` lands streams with it. `elt` and `table_reading` take the lake of the project (`project_lake`,
`open_lake`), and `definitions`, `project` and `component` its resources.

First `locate_asset_table`, by the key and the definition of an asset; then `InputRequest`, what the input of
a downstream asset asks for: a type of data frames, columns and partitions; then `SparkIOManager`, and
`resources`, which a project gets with it.
"""

# No `from __future__ import annotations`: Dagster inspects the annotations of the resource.
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource, PySparkResource

from elt_assets.errors import ConfigError
from elt_assets.lake.read.frames import FrameType, convert_to_arrow, find_frame_type
from elt_assets.lake.read.snapshots import scan, snapshot
from elt_assets.lake.session import DataFrame
from elt_assets.lake.write import frames
from elt_assets.lake.write.companions import SUFFIXES, app_id
from elt_assets.lake.write.frames import ArrowRows, FrameRows, SparkRows
from elt_assets.lake.write.paths import TablePath, find_table
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.metadata import (
    COMPANION_OF,
    DESTINATION,
    ROW_COUNT,
    publication_metadata,
    table_metadata,
    table_path_of,
    unwrap,
)
from elt_assets.orchestration.report import CompleteStream, ReportedRead
from elt_assets.orchestration.resources import (
    IO_MANAGER_KEY,
    LAKE_KEY,
    SPARK_KEY,
    AnySparkResource,
    LakeResource,
    SparkResource,
    spark_provider,
)
from elt_assets.pipeline.connection_read import ConnectionRead
from elt_assets.pipeline.following import connection_of, follow_now, make_lake_table
from elt_assets.pipeline.publication import show_name
from elt_assets.settings import load_object, settings
from elt_assets.storage.folders import make_private_lake
from elt_assets.storage.location import Location


def refuse_other_destination(key: dg.AssetKey, metadata: Mapping[str, Any]) -> None:
    """Refuse a stream whose rows are not in the lake.

    Raises:
        ConfigError: its connection writes to another destination.
    """
    destination = metadata.get(DESTINATION)
    if destination is not None:
        raise ConfigError(
            f"the rows of {key.to_user_string()} are not in the lake: its connection writes "
            f"to the destination {unwrap(destination)}",
            guidance="read the rows from this destination",
        )


def asset_table_path(key: dg.AssetKey, metadata: Mapping[str, Any]) -> TablePath:
    """Return the path of the table: from the asset's definition, or else from its key."""
    levels = tuple(key.path)
    return table_path_of(metadata) or TablePath(levels, levels)


def locate_asset_table(
    lake: Location, key: dg.AssetKey, metadata: Mapping[str, Any]
) -> tuple[Location, str]:
    """Return the location of an asset's table, and its writer.

    A companion is beside the table of its stream, which is its writer.
    """
    path = asset_table_path(key, metadata)
    stream = unwrap(metadata.get(COMPANION_OF))
    if stream is None:
        writer = app_id(key.path)
        return find_table(lake, path, writer), writer
    suffix = next(end for end in SUFFIXES.values() if path.levels[-1].endswith(end))
    writer = app_id(dg.AssetKey.from_user_string(stream).path)
    place = find_table(lake, path.without_suffix(suffix), writer)
    return place.add_suffix(suffix), writer + suffix


COLUMNS = "columns"
"""Metadata key of an input: the names of the columns to read."""


@dataclass(frozen=True)
class InputRequest:
    """The request of an input."""

    frame_type: FrameType | None  # from the annotation; None for Spark's DataFrame
    columns: Sequence[str] | None  # from the metadata of the input; None for all
    # Those of the upstream asset in the partition mapping; None for all rows.
    partitions: Sequence[str] | None


def read_request(context: dg.InputContext) -> InputRequest:
    """Return the request of an input.

    Raises:
        ConfigError: no table can be read in the annotated type, or `columns` is not a list of names.
    """
    annotation: Any = context.dagster_type.typing_type
    # Dagster has types of its own for an input without an annotation.
    is_annotated = annotation not in (Any, object, type(None))
    frame_type = find_frame_type(annotation, _describe(context)) if is_annotated else None
    return InputRequest(frame_type, _columns_of(context), _partitions_of(context))


def _columns_of(context: dg.InputContext) -> Sequence[str] | None:
    columns = unwrap((context.definition_metadata or {}).get(COLUMNS))
    if columns is None:
        return None
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        raise ConfigError(
            f"{_describe(context)} has `{COLUMNS}` in its metadata that is no list of names: {columns!r}",
            guidance=f'write metadata={{"{COLUMNS}": ["id", "name"]}} in its AssetIn',
        )
    return list(columns)


def _partitions_of(context: dg.InputContext) -> list[str] | None:
    """Return the partitions of the upstream asset in the partition mapping; None for all rows."""
    if not context.has_asset_partitions:
        return None
    keys = [str(key) for key in context.asset_partition_keys]
    every = context.asset_partitions_def.get_partition_keys(
        dynamic_partitions_store=context.instance
    )
    # A run without partitions that gets all keys reads the whole table, without a long list of keys.
    is_whole = not context.has_partition_key and set(keys) >= set(every)
    return None if is_whole else keys


def _describe(context: dg.InputContext) -> str:
    if not context.has_input_name:
        return context.asset_key.to_user_string()
    return f"the input `{context.name}` of {context.op_def.name}"


class SparkIOManager(dg.ConfigurableIOManager):
    """IO manager that commits checkpoints of a stream during its read, and loads streams as data frames.

    A downstream asset that returns a data frame gets its own table. The path of the table under the root of
    the lake is the asset key. Each materialisation replaces the table, or the partitions of the run.
    """

    spark: dg.ResourceDependency[Any]
    lake: LakeResource

    def land(
        self, context: dg.AssetExecutionContext, read: ConnectionRead
    ) -> Iterator[CompleteStream]:
        """Run a planned read and commit its streams to their tables; yield each stream when it is complete.

        Raises:
            EltError: the source, a stream or a table failed; some streams may be complete before the error.
        """
        return ReportedRead(spark_provider(self.spark), context, read).report_streams()

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Store the rows that a downstream asset returns. The output of a stream has no value (see `land`).

        Only Spark's DataFrame needs Spark, and partitions whose files another engine has combined.
        """
        if obj is None:
            return
        with as_dagster_failure():
            self._store(context, self._rows_of(context, obj))

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the rows of the upstream asset's table from one snapshot, in the annotated type.

        The rows are those of the partitions in the partition mapping, or all rows; the columns are those in
        the metadata of the input, or all columns. Only Spark's DataFrame needs Spark.
        """
        upstream = context.upstream_output
        assert upstream is not None
        with as_dagster_failure():
            request = read_request(context)
            key, metadata = upstream.asset_key, upstream.definition_metadata or {}
            refuse_other_destination(key, metadata)
            place, writer = locate_asset_table(self.lake.location, key, metadata)
            if request.frame_type is None:
                return snapshot(
                    spark_provider(self.spark).get(),
                    place,
                    writer,
                    partitions=request.partitions,
                    columns=request.columns,
                )
            rows = scan(place, writer, partitions=request.partitions, columns=request.columns)
            return request.frame_type.load(rows)

    def _rows_of(self, context: dg.OutputContext, frame: object) -> FrameRows:
        if isinstance(frame, DataFrame):
            return SparkRows(frame, lambda: spark_provider(self.spark).get())
        table = convert_to_arrow(frame, f"the result of {context.asset_key.to_user_string()}")
        return ArrowRows.read(table, lambda: spark_provider(self.spark).get())

    def _store(self, context: dg.OutputContext, rows: FrameRows) -> None:
        """Replace the table of a downstream asset, or the partitions of the run."""
        make_private_lake(self.lake.uri)
        asset_path = asset_table_path(context.asset_key, context.definition_metadata or {})
        path, key = asset_path.levels, context.asset_key.path
        target = frames.Target(self.lake.location.child(*path), key, context.run_id)
        if not context.has_asset_partitions:
            table = frames.replace_table(target, rows).table
            metadata = table_metadata(table, ".".join(path), display_name=_show(path))
        else:
            partitions = [str(key) for key in context.asset_partition_keys]
            stored = frames.replace_partitions(target, rows, partitions)
            table = stored.table
            metadata = table_metadata(
                table, ".".join(path), partition_rows=stored.rows, display_name=_show(path)
            )
            if len(partitions) > 1:  # Dagster adds the same metadata to the event of each partition
                metadata = {name: metadata[name] for name in metadata if name != ROW_COUNT}
        places, problems = follow_now([make_lake_table(table, self.lake.location)])
        for problem in problems:
            context.log.warning(problem)
        context.add_output_metadata({**metadata, **publication_metadata(places, problems)})


def _show(path: Sequence[str]) -> str:
    """Return the name of a downstream asset's table as analysts find it."""
    return show_name(path, connection_of(path))


_SPARK, _LAKE = SparkResource(), LakeResource()


def resources() -> dict[str, Any]:
    """Return the resources of the project: those that the assets of connections need, and its own.

    The setting `resources` names the project's own. Of `elt_spark`, `elt_lake` and `elt_io_manager`, those
    that it leaves out are configured by the other settings. Each call returns the same objects, so
    definitions that contain them can be merged.

    Raises:
        ConfigError: the setting names no mapping, or a resource has the wrong type.
    """
    return dict(_project_resources(settings().resources))


def project_lake() -> Location:
    """Return the root of the tables of the project: that to which a materialisation writes.

    Raises:
        ConfigError: see `resources`; or the store, or an option of it, is not supported.
    """
    lake: LakeResource = resources()[LAKE_KEY]
    with lake.process_config_and_initialize_cm() as resolved:
        location: Location = resolved.location
    return location


@contextmanager
def open_lake() -> Iterator[tuple[LakeResource, AnySparkResource]]:
    """Context with the lake and the Spark of the project, for commands that change tables without a run.

    Dagster makes an instance in memory for each resource outside of a run, which is closed with it.

    Raises:
        ConfigError: as `resources`.
    """
    shared = resources()
    with (
        shared[LAKE_KEY].process_config_and_initialize_cm() as lake,
        shared[SPARK_KEY].process_config_and_initialize_cm() as spark,
    ):
        yield lake, spark


def _load_resources(name: str) -> dict[str, Any]:
    loaded = load_object("the setting `resources`", name)
    loaded = loaded() if callable(loaded) else loaded
    if not isinstance(loaded, Mapping):
        raise ConfigError(
            f"the setting `resources`: {name!r} is a {type(loaded).__name__}, not a mapping",
            guidance="name a mapping of resource keys to resources, or a function that returns one",
        )
    return dict(loaded)


@lru_cache(maxsize=8)
def _project_resources(name: str | None) -> Mapping[str, Any]:
    own = {} if name is None else _load_resources(name)
    spark, lake = own.setdefault(SPARK_KEY, _SPARK), own.setdefault(LAKE_KEY, _LAKE)
    _check_kind(name, SPARK_KEY, spark, (PySparkResource, LazyPySparkResource))
    if not isinstance(spark, SparkResource):  # this one reads its settings when it is used
        spark_provider(spark)
    _check_kind(name, LAKE_KEY, lake, (LakeResource,))
    manager = own.setdefault(IO_MANAGER_KEY, SparkIOManager(spark=spark, lake=lake))
    _check_kind(name, IO_MANAGER_KEY, manager, (SparkIOManager,))
    if manager.lake != lake:
        raise ConfigError(
            f"the setting `resources` ({name}): {IO_MANAGER_KEY} writes to another lake than {LAKE_KEY}",
            guidance=f"write SparkIOManager(spark=…, lake=…) with the resource {LAKE_KEY}, or leave one out",
        )
    return own


def _check_kind(name: str | None, key: str, resource: object, kinds: tuple[type, ...]) -> None:
    if not isinstance(resource, kinds):
        types = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigError(
            f"the setting `resources` ({name}): {key} is a {type(resource).__name__}, not a {types}",
            guidance=f"give it another key, or make it a {types}",
        )
