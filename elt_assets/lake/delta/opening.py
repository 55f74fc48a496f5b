"""Delta tables: found, opened, created, given new columns; and columns in the types of Delta and Arrow.

A `Table` is opened, created and altered with it. `pipeline`, `write.paths` and `admin` ask whether there is a
table (`is_table`). Here, in `lake.read`, `lake.write` and `merge.key_order` columns are converted with it
(`arrow_columns`, `delta_schema`), and some compare their types (`find_retyped`).

What a kill leaves, so that nothing is lost or doubled:

- TABLE_CREATED: a table without rows and state. The next run finds it, and reads from the beginning.
  `tests/lake/test_crash_points.py::test_a_first_sync_survives_a_kill_at_any_point`
- TABLE_ALTERED: new columns without values, or a new property. The next run adds what is still missing.
  `tests/lake/test_crash_points.py::test_a_new_column_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.columns.metadata_columns import PARTITION
from elt_assets.lake.delta import outcome
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.delta.outcome import NAME
from elt_assets.lake.delta.rules import (
    NTZ,
    PARTITIONED,
    PROPERTY,
    Move,
    UnsupportedTable,
    format_partitioning,
    refuse_unreadable,
    refuse_unwritable,
    spark_schema,
)
from elt_assets.lake.delta.snapshot import Snapshot, open_with_files
from elt_assets.lake.delta.storage import DOCUMENTS, HIDDEN, VISIBLE, TableStorage
from elt_assets.machine_faults import first_line, translate
from elt_assets.storage import conditional_writes
from elt_assets.storage.location import Location

CONFIGURATION = {
    "delta.checkpointInterval": "100",
    # The state of a stream or partition is only in the log, even if it was last written years ago.
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 36500 days",
}
FORMAT = 1
"""Format of the tables that this version writes. It grows with each change after which an earlier version of
this project would misread a table or lose something of it."""
_FORMAT = "elt.format"
"""Property of a table, and entry of the commit that creates it. Another engine that replaces a table may
remove the property."""
_INDEXED, _ALL = "delta.dataSkippingNumIndexedCols", "-1"
_ATTEMPTS = 5


def load(location: Location, version: int | None = None) -> Snapshot:
    """Return the table at its newest version, or at the given one.

    Raises:
        TableNotFoundError: there is no table.
        EltError: it cannot be opened.
    """
    storage = TableStorage(location)
    if version is None:
        return Snapshot.newest(storage)
    return Snapshot.from_delta(open_with_files(storage, version), storage)


def is_table(location: Location) -> bool:
    """Return whether a Delta table is at a location."""
    return DeltaTable.is_deltatable(location.uri, location.for_delta)


def open_table(location: Location, version: int | None = None) -> Snapshot | None:
    """Return the table at its newest version, or at the given one; None if nothing is there yet.

    Raises:
        ConfigError: something else is there, the table cannot be opened, it has unsupported features or a
            newer format, or a version is given and there is no table.
    """
    try:
        delta = load(location, version)
    except TableNotFoundError as error:
        if version is not None:
            raise ConfigError(
                f"there is no table {location}",
                guidance="correct its name, or materialise it first",
            ) from error
        _refuse_occupied(location)
        return None
    except ConfigError as error:
        if version is None and isinstance(error.__cause__, DeltaError):
            _refuse_occupied(location)
        raise
    refuse_unusable(delta)
    return delta


def refuse_unusable(delta: Snapshot) -> None:
    """Refuse a table that this version of the project cannot read.

    Raises:
        UnsupportedTable: it has unsupported features or a newer format.
    """
    value = delta.metadata().configuration.get(_FORMAT, str(FORMAT))
    if not (value.isascii() and value.isdigit()):
        raise UnsupportedTable(
            f"the property {_FORMAT} of the table {delta.table_uri} is {value!r}, not a number",
            guidance=f"set it back to the number that it had; this version writes {FORMAT}",
        )
    if int(value) > FORMAT:
        raise UnsupportedTable(
            f"the table {delta.table_uri} has format {value}; this version of elt-assets reads and "
            f"writes formats up to {FORMAT}",
            guidance="install the version of elt-assets that wrote the table, or a newer one; the table is "
            "unchanged",
        )
    refuse_unreadable(delta)


def create(
    location: Location,
    schema: t.StructType,
    stream: str | None = None,
    partition_by: Sequence[str] = (),
) -> Snapshot:
    """Create a table with the stream's name, or return the one that another run has just created."""
    conditional_writes.require(location)
    properties = {_INDEXED: _ALL} if PARTITION in schema.names else {}
    if partition_by:
        properties[PARTITIONED] = format_partitioning(partition_by)
    for left in reversed(range(_ATTEMPTS)):
        entry = outcome.properties({_FORMAT: str(FORMAT), NAME: outcome.new_name()})
        try:
            created = DeltaTable.create(
                location.uri,
                delta_schema(schema),
                partition_by=list(partition_by) or None,
                name=stream,
                configuration={**CONFIGURATION, **properties, _FORMAT: str(FORMAT)},
                storage_options=location.for_delta,
                commit_properties=entry,
                raise_if_key_not_exists=False,  # the format is a property of this project
            )
            delta: Snapshot | None = Snapshot.from_delta(created, TableStorage(location))
        except DeltaError as error:
            # Another run has created it, or the answer to this one was lost: both are the same table.
            delta = open_table(location)
            if delta is None and not left:
                raise translate(error, f"while the table {location} was created") or ConfigError(
                    f"the table {location} cannot be created: {first_line(error)}",
                    guidance="correct what the message says; nothing was written",
                ) from error
        if delta is not None:
            reach(Failpoint.TABLE_CREATED)
            return delta
    raise AssertionError


