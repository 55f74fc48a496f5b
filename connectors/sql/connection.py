"""A connection of any driver of the DB-API 2.0 or of ADBC, whose errors say who must act."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from connectors.sql.dialect import SqlDialect
from elt_assets.errors import EltError

_FIRST_ROWS, _MAX_ROWS, _BATCH_BYTES = 16, 20_000, 8 << 20
"""Rows that are fetched at first, and at most; the size of a batch, by which their number is chosen."""


class Connection:
    """A connection.

    Args:
        connection: of the driver.
        make_cursor: returns a cursor of it.
        translate: returns the error of the product for one of the driver.
    """

    def __init__(
        self,
        connection: Any,
        dialect: SqlDialect,
        make_cursor: Callable[[Any], Any],
        translate: Callable[[Exception], EltError],
    ):
        self._connection, self._dialect = connection, dialect
        self._make_cursor, self._translate = make_cursor, translate

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[Sequence[Any]]:
        """Return the few rows of a query.

        Raises:
            EltError: the database refuses it.
        """
        with self._run(self._connection.cursor, query, values) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    def read(self, query: str, values: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
        """Yield the rows of a query in batches: for each column its values.

        Args:
            count: the number of columns.

        Raises:
            EltError: the database refuses it, or the connection is cut.
        """
        with self._run(lambda: self._make_cursor(self._connection), query, values) as cursor:
            if hasattr(cursor, "fetch_record_batch"):
                for batch in cursor.fetch_record_batch():
                    yield batch.columns
                return
            rows = _FIRST_ROWS
            while fetched := cursor.fetchmany(rows):
                columns = [list(column) for column in zip(*fetched, strict=True)]
                assert len(columns) == count
                yield columns
                size = sum(map(_estimate_size, columns)) // len(fetched) + 1
                rows = max(1, min(_MAX_ROWS, rows * 8, _BATCH_BYTES // size))

    @contextmanager
    def _run(
        self, make_cursor: Callable[[], Any], query: str, values: Sequence[Any]
    ) -> Iterator[Any]:
        try:
            cursor = make_cursor()
            try:
                cursor.execute(*self._dialect.bind(query, values))
                yield cursor
            finally:
                with suppress(Exception):
                    cursor.close()
        except EltError:
            raise
        except Exception as error:  # noqa: BLE001 - drivers have classes of their own
            raise self._translate(error) from None


def _estimate_size(values: Sequence[Any]) -> int:
    """Return about how many bytes values have."""
    return sum(
        len(value) + 8 if isinstance(value, (str, bytes, bytearray, memoryview)) else 16
        for value in values
    )
