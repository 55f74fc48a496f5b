"""A connector that is asked for the partitions of its streams."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds import KINDS
from tests.support.connector_specs import command_spec
from tests.support.source import configure_streams

SPEC = '{"type":"SPEC","spec":{"connectionSpecification":{"type":"object"}}}'
CATALOG = configure_streams("orders")
RECORD = '{"type":"RECORD","record":{"stream":"orders","data":{},"emitted_at":1}}'
BROKEN = '{"type":"PARTITION","partition":{"stream_descriptor":{"name":"orders"},"key":'
ERROR = (
    '{"type":"TRACE","trace":{"type":"ERROR","error":{"message":"no access","failure_type":"%s"}}}'
)


def partition(key: str, context: str) -> str:
    stream = '"stream_descriptor":{"name":"orders"}'
    return f'{{"type":"PARTITION","partition":{{{stream},"key":"{key}","context":{context}}}}}'


def connector(folder: Path, answer: str) -> Connector:
    """Return a connector that answers `partitions` with some Python statements."""
    program = folder / "source.py"
    program.write_text(
        "import sys, time\n"
        f"if sys.argv[1] == 'spec':\n  print({SPEC!r})\n"
        f"elif sys.argv[1] == 'partitions':\n  {answer}\n"
    )
    return Connector(command_spec([sys.executable, str(program)], {}, folder / "work", "source"))


def listed(source: Connector, seconds: float | None = None) -> list[tuple[str, bytes]]:
    found = source.partitions(CATALOG, seconds=seconds)
    return [(each.key, bytes(each.context)) for each in found]


def test_each_partition_has_its_context_byte_for_byte(tmp_path: Path) -> None:
    contexts = ['{"store": 1.0}', '{"store":99999999999999999999.5}']
    lines = [partition(str(n), context) for n, context in enumerate(contexts)]
    source = connector(tmp_path, f"print(*{lines!r}, sep='\\n')")
    assert listed(source) == [("0", contexts[0].encode()), ("1", contexts[1].encode())]


def test_a_source_without_partitions_lists_none(tmp_path: Path) -> None:
    assert listed(connector(tmp_path, "pass")) == []


@pytest.mark.parametrize(
    "answer", ["sys.exit(2)", f"print({RECORD!r}, flush=True); time.sleep(60)"]
)
def test_a_source_without_the_command_is_refused(tmp_path: Path, answer: str) -> None:
    started = time.monotonic()
    with pytest.raises(ConfigError, match="cannot list the partitions of stream 'orders'") as error:
        listed(connector(tmp_path, answer))
    assert "`static` or `dynamic`" in (error.value.guidance or "")
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (f"print({ERROR % 'transient_error'!r}); sys.exit(2)", TransientError, "no access"),
        (f"print({ERROR % 'config_error'!r}); sys.exit(1)", ConfigError, "no access"),
        ("sys.exit(1)", SystemFailure, "`partitions` of connector source ended with exit code 1"),
        (f"print({BROKEN!r})", SystemFailure, "malformed PARTITION message"),
    ],
)
def test_other_failures_are_reported_as_in_a_read(
    tmp_path: Path, answer: str, kind: type[EltError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        listed(connector(tmp_path, answer))


def test_a_slow_list_is_stopped(tmp_path: Path) -> None:
    answer = f"print({partition('1', '{}')!r}, flush=True); time.sleep(60)"
    started = time.monotonic()
    with pytest.raises(TransientError, match="exceeded its time limit"):
        listed(connector(tmp_path, answer), seconds=2)
    assert time.monotonic() - started < 20


def test_closing_the_iterator_stops_the_source(tmp_path: Path) -> None:
    answer = f"print({partition('1', '{}')!r}, flush=True); time.sleep(60)"
    started = time.monotonic()
    source = connector(tmp_path, answer)
    with contextlib.closing(source.partitions(CATALOG, seconds=30)) as found:
        assert next(found).key == "1"
    assert time.monotonic() - started < 20
    assert list((tmp_path / "work").iterdir()) == []


def test_every_kind_of_source_except_a_tap_can_list_partitions() -> None:
    assert {key for key, kind in KINDS.items() if not kind.lists_partitions} == {"tap"}
