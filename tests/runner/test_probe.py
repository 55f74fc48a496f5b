"""A connector asked for news, which may not take long."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from elt_assets.errors import EltError, SystemFailure, TransientError
from elt_assets.protocol.catalog import ConfiguredCatalog
from elt_assets.runner.connector import Connector
from tests.support.connector_specs import command_spec

SPEC = '{"type":"SPEC","spec":{"connectionSpecification":{"type":"object"}}}'
NEWS = '{"type":"NEWS","news":{"streams":[{"stream_descriptor":{"name":"a"},"has_news":true}]}}'


def connector(folder: Path, *, spec: str = "", probe: str = "") -> Connector:
    """A program that does what is given, as Python statements, before or in place of an answer."""
    program = folder / "source.py"
    program.write_text(
        "import os, signal, sys, time\n"
        f"if sys.argv[1] == 'spec':\n  {spec or 'pass'}\n  print({SPEC!r}, flush=True)\n"
        f"else:\n  {probe or f'print({NEWS!r})'}\n"
    )
    return Connector(command_spec([sys.executable, str(program)], {}, folder / "work", "slow"))


def ask(source: Connector, seconds: float = 30) -> list[tuple[str, bool | None]]:
    news = source.probe(ConfiguredCatalog(streams=[]), seconds=seconds)
    return [(each.stream_descriptor.name, each.has_news) for each in news.streams]


def test_a_probe_reports_streams_with_new_data(tmp_path: Path) -> None:
    assert ask(connector(tmp_path)) == [("a", True)]


@pytest.mark.parametrize(
    "slow",
    [
        {"spec": "time.sleep(60)"},
        {"probe": "time.sleep(60)"},
        {"probe": f"print({NEWS!r}, flush=True); os.close(1); time.sleep(60)"},
        {"probe": "[print('chatter', flush=True) or time.sleep(0.01) for _ in range(6000)]"},
    ],
)
def test_a_slow_probe_is_stopped(tmp_path: Path, slow: dict[str, str]) -> None:
    began = time.monotonic()
    with pytest.raises(TransientError, match="exceeded its time limit"):
        ask(connector(tmp_path, **slow), seconds=2)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("probe", "kind"),
    [("sys.exit(2)", SystemFailure), ("pass", SystemFailure), ('print("{}")', SystemFailure)],
)
def test_a_connector_without_probe_is_an_error(
    tmp_path: Path, probe: str, kind: type[EltError]
) -> None:
    with pytest.raises(kind, match="`probe` of connector slow"):
        ask(connector(tmp_path, probe=probe))
