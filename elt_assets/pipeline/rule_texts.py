"""Texts about the rules that people write for rows: what they demand, and how they failed."""

from __future__ import annotations

from elt_assets.connection.rules import (
    AcceptedValues,
    NotNull,
    Query,
    Range,
    RowCount,
    Rule,
    Unique,
)


def describe_rule(rule: Rule) -> str:
    """Return what a rule demands, as a sentence."""
    scope = "the new rows" if rule.over == "new" else "the table"
    return f"In {scope}, {_describe_demand(rule)}."


def describe_row_count(rule: RowCount, rows: int) -> str:
    """Return the number of rows beside the bounds."""
    return f"{rows:,} rows; there must be {_describe_bounds(rule.min, rule.max)}"


def describe_failures(rule: Rule, failed: int, rows: int, error: str | None = None) -> str:
    """Return how many rows break a rule; or why it could not be checked."""
    columns = _name_columns(rule)
    if error is not None:
        return f"the query cannot be run: {error}"
    if isinstance(rule, Query):
        return f"the query returns {failed:,} rows"
    if isinstance(rule, Unique):
        return f"{failed:,} values in {rows:,} rows are not unique: {columns}"
    if isinstance(rule, NotNull):
        return f"{failed:,} of {rows:,} rows have no {columns}"
    if isinstance(rule, Range):
        bounds = _describe_bounds(rule.min, rule.max)
        return f"{failed:,} of {rows:,} rows have a {columns} that is not {bounds}"
    return f"{failed:,} of {rows:,} rows have a {columns} that is not accepted"


def _describe_demand(rule: Rule) -> str:
    columns = _name_columns(rule)
    if isinstance(rule, NotNull):
        return f"{columns} is never null"
    if isinstance(rule, Unique):
        return f"no two rows have the same {columns}"
    if isinstance(rule, AcceptedValues):
        return f"{columns} is one of {len(rule.values)} values"
    if isinstance(rule, Range):
        return f"{columns} is {_describe_bounds(rule.min, rule.max)}"
    if isinstance(rule, RowCount):
        return f"there are {_describe_bounds(rule.min, rule.max)} rows"
    return "the query returns no row"


def _describe_bounds(least: object, most: object) -> str:
    bounds = {"at least": least, "at most": most}
    return " and ".join(f"{name} {bound}" for name, bound in bounds.items() if bound is not None)


def _name_columns(rule: Rule) -> str:
    return ", ".join(f"`{'.'.join(path)}`" for path in rule.paths)
