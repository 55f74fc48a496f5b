"""Programs that send SLICE and BARRIER messages which nobody asked for: each command fails, by name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import EltError, SystemFailure
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds import KINDS, open_connector
from tests.programs.hostile_source import hostile_source, program
from tests.support.connector_specs import spec_of
from tests.support.source import USERS

SLICE: dict[str, Any] = {
    "stream_descriptor": {"name": "users"},
    "key": "1",
    "reader": "evil:Source",
    "data": {},
    "file": "/etc/passwd",
}
FORMS: dict[str, Any] = {
    "whole": json.dumps({"type": "SLICE", "slice": SLICE}),
    "of another stream": json.dumps(
        {"type": "SLICE", "slice": {**SLICE, "stream_descriptor": {"name": "x"}}}
    ),
    "beside text": "text " + json.dumps({"type": "SLICE", "slice": SLICE}) + " text",
    "with an odd key": json.dumps({"type": "SLICE", "slice": {**SLICE, "key": ["x"]}}),
    "with an odd file": json.dumps({"type": "SLICE", "slice": {**SLICE, "file": {"x": 1}}}),
    "without data": json.dumps({"type": "SLICE", "slice": {"stream_descriptor": {"name": "x"}}}),
    "cut": json.dumps({"type": "SLICE", "slice": SLICE})[:-9],
    "barrier": '{"type":"BARRIER","barrier":{}}',
}
CALLS: dict[str, Callable[[Connector], object]] = {
    "check": lambda connector: connector.check(),
    "discover": lambda connector: connector.discover(),
    "read": lambda connector: list(connector.read(USERS)),
    "read of runs": lambda connector: list(connector.read(USERS, runs=True)),
    "read for a destination": lambda connector: list(connector.read(USERS, whole=True)),
    "read of withheld fields": lambda connector: list(connector.read(USERS, withhold=True)),
    "write": lambda connector: list(connector.write(USERS, [])),
    "probe": lambda connector: connector.probe(USERS, seconds=60),
    "partitions": lambda connector: list(connector.partitions(USERS)),
    "release": lambda connector: connector.release(seconds=60),
}


def fail(call: Callable[[Connector], object], connector: Connector) -> SystemFailure:
    with pytest.raises(EltError) as failure:
        call(connector)
    assert isinstance(failure.value, SystemFailure), failure.value
    return failure.value


def say(lines: Iterable[str]) -> str:
    return "\n".join(f"print({line!r}, flush=True)" for line in lines)


@pytest.mark.parametrize("form", FORMS)
def test_a_slice_of_any_form_fails_a_read(tmp_path: Path, form: str) -> None:
    failure = fail(CALLS["read of runs"], hostile_source(tmp_path, say([FORMS[form]])))
    assert "connector hostile" in failure.message or "SLICE" in failure.message
    assert "evil" not in sys.modules


@pytest.mark.parametrize("call", CALLS)
def test_an_unasked_slice_fails_each_command(tmp_path: Path, call: str) -> None:
    failure = fail(CALLS[call], hostile_source(tmp_path, say([FORMS["whole"]])))
    assert (
        f"`{call.split()[0]}` of connector hostile sent a slice of stream 'users', which was not"
        in (failure.message)
    )
    assert "remove its connection" in str(failure.guidance)


@pytest.mark.parametrize("kind", ["command", "tap"])
def test_programs_of_each_kind_are_asked_for_no_slices(tmp_path: Path, kind: str) -> None:
    """A tap has no such message: it is a line that is not understood."""
    script = say(["usage: [--discover]"]) + "\n" + say(FORMS.values())
    command = [program(tmp_path, script)]
    connector = open_connector(spec_of(kind, command, tmp_path))
    with pytest.raises(EltError):
        list(connector.read(USERS))
    assert "evil" not in sys.modules


def test_only_modules_that_a_connection_names_have_slices() -> None:
    modules = {name: kind.program_module("faker") for name, kind in KINDS.items()}
    assert {name: module for name, module in modules.items() if module is not None} == {
        "connector": "connectors.faker"
    }
