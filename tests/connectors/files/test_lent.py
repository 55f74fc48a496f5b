"""A process that reads files on threads of pyarrow ends with the exit code of its read."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from connectors.sdk import Source, Stream, run
from connectors.sdk.lent import lend
from tests.connectors.support import catalog

Json = dict[str, Any]


class SlowFile(io.BytesIO):
    """A thread of pyarrow is in `read` when the rest of the process has ended."""

    def read(self, size: int | None = -1) -> bytes:
        time.sleep(0.1)
        return super().read(size)


class Lines(Stream):
    name = "lines"
    json_schema: Json = {"type": "object"}  # noqa: RUF012 - never changed

    def read(self, _configured: Any, _state: Json | None) -> Iterator[Json]:
        """The first row of a file that pyarrow reads ahead."""
        reader = pacsv.open_csv(
            pa.PythonFile(lend(SlowFile(b"a\n1,2\n" + b"1\n" * 1_000)), mode="r"),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=64),
            parse_options=pacsv.ParseOptions(invalid_row_handler=lend(lambda _: "skip")),
        )
        yield {"a": reader.read_next_batch()[0][0].as_py()}
        if self.fails:
            raise ValueError("broken")

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails


class Slow(Source):
    name = "slow"

    def check(self, config: Json) -> None:
        """Accept every config."""

    def streams(self, config: Json) -> Sequence[Stream]:
        return [Lines(fails=config["fails"])]


@pytest.mark.parametrize("fails", [False, True])
def test_a_process_ends_after_the_threads_that_read_its_files(tmp_path: Path, fails: bool) -> None:
    """Without the wait, it is aborted (-6): the thread asks for an interpreter that ends."""
    files = {"config": {"fails": fails}, "catalog": catalog("lines")}
    words = [sys.executable, "-m", "tests.connectors.files.test_lent", "read"]
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
        words += [f"--{name}", str(tmp_path / name)]
    ended = subprocess.run(words, capture_output=True, check=False, text=True)
    assert ended.returncode == int(fails), ended.stderr
    (record,) = (line for line in ended.stdout.splitlines() if '"RECORD"' in line)
    assert json.loads(record)["record"]["data"] == {"a": 1}


if __name__ == "__main__":
    sys.exit(run(Slow(), sys.argv[1:]))
