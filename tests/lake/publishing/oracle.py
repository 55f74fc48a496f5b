"""The oracle of publication: at any moment the Iceberg table equals the Delta table at `elt.delta-version`.

`check` compares columns and rows, read by pyiceberg and by deltalake, which share no code with the lake; and
that every file that a snapshot of the Iceberg table names is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import BooleanExpression, EqualTo, IsNull, Reference
from pyiceberg.table import Table

from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.settings import IcebergSettings
from elt_assets.storage.location import Location

Read = Callable[[Table], pa.Table]
"""Reads the current snapshot of an Iceberg table; by default pyiceberg does."""


def sqlite_settings(folder: Path, **more: Any) -> IcebergSettings:
    """Settings of a catalog in a database of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/wh"}
    return IcebergSettings(catalog={**catalog, **more.pop("catalog", {})}, **more)


def lake_table(root: str | Path | Location, name: str | None = None, **more: Any) -> LakeTable:
    """The table at a place, whose last level but one is its connection."""
    location = Location.parse(str(root) if isinstance(root, Path) else root)
    levels = tuple(location.uri.rstrip("/").split("/")[-2:])
    return LakeTable(location, levels[0], levels if name is None else (levels[0], name), **more)


def load(publisher: Publisher, table: LakeTable) -> Table | None:
    """The Iceberg table as it is in the catalog, whoever changed it; None if there is none."""
    catalog: Catalog = publisher._open(table).catalog
    try:
        return catalog.load_table(publisher.identifier(table))
    except NoSuchTableError:
        return None


def check(publisher: Publisher, table: LakeTable, read: Read | None = None) -> int | None:
    """Compare what is published of a table with its Delta table, and return the published version.

    None if nothing is published yet. It is never ahead of the Delta table.
    """
    iceberg = load(publisher, table)
    if iceberg is None or iceberg.current_snapshot() is None:
        return None
    version = int(iceberg.properties["elt.delta-version"])
    options = table.location.for_delta
    newest = DeltaTable(table.location.uri, storage_options=options)
    assert version <= newest.version(), "Iceberg is ahead of Delta"
    delta = DeltaTable(table.location.uri, version=version, storage_options=options)
    expected = pa.table(delta.to_pyarrow_table()) if delta.file_uris() else empty(delta)
    published = iceberg.scan().to_arrow() if read is None else read(iceberg)
    assert sorted(published.column_names) == sorted(expected.column_names)
    names = sorted(expected.column_names)
    assert rows(published, names) == rows(expected, names)
    assert_bounds_hold(iceberg, expected)
    return version


def check_files(publisher: Publisher, table: LakeTable) -> None:
    """Check that each file that any snapshot names is there, as are its manifests."""
    iceberg = load(publisher, table)
    for snapshot in [] if iceberg is None else iceberg.snapshots():
        assert iceberg is not None
        for manifest in snapshot.manifests(iceberg.io):
            for entry in manifest.fetch_manifest_entry(iceberg.io):
                path = entry.data_file.file_path
                assert iceberg.io.new_input(path).exists(), f"{snapshot.snapshot_id} names {path}"


def list_named(iceberg: Table) -> set[str]:
    """The names of all metadata files that a table names."""
    metadata = iceberg.metadata
    paths = [iceberg.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)]
    for snapshot in metadata.snapshots:
        paths.append(snapshot.manifest_list)
        paths += [manifest.manifest_path for manifest in snapshot.manifests(iceberg.io)]
    return {path.rpartition("/")[2] for path in paths}


def check_current(publisher: Publisher, table: LakeTable) -> None:
    """Check that the newest Delta version is published, and right."""
    newest = DeltaTable(table.location.uri, storage_options=table.location.for_delta).version()
    assert check(publisher, table) == newest
    check_files(publisher, table)


def empty(delta: DeltaTable) -> pa.Table:
    return pa.schema(delta.schema().to_arrow()).empty_table()


def rows(table: pa.Table, names: Sequence[str]) -> list[str]:
    """The rows of a table in an order of their own, in a form that does not depend on types of one value.

    pyiceberg 0.12 reads a list of structures that is null as an empty one; so the two are the same here.
    """
    table = table.select(names)
    lists = [field.name for field in table.schema if is_list_of_structures(field.type)]
    return sorted(
        repr([plain(row[name] or []) if name in lists else plain(row[name]) for name in names])
        for row in table.to_pylist()
    )


def is_list_of_structures(type_: pa.DataType) -> bool:
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    return bool(is_list and pa.types.is_struct(type_.value_type))


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in sorted(value.items())}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value


def assert_bounds_hold(iceberg: Table, expected: pa.Table) -> None:
    """Check that a reader that leaves out files by their bounds finds every value."""
    for name in expected.column_names:
        column = expected.column(name)
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            continue
        if pa.types.is_large_binary(column.type):
            continue
        values = [value for value in column.unique().to_pylist() if value is not None]
        for value in {repr(v): v for v in (*values[:1], *values[-1:])}.values():
            if value != value:  # NaN
                continue
            matches = iceberg.scan(row_filter=equals(name, value)).to_arrow()
            count = sum(1 for other in column.to_pylist() if other == value)
            assert matches.num_rows == count, f"{name} = {value!r}"
        nulls = iceberg.scan(row_filter=is_null(name)).to_arrow().num_rows
        assert nulls == column.null_count, name


def equals(name: str, value: Any) -> BooleanExpression:
    equal_to: Any = EqualTo
    expression: BooleanExpression = equal_to(
        Reference(name), value.isoformat() if hasattr(value, "isoformat") else value
    )
    return expression


def is_null(name: str) -> BooleanExpression:
    null: Any = IsNull
    expression: BooleanExpression = null(Reference(name))
    return expression
