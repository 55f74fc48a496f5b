"""A source of PostgreSQL databases: tables and views, read by slices in one snapshot.

`python -m connectors.postgres spec|check|discover|read …`. How it reads and why nothing is lost is in
`stream` and `position`.
"""

from connectors.postgres.source import Postgres

__all__ = ["Postgres"]
