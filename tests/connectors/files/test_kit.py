"""The rules for sources, for both protocols, over files of three formats."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.testing import connector_tests

pytestmark = pytest.mark.long

_FOLDER = tempfile.TemporaryDirectory()
_DATA = Path(_FOLDER.name)
_FORMATS = ("csv", "jsonl", "parquet")


def fill() -> None:
    """Make three files of each format, each of another day."""
    for day in range(1, 4):
        rows = [(day * 10 + n, f"name {n}") for n in range(3)]
        (_DATA / f"{day}.csv").write_text("id,name\n" + "".join(f"{n},{t}\n" for n, t in rows))
        text = "".join(f'{{"id": {n}, "name": "{t}"}}\n' for n, t in rows)
        (_DATA / f"{day}.jsonl").write_text(text)
        ids, names = zip(*rows, strict=True)
        pq.write_table(pa.table({"id": ids, "name": names}), _DATA / f"{day}.parquet")
        for kind in _FORMATS:
            os.utime(_DATA / f"{day}.{kind}", (day * 86_400, day * 86_400))


fill()
TestFiles = connector_tests(
    [sys.executable, "-m", "connectors.files"],
    config={
        "location": str(_DATA),
        "streams": [
            {"name": kind, "glob": f"*.{kind}", "format": kind, "primary_key": ["id"]}
            for kind in _FORMATS
        ],
    },
)
