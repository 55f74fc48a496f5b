"""A stream's tables written anew in wider types, so that every engine reads old files and new ones alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake import evolution
from elt_assets.lake.evolution import Plan
from elt_assets.lake.files import HIDDEN, Change, DataFile
from elt_assets.lake.history import HIDDEN_FIELDS, IS_CURRENT, history_schema
from elt_assets.lake.landing import Landing, full_schema, planned, replaces_schema
from elt_assets.lake.table import Table
from elt_assets.lake.tables import StreamTables


def widen(spark: SparkSession, tables: StreamTables, land: Landing) -> None:
    """Give the stream's tables the wider types that its schema asks for: one commit each.

    The state stays, and rows do; a refresh that was begun is begun anew. A table that the sync replaces
    is left alone; its history is not.

    Raises:
        ConfigError: a value would change, or a type is not accepted.
        Superseded: files were replaced meanwhile.
    """
    for table, plan in _plans(tables, land):
        if plan.rewrites:
            schema = full_schema(plan, land)
            _rewrite(spark, table, plan, schema if table is tables.main else history_schema(schema))


def check(tables: StreamTables, land: Landing) -> None:
    """Refuse a schema that the stream's tables cannot take.

    Raises:
        ConfigError: names the table, the columns, and what to do.
    """
    list(_plans(tables, land))


def _plans(tables: StreamTables, land: Landing) -> Iterator[tuple[Table, Plan]]:
    for table in (tables.history, tables.main):
        replaced = table is tables.main and replaces_schema(land, tables.main)
        if table is not None and table.exists and not replaced:
            yield table, planned(land, table, replaces=False)


def _rewrite(spark: SparkSession, table: Table, plan: Plan, schema: t.StructType) -> None:
    _refuse_losses(spark, table, plan)
    files = _rewritten(spark, table, plan, table.files)
    head = table.head
    after = replace(
        head,
        sequence=head.sequence + 1,
        commit=None,
        same_as=head.stands_for or "",
        tombstones=tuple(_rewritten(spark, table, plan, head.tombstones, HIDDEN)),
        refresh=None if head.refresh is None or head.refresh.truncates else head.refresh,
    )
    table.commit(Change(files, table.files), after, 0, schema)


def _rewritten(
    spark: SparkSession, table: Table, plan: Plan, files: Sequence[DataFile], *kind: str
) -> list[DataFile]:
    if not files:
        return []
    is_history = IS_CURRENT in table.schema.names
    wide = t.StructType([*table.schema.fields, *HIDDEN_FIELDS]) if is_history else table.schema
    return table.write_files(evolution.rewrite(table.read_files(spark, files, wide), plan), *kind)


def _refuse_losses(spark: SparkSession, table: Table, plan: Plan) -> None:
    lossless = evolution.lossless(plan)
    if lossless is None or table.dataframe(spark).where(~lossless).isEmpty():
        return
    names = ", ".join(str(one.path) for one in plan.widened)
    raise ConfigError(
        f"the table {table.uri} cannot take the wider types of {names}: values in it would change",
        guidance="correct the catalog, set `on_schema_change: freeze`, or move the table away",
    )
