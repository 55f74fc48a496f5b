"""Tables and views of a database, as a dialect finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from connectors.sdk.columns.types import ColumnType
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream


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
    """A column."""

    name: str
    type: ColumnType
    select: str
    """The expression that is selected."""
    is_nullable: bool = True
    is_ordered: bool = False
    """Whether it can be a cursor, because the order of the database is that of its values in the lake."""
    comment: str | None = None


TableColumn = TypeVar("TableColumn", bound=Column)


@dataclass(frozen=True)
class Table(Generic[TableColumn]):
    """A table or a view."""

    schema_name: str | None
    """None if the database has no schemas."""
    name: str
    columns: Sequence[TableColumn]
    primary_key: Sequence[str] = ()
    comment: str | None = None
    rows: int | None = None
    """About how many it has; None if that is unknown."""

    def column(self, name: str) -> TableColumn | None:
        """Return the column of a name."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def key_columns(self) -> Sequence[TableColumn]:
        """The columns by which the table is divided into ranges; none if it cannot be.

        A null is in no range, and the order of some types is not that of their values in Python.
        """
        columns = [self.column(name) for name in self.primary_key]
        key = [column for column in columns if column is not None]
        is_divisible = all(column.is_ordered and not column.is_nullable for column in key)
        return key if is_divisible else []

    def find_cursor(self, configured: ConfiguredStream) -> TableColumn:
        """Return the column that is the cursor of an incremental read.

        Raises:
            ConfigError: there is none, or it cannot be one.
        """
        path = configured.cursor
        column = self.column(path[0]) if len(path) == 1 else None
        if column is None or not column.is_ordered:
            usable = [column.name for column in self.columns if column.is_ordered]
            problem = f"{'.'.join(path)!r} cannot be its cursor" if path else "it has no cursor"
            raise ConfigError(
                f"stream {str(configured.id)!r} cannot be read incrementally: {problem}",
                guidance=f"set `cursor_field` to a column that grows, of: {', '.join(usable)}",
            )
        return column

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the table's rows."""
        properties = {column.name: column.type.describe(column.comment) for column in self.columns}
        schema = {"type": "object", "properties": properties}
        return {**schema, "description": self.comment} if self.comment else schema
