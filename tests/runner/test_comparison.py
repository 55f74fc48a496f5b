"""A connector that is asked to compare its streams."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.protocol.messages import Comparison, KeyRange
from elt_assets.runner.connector import Connector
from tests.support.connector_specs import command_spec
from tests.support.source import configure_streams

SPEC = '{"type":"SPEC","spec":{"connectionSpecification":{"type":"object"}}}'
CATALOG = configure_streams("orders")
NAME = '"stream_descriptor":{"name":"orders"}'
HEAD = (
    f'{{"type":"COMPARISON","comparison":{{{NAME},"key":["id"],"key_types":["int64"],"columns":[],'
    '"left_out":{},"position":5}}'
)
RANGE = f'{{"type":"RANGE","range":{{{NAME},"rows":2,"hash":"18446744073709551615","until":[1]}}}}'
KEYS = f'{{"type":"RANGE","range":{{{NAME},"rows":1,"hash":"7","keys":[[[1],"7",null]]}}}}'
BROKEN = f'{{"type":"RANGE","range":{{{NAME},"rows":'
RECORD = '{"type":"RECORD","record":{"stream":"orders","data":{},"emitted_at":1}}'


def connector(folder: Path, answer: str) -> Connector:
    """Return a connector that answers `compare` with some Python statements."""
    program = folder / "source.py"
    program.write_text(
        "import sys, time\n"
        f"if sys.argv[1] == 'spec':\n  print({SPEC!r})\n"
        f"elif sys.argv[1] == 'compare':\n  {answer}\n"
    )
    return Connector(command_spec([sys.executable, str(program)], {}, folder / "work", "source"))


def test_the_answer_is_the_comparison_and_its_ranges(tmp_path: Path) -> None:
    lines = [HEAD, RANGE, KEYS]
    head, first, keys = connector(tmp_path, f"print(*{lines!r}, sep='\\n')").compare(CATALOG)
    assert isinstance(head, Comparison) and bytes(head.position or b"") == b"5"
    assert isinstance(first, KeyRange) and isinstance(keys, KeyRange)
    assert (first.after, bytes(first.until or b""), first.rows) == (None, b"[1]", 2)
    assert first.list_keys() == []
    assert keys.list_keys() == [([1], "7", None)]


@pytest.mark.parametrize(
    "answer", ["sys.exit(2)", f"print({RECORD!r}, flush=True); time.sleep(60)"]
)
def test_a_source_without_the_command_is_refused(tmp_path: Path, answer: str) -> None:
    with pytest.raises(
        ConfigError, match="the source of stream 'orders' cannot be compared"
    ) as error:
        list(connector(tmp_path, answer).compare(CATALOG))
    assert "remove `source` from the `checks`" in (error.value.guidance or "")


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ("sys.exit(1)", SystemFailure, "`compare` of connector source ended with exit code 1"),
        (f"print({BROKEN!r})", SystemFailure, "malformed RANGE message"),
        (f"print({HEAD[:40]!r})", SystemFailure, "malformed COMPARISON message"),
    ],
)
def test_other_failures_are_reported_as_in_a_read(
    tmp_path: Path, answer: str, kind: type[EltError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        list(connector(tmp_path, answer).compare(CATALOG))


def test_closing_the_iterator_stops_the_source(tmp_path: Path) -> None:
    started = time.monotonic()
    source = connector(tmp_path, f"print({HEAD!r}, flush=True); time.sleep(60)")
    with contextlib.closing(source.compare(CATALOG, seconds=30)) as parts:
        assert isinstance(next(parts), Comparison)
    assert time.monotonic() - started < 20
