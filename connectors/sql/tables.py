"""Tables and views of a database, as a dialect finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from connectors.sql.kinds import Kind


@dataclass(frozen=True)
class Declaration:
    """How a database declares a column. `type_name`: in lower case, without sizes."""

    name: str
    type_name: str
    digits: int | None = None
    places: int | None = None
    is_nullable: bool = True


@dataclass(frozen=True)
class Column:
    """A column. `select`: the expression that is selected."""

    name: str
    kind: Kind
    select: str
    is_nullable: bool = True

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the values, which may be null in any case."""
        schema = dict(self.kind.schema)
        if "type" in schema:
            schema["type"] = [schema["type"], "null"]
        return schema


@dataclass(frozen=True)
class Table:
    """A table or a view. `schema_name`: None if the database has no schemas."""

    schema_name: str | None
    name: str
    columns: Sequence[Column]
    primary_key: Sequence[str] = ()

    def column(self, name: str) -> Column | None:
        """Return the column of a name."""
        return next((column for column in self.columns if column.name == name), None)

    def list_key_columns(self) -> list[Column]:
        """Return the columns by which the table is divided into ranges; none if it cannot be.

        A null is in no range, and the order of some kinds is not that of their values in Python.
        """
        columns = [self.column(name) for name in self.primary_key]
        key = [column for column in columns if column is not None]
        is_divisible = all(column.kind.is_ordered and not column.is_nullable for column in key)
        return key if is_divisible else []
