"""The limit: DuckDB turns the message file into Parquet, no protocol, no state.

usage: peer_limit.py MESSAGES OUT.parquet
"""

from __future__ import annotations

import sys

import duckdb

messages, out = sys.argv[1:]
duckdb.sql(
    "copy (select unnest(record.data) from "
    f"read_json('{messages}', format='newline_delimited', ignore_errors=true) "
    f"where type = 'RECORD') to '{out}' (format parquet)"
)
