"""Runs every attack of a tap in this process, and prints what came of each, and the memory it took.

`python -m tests.hostile.reading_tap FOLDER`: one line of JSON for each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from elt_assets.errors import EltError
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.singer_catalog import attach_all_entries, read_catalog
from elt_assets.runner.singer_tap import SingerTap
from tests.hostile.reading import measure_peak
from tests.programs.hostile_tap import ATTACKS, PRELUDE, Attack
from tests.support.connector_specs import command_spec
from tests.sync.doubles import MemorySink, Sync

_ENTRY = {
    "tap_stream_id": "users",
    "stream": "users",
    "schema": {"properties": {"n": {}}},
    "metadata": [],
}
_STREAMS = attach_all_entries(read_catalog(json.dumps({"streams": [_ENTRY]}).encode())).streams
CATALOG = ConfiguredCatalog(streams=[ConfiguredStream(stream=stream) for stream in _STREAMS])


def run(attack: Attack, folder: Path) -> tuple[str | None, list[int]]:
    """Run an attack; return its error, and the numbers of the rows."""
    program = folder / "tap"
    program.write_text(PRELUDE.format(python=sys.executable) + attack.script)
    program.chmod(0o700)
    tap = SingerTap(command_spec([str(program)], {}, folder / "work", "hostile", heartbeat=60))
    sink = MemorySink()
    try:
        if attack.verb == "discover":
            tap.discover()
            return None, []
        read = tap.read(CATALOG, runs=True)
        failure = Sync(folder, {"users": sink}, configured=CATALOG).run(read).failure
    except EltError as error:
        return str(error), []
    return None if failure is None else str(failure), sink.numbers


def main(top: Path) -> None:
    for name, attack in ATTACKS.items():
        folder = top / name
        folder.mkdir()
        error, rows = run(attack, folder)
        line = {"name": name, "error": error, "rows": rows, "peak": measure_peak()}
        sys.stdout.write(f"{json.dumps(line)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
