"""The changes of values that the source reports of a row, in `_airbyte_meta.changes`."""

from __future__ import annotations

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f

from elt_assets.lake.schema import metadata_columns


def changes() -> Expression:
    return f.col(metadata_columns.META).getField("changes")


def is_for(change: Expression, reason: str) -> Expression:
    """Return whether a change has a reason."""
    return f.coalesce(change.getField("reason") == reason, f.lit(False))


def has_change(reason: str) -> Expression:
    """Return whether a row has a change for a reason."""
    return f.coalesce(f.exists(changes(), lambda change: is_for(change, reason)), f.lit(False))


def replace_changes(left: Expression) -> Expression:
    """Return the column META with other changes."""
    return f.col(metadata_columns.META).withField("changes", left)
