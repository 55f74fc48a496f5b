"""What the input of a downstream asset asks for: a type of data frames, columns and partitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.read.frames import FrameType, find_frame_type
from elt_assets.orchestration.events.metadata import unwrap

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
