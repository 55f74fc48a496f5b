"""Base classes of sources that read the tables of a database with SQL.

`SqlSource` needs one method, `connect`, which returns a connection of any driver of the DB-API 2.0 or ADBC.
What databases do in ways of their own is in a `SqlDialect`; the types of columns are in
`connectors.sdk.columns.types`.
"""

from connectors.sql.dialect import SqlDialect, SqliteDialect
from connectors.sql.source import SqlSource
from connectors.sql.tables import Column, Table

__all__ = ["Column", "SqlDialect", "SqlSource", "SqliteDialect", "Table"]
