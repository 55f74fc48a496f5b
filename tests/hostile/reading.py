"""Runs every attack of a connector in this process, and prints what came of each, and the memory it took.

`python -m tests.hostile.reading FOLDER SCALE [NAME …]`: one line of JSON for each, or for each that is named.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from elt_assets.errors import EltError
from elt_assets.runner.connector import Connector
from tests.programs.hostile_connector import ATTACKS, SECRET, Attack
from tests.programs.hostile_source import hostile_source
from tests.runner.test_faults import CATALOG, STATE
from tests.support.connector_specs import command_spec
from tests.sync.doubles import MemorySink, Sync

_SCHEMA = {"properties": {"password": {"type": "string", "airbyte_secret": True}}}


def run(attack: Attack, folder: Path, scale: int) -> dict[str, Any]:
    """Run an attack; return its error, the log, the numbers of the rows and the number of events."""
    script = (
        f"SCALE, CANARIES = {scale}, {str(folder.parent / 'canaries')!r}\n{STATE}{attack.script}"
    )
    logs: list[str] = []
    how: dict[str, Any] = {
        "heartbeat": attack.heartbeat,
        "on_log": lambda _, text: logs.append(text),
    }
    if attack.verb == "specification":
        command = [sys.executable, "-ISc", attack.script]
        source = Connector(command_spec(command, {}, folder.parent / "work", "hostile", **how))
    else:
        source = hostile_source(folder, script, {"password": SECRET}, _SCHEMA, **how)
    sink, events = MemorySink(), 0
    failure: Exception | None = None
    try:
        if attack.verb == "specification":
            _ = source.specification
        elif attack.verb == "read":
            sync = Sync(folder, {"users": sink}, configured=CATALOG).run(
                source.read(CATALOG, runs=True)
            )
            logs, events, failure = [sync.logs()], len(sync.events), sync.failure
        else:
            getattr(source, attack.verb)()
    except Exception as error:  # noqa: BLE001 - the other attacks are run all the same
        failure = error
    text = None if failure is None else str(failure)
    if failure is not None and not isinstance(failure, EltError):
        text = f"a crash: {failure!r}"
    return {"error": text, "logs": logs, "rows": sink.numbers, "events": events}


def measure_peak() -> int:
    """Return the most memory that this process has had, in MiB."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) >> 10


def main(top: Path, scale: int, *names: str) -> None:
    for name in names or ATTACKS:
        attack = ATTACKS[name]
        folder = top / name
        folder.mkdir()
        begun = time.monotonic()
        outcome = run(attack, folder, scale)
        outcome |= {"name": name, "peak": measure_peak(), "seconds": time.monotonic() - begun}
        outcome["left"] = [path.name for path in (folder / "work").glob("*")]
        sys.stdout.write(f"{json.dumps(outcome)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
