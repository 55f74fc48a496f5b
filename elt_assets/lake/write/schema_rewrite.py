"""A stream's tables written anew in wider types, so that every engine reads old files and new ones alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.files import HIDDEN, Change, DataFile
from elt_assets.lake.delta.opening import retyped
from elt_assets.lake.delta.row_counts import require_all, row_count
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.history import HIDDEN_FIELDS, IS_CURRENT, history_schema
from elt_assets.lake.schema import evolution
from elt_assets.lake.schema.evolution import Plan
from elt_assets.lake.schema.logical_types import column_of
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import (
    WriteSpec,
    full_schema,
    plan_columns,
    replaces_schema,
    stream_part,
)


def widen(spark: SparkSession, tables: StreamTables, spec: WriteSpec) -> None:
    """Give the stream's tables the wider types that its schema asks for: one commit each.

    The state stays, and rows do; an unfinished refresh begins again. A table that the sync replaces is left
    alone; its history is not. Hidden files follow when they are used: those of other partitions belong to
    other writers, each of which brings its own up to date.

    Raises:
        ConfigError: a value would change, or a type is not accepted.
        SystemFailure: rows were lost on the way; nothing was committed.
        Superseded: files were replaced meanwhile.
    """
    for table, plan in _plans(tables, spec):
        if plan.rewrites:
            schema = full_schema(plan, spec)
            _rewrite(spark, table, plan, schema if table is tables.main else history_schema(schema))
    for table in filter(None, (tables.history, tables.main)):
        if table.exists:
            _update_hidden(spark, table, replaced=replaces_schema(spec, table))


def _update_hidden(spark: SparkSession, table: Table, *, replaced: bool) -> None:
    """Rewrite hidden files that were written before the table got wider types; the next commit names them.

    Args:
        replaced: whether an unfinished refresh has columns of its own.
    """
    head = table.head
    if head.columns_at is None or not head.hidden:
        return
    before, own = table.schema_at(head.columns_at), stream_part(table.schema)
    if not retyped(table.schema, before):
        return
    wanted = [column_of(field) for field in own.fields]
    plan = evolution.plan(stream_part(before), wanted, "evolve", table.uri)
    hidden = {"tombstones": head.tombstones}
    if head.refresh is not None and not replaced:
        hidden |= {"files": head.refresh.files, "buried": head.refresh.tombstones}
    made = {
        name: tuple(_rewritten(spark, table, plan, files, before, HIDDEN))
        for name, files in hidden.items()
    }
    refresh = head.refresh
    if refresh is not None and not replaced:
        refresh = replace(refresh, files=made["files"], tombstones=made["buried"])
    table.head = replace(
        head, tombstones=made["tombstones"], refresh=refresh, columns_at=table.version
    )


def check(tables: StreamTables, spec: WriteSpec) -> None:
    """Refuse a schema that the stream's tables cannot take.

    Raises:
        ConfigError: names the table, the columns, and what to do.
    """
    list(_plans(tables, spec))


def _plans(tables: StreamTables, spec: WriteSpec) -> Iterator[tuple[Table, Plan]]:
    for table in (tables.history, tables.main):
        replaced = table is tables.main and replaces_schema(spec, tables.main)
        if table is not None and table.exists and not replaced:
            yield table, plan_columns(spec, table, replaces=False)


def _rewrite(spark: SparkSession, table: Table, plan: Plan, schema: t.StructType) -> None:
    _refuse_losses(spark, table, plan)
    files = _rewritten(spark, table, plan, table.files, table.schema)
    head = table.head
    after = replace(
        head,
        sequence=head.sequence + 1,
        commit=None,
        same_as=head.stands_for or "",
        columns_at=table.version if head.columns_at is None else head.columns_at,
        refresh=None if head.refresh is None or head.refresh.truncates else head.refresh,
    )
    table.commit(Change(files, table.files), after, 0, schema)


def _rewritten(
    spark: SparkSession,
    table: Table,
    plan: Plan,
    files: Sequence[DataFile],
    schema: t.StructType,
    *kind: str,
) -> list[DataFile]:
    if not files:
        return []
    is_history = IS_CURRENT in schema.names
    wide = t.StructType([*schema.fields, *HIDDEN_FIELDS]) if is_history else schema
    rows = evolution.rewrite(table.read_files(spark, files, wide), plan)
    made = table.write_files(rows, *kind)
    require_all(table, row_count(table, files), row_count(table, made), "rows in wider types", made)
    return made


def _refuse_losses(spark: SparkSession, table: Table, plan: Plan) -> None:
    lossless = evolution.lossless(plan)
    if lossless is None or table.dataframe(spark).where(~lossless).isEmpty():
        return
    names = ", ".join(str(one.path) for one in plan.widened)
    raise ConfigError(
        f"the table {table.uri} cannot take the wider types of {names}: values in it would change",
        guidance="correct the catalog, set `on_schema_change: freeze`, or move the table away",
    )
