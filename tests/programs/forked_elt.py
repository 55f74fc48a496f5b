"""Runs commands of `elt`, each in a process of its own that has imported it already.

`python -m tests.programs.forked_elt`: each line of stdin is a command: its `words`, `environment`, the file
`output`, and after how many `seconds` it is killed. A line of stdout has its exit code, as `subprocess` does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from elt_assets.cli import main
from elt_assets.cli.commands import move, publish, remove, rename
from elt_assets.lake.publish import entries, iceberg

LOADED = (move, publish, remove, rename, entries, iceberg)


def run(command: dict[str, Any]) -> int:
    process = os.fork()
    if process == 0:
        _run_here(command)
    end = time.monotonic() + command["seconds"]
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
            end += 60
        time.sleep(0.002)


def _run_here(command: dict[str, Any]) -> None:
    code = 70
    try:
        os.environ.clear()
        os.environ.update(command["environment"])
        file = os.open(command["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)
        code = main(command["words"])
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)
