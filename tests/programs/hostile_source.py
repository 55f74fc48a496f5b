"""Connectors made to misbehave: real programs, each a few lines of Python in a folder of the test's."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from elt_assets.runner.connector import Connector
from tests.support.connector_specs import command_spec

_PRELUDE = """#!{python} -IS
import json, os, signal, subprocess, sys, time
from sys import exit
verb, files = (sys.argv[1:] or ["none"])[0], dict(zip(sys.argv[2::2], sys.argv[3::2]))
def say(kind, **body):
    print(json.dumps({{"type": kind, **body}}), flush=True)
def record(data):
    say("RECORD", record={{"stream": "users", "data": data, "emitted_at": 1}})
def fail(message, **more):
    say("TRACE", trace={{"type": "ERROR", "emitted_at": 1.5, "error": {{"message": message, **more}}}})
if verb == "spec":
    say("SPEC", spec={{"connectionSpecification": json.loads({specification!r})}})
    sys.exit()
"""


def program(folder: Path, script: str, specification: Mapping[str, Any] | None = None) -> str:
    """Write an executable that answers `spec`, and does as `script` says for any other verb.

    The script may use `verb`, `files` (its arguments), `say`, `record` and `fail`.
    """
    path = folder / "hostile-source"
    prelude = _PRELUDE.format(python=sys.executable, specification=json.dumps(specification or {}))
    path.write_text(prelude + script)
    path.chmod(0o700)
    return str(path)


def hostile_source(
    folder: Path,
    script: str,
    config: Mapping[str, Any] | None = None,
    specification: Mapping[str, Any] | None = None,
    **how: Any,
) -> Connector:
    """The same as a connector, with `folder / "work"` for its private files; `how`: as of `Connector`."""
    command = [program(folder, script, specification)]
    return Connector(command_spec(command, config or {}, folder / "work", "hostile", **how))


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def gone(pid: int) -> bool:
    """A killed process takes a moment to die."""
    deadline = time.monotonic() + 30  # on a busy machine
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)
