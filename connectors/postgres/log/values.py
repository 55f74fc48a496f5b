"""Values of the log, which are texts, as the snapshot of the table has them: the same types and values.

Arrays and composites are JSON in a snapshot, which only the server can make of their texts: it is asked, once
for each different text of a batch. So it is for texts of a column that has become JSON.

A text may be of a type that the column had before. It is converted if it is a text of the present type, too:
else it is an error, not a null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.postgres.catalog import Column
from connectors.postgres.dialect import NOT_FINITE, quote_text
from connectors.sdk.columns.conversion import Converted, convert
from connectors.sdk.columns.types import ARRAY, BINARY, BOOL, JSON, OBJECT
from elt_assets.errors import EltError, SystemFailure, TransientError

ConvertByServer = Callable[[str], "list[dict[str, Any]]"]
"""Runs a query and returns its rows."""
_OUT_OF_RANGE = r"^-?infinity$|^\d{5,}-| BC$"
"""Dates and times that are not between the years 1 and 9999."""
_JSON_TYPES = (114, 3802)
"""The types json and jsonb in `pg_type`: their texts are JSON."""
_MANY = 1_000
"""Texts that the server is asked for in one query."""


def convert_texts(
    texts: pa.StringArray, column: Column, server_type: int, ask: ConvertByServer
) -> Converted:
    """Return values of a column in the type that a snapshot gives them, and which were made null.

    Args:
        server_type: the number of the type that the column had when they were written.

    Raises:
        ValueError: a text is none of the column's type.
        TransientError: the server cannot be asked.
    """
    kind = column.type
    if kind in (ARRAY, OBJECT) or (kind == JSON and server_type not in _JSON_TYPES):
        return _convert_by_server(texts, column, ask), None
    if kind == BOOL:
        return _convert_flags(texts), None
    if kind == BINARY:
        return _convert_bytes(texts), None
    special = _OUT_OF_RANGE if kind.is_time else NOT_FINITE
    values, is_nulled = convert(texts, kind, special)
    if is_nulled is not None:
        is_special = pc.match_substring_regex(texts.filter(is_nulled), special)
        if not pc.all(is_special).as_py():
            raise ValueError(f"no {column.declared}")
    return values, is_nulled


def _convert_flags(texts: pa.StringArray) -> pa.Array:
    is_true = pc.equal(texts, "t")
    if pc.all(pc.or_(is_true, pc.equal(texts, "f"))).as_py() is False:
        raise ValueError("no boolean")
    return is_true


def _convert_bytes(texts: pa.StringArray) -> pa.Array:
    """Return bytes of texts in hexadecimal digits, after the two characters that mark them."""
    if pc.all(pc.starts_with(texts, "\\x")).as_py() is False:
        raise ValueError("no bytes")
    values = [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()]
    return pa.array(values, pa.binary())


def _convert_by_server(texts: pa.StringArray, column: Column, ask: ConvertByServer) -> pa.Array:
    """Return the JSON that a snapshot has of values."""
    encoded = texts.dictionary_encode()
    distinct: Sequence[str] = encoded.dictionary.to_pylist()
    # A label may have another name by now; that of the log is right, and it is a text in JSON.
    kind = "text[]" if column.has_labels else column.declared
    values: list[str] = []
    for start in range(0, len(distinct), _MANY):
        part = ", ".join(map(quote_text, distinct[start : start + _MANY]))
        try:
            rows = ask(
                f"SELECT to_json(value::{kind})::text AS value "
                f"FROM unnest(ARRAY[{part}]::text[]) WITH ORDINALITY AS given (value, number) "
                "ORDER BY number"
            )
        except TransientError:
            raise
        except EltError as error:
            raise ValueError(f"no {column.declared}") from error
        values += [row["value"] for row in rows]
    if len(values) != len(distinct):
        raise SystemFailure(
            f"the server gave {len(values)} values for {len(distinct)} texts of the column {column.name}",
            guidance="this is a defect of this project: report it",
        )
    return pa.array(values, pa.string()).take(encoded.indices)
