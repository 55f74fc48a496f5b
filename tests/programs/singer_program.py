"""The program of `tests.programs.singer_tap`: it needs nothing but Python, and so starts fast."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path


def end_on_command(command: str, argument: str) -> None:
    """End this program if a line of its script says so: `!exit N` or `!kill`."""
    if command == "!exit":
        sys.exit(int(argument))
    if command == "!kill":
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    """Print lines. `!exit N`, `!kill` and `!sleep S` do that instead, as in `tests.programs.scripted`; `!torn
    TEXT` has no newline; `!config TEXT` writes to the config file; `!run CODE` runs Python, with its path."""
    for line in text.split("\n"):
        command, _, argument = line.partition(" ")
        end_on_command(command, argument)
        if command == "!run":
            config = Path(sys.argv[sys.argv.index("--config") + 1])
            exec(argument, {"config": config, "os": os})
        elif command == "!sleep":
            time.sleep(float(argument))
        elif command == "!torn":
            sys.stdout.write(argument)
        elif command == "!config":
            Path(sys.argv[sys.argv.index("--config") + 1]).write_text(argument)
        elif line:
            sys.stdout.write(line + "\n")


def run(folder: Path, arguments: list[str]) -> None:
    """Do as the folder's files say."""
    if "--about" in arguments:
        if not (folder / "about.txt").exists():
            sys.exit("unrecognized arguments: --about")
        say((folder / "about.txt").read_text())
        return
    if "--help" in arguments:
        help_ = folder / "help.txt"
        say(help_.read_text() if help_.exists() else "usage: tap --config C --catalog C")
        return
    paths = {name: Path(path) for name, path in pairwise(arguments) if Path(path).is_file()}
    files = {name: json.loads(path.read_text()) for name, path in paths.items()}
    modes = sorted({oct(path.stat().st_mode)[-3:] for path in paths.values()})
    given = {"arguments": arguments, "files": files, "modes": modes}
    (folder / "given.json").write_text(json.dumps(given))
    is_discovery = "--discover" in arguments
    say((folder / ("catalog.txt" if is_discovery else "read.jsonl")).read_text())


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
