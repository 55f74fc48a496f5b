"""Changes of types in a stream's tables: some are refused, for the others the tables are rewritten.

Used by `writer`, when a sync begins and when its source changes the schema.

Rows are matched by key and ordered by cursor, in the table's types. If these change so that records do not
find their rows, each row is doubled; if they change so that `10` is before `9`, newer records lose against
older rows. Neither shows in a run. So such a change is refused before anything is read, unless the sync
leaves no row that it applies to (`refuse_other_order`). Which changes are safe: `keeps_equality` and
`keeps_order` in `lake.columns.logical_types`.
Test: `tests/lake/test_key_types.py::test_a_change_goes_on_or_is_refused`

The tables get the wider types in all files (`widen`), so that every engine can read old and new files alike.
What a kill leaves, so that nothing is lost or doubled:

- HIDDEN_WIDENED: new hidden files that no commit names. The commits name the old ones, with the version whose
  columns these have, so that the next run rewrites them again.
- TABLE_WIDENED: one table with wider types, and the same rows and state. The next run finds the others as
  they were, and rewrites them.

Test of both: `tests/lake/test_crash_points.py::test_a_widening_of_types_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.columns import evolution, from_json_schema
from elt_assets.lake.columns.evolution import SchemaPlan
from elt_assets.lake.columns.logical_types import (
    JSONS,
    Column,
    LogicalType,
    Scalar,
    Struct,
    column_of,
    describe_type,
    keeps_equality,
    keeps_order,
    to_stored,
)
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.opening import find_retyped
from elt_assets.lake.delta.row_counts import row_count, verify_or_discard
from elt_assets.lake.delta.storage import HIDDEN, DataFile, TableChange
from elt_assets.lake.delta.table import Table, discard_if_unpublished
from elt_assets.lake.jobs import run_tasks
from elt_assets.lake.merge.file_splitting import pack_files
from elt_assets.lake.merge.history import HIDDEN_FIELDS, IS_CURRENT, history_schema
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker.kinds import Field
from elt_assets.lake.worker.widening import WideningJob, make_widening
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.parsing import field_of
from elt_assets.lake.write.sync_columns import (
    WriteSpec,
    column_at,
    column_path,
    columns_of,
    describe_restart,
    full_schema,
    plan_columns,
    replaces_schema,
    stream_part,
)

_NUMBERS = frozenset({Scalar.INTEGER, Scalar.BIG_INTEGER, Scalar.NUMBER, Scalar.BIG_NUMBER})
_KEEP = (
    "or set `on_schema_change: freeze`, so that the column keeps its type; or correct the catalog"
)
_DECLARE = "declare one type for the whole sync, or report it to the maintainer of the source"


def refuse_other_order(
    spec: WriteSpec, plan: SchemaPlan, subject: str, *, in_sync: bool = False
) -> None:
    """Refuse to merge records into rows that compare in another way.

    Args:
        subject: what has the rows.
        in_sync: the source has changed the type in the middle of the sync.

    Raises:
        ConfigError: names the field, both types, the reason, and what to do.
    """
    if not spec.is_keyed:
        return
    guidance = _DECLARE if in_sync else f"{describe_restart(spec)}; {_KEEP}"
    subject = f"stream {str(spec.stream.id)!r}: {subject}"
    columns = columns_of(spec.stream, plan.schema)
    for field in spec.stream.key:
        before, after = _kinds(plan, column_path(columns, field))
        if before is not None and after is not None and not keeps_equality(before, after):
            raise ConfigError(
                f"{subject}: the type of the key {'.'.join(field)!r} changes from {describe_type(before)} to "
                f"{describe_type(after)}; there a value can have several texts (5, 5.0), so records would be "
                "added beside the present rows of their keys",
                guidance=guidance,
            )
    _refuse_other_cursor(spec, plan, column_path(columns, spec.stream.cursor), subject, guidance)


def _refuse_other_cursor(
    spec: WriteSpec, plan: SchemaPlan, path: Sequence[str] | None, subject: str, guidance: str
) -> None:
    name = ".".join(spec.stream.cursor)
    before, after = _kinds(plan, path)
    if before is None or after is None:
        return
    if not keeps_order(before, after):
        raise ConfigError(
            f"{subject}: the type of the cursor {name!r} changes from {describe_type(before)} to "
            f"{describe_type(after)}; texts have another order ('10' is before '9'), so newer records would "
            "lose against older rows",
            guidance=guidance,
        )
    if spec.history and before is Scalar.DATE and after is Scalar.TEXT:
        raise ConfigError(
            f"{subject}: the type of the cursor {name!r} changes from date to string; a history would no "
            "longer know the times of its versions",
            guidance=guidance,
        )
    declared = column_at(
        from_json_schema.columns(spec.stream.stream.json_schema), spec.stream.cursor
    )
    is_number = declared is not None and to_stored(declared.kind) in _NUMBERS
    if is_number and after in (Scalar.TEXT, *JSONS) and spec.on_schema_change != "freeze":
        raise ConfigError(
            f"{subject}: the cursor {name!r} is a number in the catalog and {describe_type(after)} in the "
            "table; texts have another order ('10' is before '9'), so newer records would lose against older "
            "rows",
            guidance=guidance,
        )


def _kinds(
    plan: SchemaPlan, path: Sequence[str] | None
) -> tuple[LogicalType | None, LogicalType | None]:
    """Return the types of a column before and after a plan; None where there is no such column."""
    after = [column_of(field) for field in plan.schema.fields]
    return _kind_of(plan.table_columns, path or ()), _kind_of(after, path or ())


def _kind_of(columns: Sequence[Column], path: Sequence[str]) -> LogicalType | None:
    kind: LogicalType | None = None
    for name in path:
        kind = next((column.kind for column in columns if column.name == name), None)
        columns = kind.fields if isinstance(kind, Struct) else ()
    return kind


def widen(spark: SparkProvider, tables: StreamTables, spec: WriteSpec) -> None:
    """Give the stream's tables the wider types that its schema declares, in one commit for each table.

    State and rows stay the same. An unfinished truncating refresh that the sync does not resume is dropped,
    because it must start again. A table that the sync replaces is not rewritten, but its history is. Hidden
    files are rewritten when they are used: those of other partitions belong to other writers, and each writer
    rewrites its own.

    Raises:
        ConfigError: a value would change, or a type is not accepted.
        SystemFailure: rows were lost; nothing was committed.
        Superseded: files were replaced meanwhile.
    """
    for table, plan in _plans(tables, spec):
        if plan.rewrites:
            schema = full_schema(plan, spec, table.schema)
            if table is tables.history:
                schema = history_schema(schema)
            _rewrite(spark, table, plan, schema, spec)
            reach(Failpoint.TABLE_WIDENED)
    for table in filter(None, (tables.history, tables.main)):
        if table.exists:
            _rewrite_hidden(spark, table, spec)


def _rewrite_hidden(spark: SparkProvider, table: Table, spec: WriteSpec) -> None:
    """Rewrite hidden files that are older than the table's wider types; the next commit names the new ones.

    An unfinished refresh that replaces the table's columns has its own.
    """
    metadata, replaced = table.metadata, replaces_schema(spec, table)
    if metadata.columns_at is None or not metadata.hidden:
        return
    before, own = table.schema_at(metadata.columns_at), stream_part(table.schema)
    if not find_retyped(table.schema, before):
        return
    columns = [column_of(field) for field in own.fields]
    plan = evolution.plan(stream_part(before), columns, "evolve", table.uri)
    hidden = {"tombstones": metadata.tombstones}
    if metadata.refresh is not None and not replaced:
        hidden |= {"files": metadata.refresh.files, "ends": metadata.refresh.tombstones}
    rewritten = {
        name: tuple(_rewritten(spark, table, plan, files, before, spec, HIDDEN))
        for name, files in hidden.items()
    }
    reach(Failpoint.HIDDEN_WIDENED)
    refresh = metadata.refresh
    if refresh is not None and not replaced:
        refresh = replace(refresh, files=rewritten["files"], tombstones=rewritten["ends"])
    table.metadata = replace(
        metadata, tombstones=rewritten["tombstones"], refresh=refresh, columns_at=table.version
    )


def convert_unpublished(
    spark: SparkProvider,
    table: Table,
    files: Sequence[DataFile],
    before: t.StructType,
    spec: WriteSpec,
    after: t.StructType,
    *kind: str,
) -> Sequence[DataFile]:
    """Return files of this sync that no reader sees yet, converted to the columns of a changed schema.

    They stay as they are if they lack only columns that are neither key nor cursor.

    Args:
        before: the columns of the files.
        after: all columns of the table.
        kind: as for `Table.write_files`.

    Raises:
        ConfigError: a value would change.
        SystemFailure: rows were lost.
    """
    wanted_columns = [column_of(field) for field in stream_part(after).fields]
    plan = evolution.plan(stream_part(before), wanted_columns, "evolve", f"the sync of {table.uri}")
    order = [*spec.stream.key, spec.stream.cursor] if spec.is_keyed else []
    columns = columns_of(spec.stream, before)
    if files:
        refuse_other_order(spec, plan, f"the rows of this sync to {table.uri}", in_sync=True)
    is_complete = all(column_path(columns, path) is not None for path in order if path)
    if not files or (is_complete and not plan.rewrites):
        return files
    return _rewritten(spark, table, plan, files, before, spec, *kind)


def check(tables: StreamTables, spec: WriteSpec) -> None:
    """Check that the stream's tables can store its schema.

    Raises:
        ConfigError: names the table, the columns, and what to do.
    """
    list(_plans(tables, spec))


def _plans(tables: StreamTables, spec: WriteSpec) -> Iterator[tuple[Table, SchemaPlan]]:
    for table in (tables.history, tables.main):
        replaced = table is tables.main and replaces_schema(spec, tables.main)
        if table is not None and table.exists and not replaced:
            history = tables.history if table is tables.main else None
            plan = plan_columns(spec, table, replaces=False, history=history)
            if not _replaces_rows(spec, table):
                refuse_other_order(spec, plan, f"the table {table.uri}")
            yield table, plan


def _replaces_rows(spec: WriteSpec, table: Table) -> bool:
    """Return whether no record is ever compared with a row that the table has now: it has none, or each sync
    replaces the rows of its partition."""
    is_replaced = spec.partition is not None and spec.stream.overwrites
    return is_replaced or not (table.file_count or table.metadata.hidden)


def _rewrite(
    spark: SparkProvider, table: Table, plan: SchemaPlan, schema: t.StructType, spec: WriteSpec
) -> None:
    files = _rewritten(spark, table, plan, table.files, table.schema, spec)
    metadata = table.metadata
    after = replace(
        metadata,
        sequence=metadata.sequence + 1,
        commit=None,
        same_as=metadata.stands_for or "",
        columns_at=table.version if metadata.columns_at is None else metadata.columns_at,
        refresh=_convert_refresh(spec, metadata),
    )
    with discard_if_unpublished(table, files):
        table.commit(TableChange(files, table.files), after, 0, schema)


def _convert_refresh(spec: WriteSpec, metadata: CommitMetadata) -> Refresh | None:
    """Return the unfinished refresh; None if there is none, or if it must start again."""
    refresh = metadata.refresh
    if refresh is not None and refresh.truncates:
        return spec.resumed_refresh(metadata)
    return refresh


def _rewritten(
    spark: SparkProvider,
    table: Table,
    plan: SchemaPlan,
    files: Sequence[DataFile],
    schema: t.StructType,
    spec: WriteSpec,
    *kind: str,
) -> list[DataFile]:
    if not files:
        return []
    is_history = IS_CURRENT in schema.names
    present = t.StructType([*schema.fields, *HIDDEN_FIELDS]) if is_history else schema
    # The files of a refresh are hidden, and become those of the table.
    output = replace(table.output(*kind), partition_by=table.partition_by)
    groups = [[file.path for file in group] for group in pack_files(files)]
    job = WideningJob(groups, output, table.arrow_schema(present), _columns(plan, present))
    try:
        results = run_tasks(spark.get(), len(groups), make_widening, job)
        _refuse_losses(table, [path for _, path in results if path is not None], spec)
    except BaseException:
        table.storage.discard_folder(output.folder)
        raise
    new_files = [DataFile(*file) for paths, _ in results for file in paths]
    verify_or_discard(
        table,
        row_count(table, files),
        row_count(table, new_files),
        "rows in wider types",
        new_files,
    )
    return new_files


def _columns(plan: SchemaPlan, present: t.StructType) -> list[tuple[Field, Field | None]]:
    """Return the columns of rewritten files, each with the column that it was. Reserved columns stay."""
    before = {field.name: field_of(column_of(field)) for field in present.fields}
    fields = [*plan.schema.fields, *(f for f in present.fields if f.name not in plan.schema.names)]
    return [(field_of(column_of(field)), before.get(field.name)) for field in fields]


def _refuse_losses(table: Table, unfit: Sequence[str], spec: WriteSpec) -> None:
    if not unfit:
        return
    names = ", ".join(sorted(set(unfit)))
    raise ConfigError(
        f"the table {table.uri} cannot be rewritten with the wider types of {names}: values would change",
        guidance="correct the catalog; or set `on_schema_change: freeze`; or "
        f"{describe_restart(spec)}",
    )
