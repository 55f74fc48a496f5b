"""Names of `tests.support.runs` that tests of connectors import from here."""

from tests.support.runs import failure_of, fetch_materializations, materialize, read_log

__all__ = ["failure_of", "fetch_materializations", "materialize", "read_log"]
