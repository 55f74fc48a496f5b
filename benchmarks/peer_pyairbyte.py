"""PyAirbyte reads the stub into a DuckDB file. Runs in an environment of its own.

usage: peer_pyairbyte.py STUB DATABASE      (replays $BENCH_MESSAGES)
"""

from __future__ import annotations

import sys
from pathlib import Path

import airbyte as ab

stub, database = (Path(argument) for argument in sys.argv[1:])
source = ab.get_source("source-stub", config={}, local_executable=stub)
source.select_all_streams()
source.read(cache=ab.caches.DuckDBCache(db_path=database), write_strategy="append")