def add_columns(delta: Snapshot, schema: t.StructType) -> None:
    """Add the columns and nested fields of `schema` that the table lacks, in a separate commit."""
    if not _lacks(spark_schema(delta), schema):
        return
    enable_ntz(delta, schema)
    empty = pa.schema(delta_schema(schema).to_arrow()).empty_table()
    _alter(
        delta,
        lambda: _lacks(spark_schema(delta), schema),
        lambda entry: write_deltalake(
            delta.delta_table, empty, mode="append", schema_mode="merge", commit_properties=entry
        ),
    )


def index_partitions(delta: Snapshot) -> None:
    """Index all columns of a partitioned table: by default the log has bounds of the first columns only."""
    _alter(
        delta,
        lambda: (
            PARTITION in spark_schema(delta).names
            and _INDEXED not in delta.metadata().configuration
        ),
        lambda entry: delta.delta_table.alter.set_table_properties(
            {_INDEXED: _ALL}, commit_properties=entry
        ),
    )


def enable_ntz(delta: Snapshot, schema: t.StructType) -> None:
    """Enable the table feature for timestamps without zone, if the schema has one and it is not enabled."""
    feature = TableFeatures.TimestampWithoutTimezone
    _alter(
        delta,
        lambda: (
            "timestamp_ntz" in schema.json() and NTZ not in (delta.protocol().reader_features or ())
        ),
        lambda entry: delta.delta_table.alter.add_feature(
            feature, allow_protocol_versions_increase=True, commit_properties=entry
        ),
    )


def set_move(delta: Snapshot, move: Move | None) -> None:
    """Record in a table that it is being moved, or that the move has ended (None), in a separate commit."""
    value = "" if move is None else move.to_json()
    _alter(
        delta,
        lambda: delta.metadata().configuration.get(PROPERTY, "") != value,
        lambda entry: delta.delta_table.alter.set_table_properties(
            {PROPERTY: value}, raise_if_not_exists=False, commit_properties=entry
        ),
        moves=True,
    )


def _alter(
    delta: Snapshot,
    lacks: Callable[[], bool],
    change: Callable[[CommitProperties], object],
    *,
    moves: bool = False,
) -> None:
    """Change a table's metadata if `lacks()` is true, with the properties of the commit.

    It is changed once where other runs commit at the same time, and where the outcome is unknown.

    Args:
        moves: the change is part of a move of the table.
    """
    if not lacks():
        return
    name = outcome.new_name()

    def write() -> None:
        refuse_unwritable(delta, moves=moves)
        if lacks():  # another run of the stream, with other partitions, may have changed it first
            change(outcome.properties({NAME: name}))
            reach(Failpoint.TABLE_ALTERED)

    outcome.publish_once(delta, name, write)


def delta_schema(schema: t.StructType) -> Schema:
    """Return columns as a table has them: at every depth they may be null, whatever the first rows are."""
    return Schema.from_json(_nullable(schema).json())


def arrow_columns(schema: t.StructType) -> pa.Schema:
    """Return columns in Arrow's types."""
    return pa.schema(delta_schema(schema).to_arrow())


def _nullable(kind: t.DataType) -> t.DataType:
    if isinstance(kind, t.StructType):
        return t.StructType(
            [
                t.StructField(field.name, _nullable(field.dataType), True, field.metadata)
                for field in kind.fields
            ]
        )
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


def find_retyped(table_type: t.DataType, needed_type: t.DataType, path: str = "") -> list[str]:
    """Return the columns and nested fields of `needed_type` that `table_type` lacks or has with another type.

    They are returned as paths. Further columns of `table_type` and nullability do not matter.
    """
    if isinstance(table_type, t.ArrayType) and isinstance(needed_type, t.ArrayType):
        return find_retyped(table_type.elementType, needed_type.elementType, f"{path}[]")
    if isinstance(table_type, t.StructType) and isinstance(needed_type, t.StructType):
        types = {field.name: field.dataType for field in table_type.fields}
        return [
            name
            for field in needed_type.fields
            for name in find_retyped(
                types.get(field.name, t.NullType()),
                field.dataType,
                f"{path}.{field.name}".lstrip("."),
            )
        ]
    return [] if _nullable(table_type) == _nullable(needed_type) else [path]


def _lacks(table_type: t.DataType, needed_type: t.DataType) -> bool:
    if isinstance(table_type, t.ArrayType) and isinstance(needed_type, t.ArrayType):
        return _lacks(table_type.elementType, needed_type.elementType)
    if isinstance(table_type, t.StructType) and isinstance(needed_type, t.StructType):
        return any(
            field.name not in table_type.names
            or _lacks(table_type[field.name].dataType, field.dataType)
            for field in needed_type.fields
        )
    return False


def _refuse_occupied(location: Location) -> None:
    """Refuse a file, or a folder that contains other files than those of a table.

    A killed first sync may leave data files, or a log folder without an entry; they are accepted.

    Raises:
        ConfigError: there is a file, or the folder contains something else.
    """
    system, root = location.file_system()
    if system.get_file_info(root).type == pafs.FileType.File:
        raise ConfigError(
            f"{location} must be a table, but is a file",
            guidance="this project does not delete the file: check what it contains, then move it to another "
            "place",
        )
    infos = system.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    own_names = (VISIBLE, HIDDEN, DOCUMENTS, LOG)
    others = sorted(info.base_name for info in infos if info.base_name not in own_names)
    if others:
        raise ConfigError(
            f"{location} must be a table, but its folder contains something else ({', '.join(others[:3])})",
            guidance="move it away, or give the connection another `namespace`",
        )
