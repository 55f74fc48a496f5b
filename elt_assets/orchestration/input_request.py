"""What the input of a downstream asset asks for: a type of data frames, columns and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.frames.frame_types import FrameType, find_frame_type

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
    return InputRequest(_frame_type_of(context), _columns_of(context), _partitions_of(context))


def _frame_type_of(context: dg.InputContext) -> FrameType | None:
    annotation: Any = context.dagster_type.typing_type
    # Without an annotation. Dagster has types of its own for it.
    if annotation is Any or annotation is object or annotation is type(None):
        return None
    return find_frame_type(annotation, _describe(context))


def _columns_of(context: dg.InputContext) -> Sequence[str] | None:
    columns = (context.definition_metadata or {}).get(COLUMNS)
    columns = getattr(columns, "value", columns)
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
    name = f"`{context.name}`" if context.has_input_name else context.asset_key.to_user_string()
    return f"the input {name} of {context.op_def.name}" if context.has_input_name else name
