"""Expressions of Spark that several modules need."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f


def value_at(parts: Sequence[str]) -> Expression:
    """Return a column of the table, or a field nested in one. Names may contain dots and backticks."""
    first, *rest = parts
    column = f.col("`" + first.replace("`", "``") + "`")
    return reduce(lambda value, name: value.getField(name), rest, column)
