"""The contract of a stream: names and types of columns that its consumers rely on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from elt_assets.connection.config_model import ConfigModel

_ALIASES: Mapping[str, str] = {
    "integer": "bigint",
    "number": "double",
    "text": "string",
}
"""Names of JSON's types for types of columns."""
_NAMES = (
    "bigint",
    "binary",
    "boolean",
    "date",
    "decimal(38,0)",
    "decimal(38,9)",
    "double",
    "string",
    "timestamp",
    "timestamp_ntz",
)
_NESTED = re.compile(r"(array|struct)<.+>")


def _check_type(text: str) -> str:
    """Return the name of a type in Spark's notation.

    Raises:
        ValueError: there is no such type of columns.
    """
    name = re.sub(r"\s*([<>(),:])\s*", r"\1", text.strip())
    if _NESTED.fullmatch(name):
        return name
    name = _ALIASES.get(name.lower(), name.lower())
    if name in _NAMES:
        return name
    raise ValueError(
        f"{text!r} is not the type of a column; write one of {', '.join((*_ALIASES, *_NAMES))}, or "
        "`array<…>` and `struct<name:type>` as Dagster shows them"
    )


ColumnType = Annotated[str, AfterValidator(_check_type)]


class Contract(ConfigModel):
    """Names and types of columns that a stream must have.

    With `fail`, the connection is not loaded, and a sync stops before it writes, if a column is lost or has
    another type; with `warn`, the check `contract` of the asset fails as a warning.
    """

    columns: dict[str, ColumnType] = Field(min_length=1)
    """Type of each column by its name, as `bigint`; nested ones as `address.city`."""
    others: Literal["allow", "refuse"] = "allow"
    """Whether the stream may have further columns."""
    on_violation: Literal["fail", "warn"] = "fail"
    """`fail`: the connection is not loaded, and a sync stops before it writes; `warn`: the check
    `contract` fails as a warning."""
