"""A source that counts: `python -m tests.programs.counting_source VERB …`.

Record `n` of a stream is a version of the id `n % ids`. Its config: `last`, the number that it counts to;
`every`, the records between states; `delay`, the seconds that it waits at each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.programs.plain_source import (
    Json,
    Message,
    PlainStream,
    catalog_of,
    checkpoint,
    record,
    run,
)

if TYPE_CHECKING:  # a program that tests start hundreds of times
    from tests.support.project import Project

IDS = 40
INCREMENTAL, FULL_REFRESH = "incremental", "full_refresh"
MODES = {
    "append": INCREMENTAL,
    "append_dedup": INCREMENTAL,
    "overwrite": FULL_REFRESH,
    "overwrite_dedup": FULL_REFRESH,
}


def counting(project: Project, name: str, **config: Any) -> None:
    """A connection to it, with a stream for each policy, which is its name."""
    streams: list[dict[str, Any]] = [
        {"name": policy, "sync_mode": mode, "destination_sync_mode": policy}
        for policy, mode in MODES.items()
    ]
    for stream in streams:
        if stream["name"] == "append_dedup":
            stream["history"] = True
    folder = project.connection(
        name,
        source={
            "command": [sys.executable, "-m", "tests.programs.counting_source"],
            "config": config,
        },
        streams=streams,
        checkpoint={"rows": 2 * int(config["every"])},
    )
    (folder / "catalog.json").write_text(json.dumps(catalog_of(STREAMS)))


def expected(policy: str, last: int) -> list[int]:
    """The numbers that its table must have in the end."""
    numbers = range(1, last + 1)
    if policy in ("append", "overwrite"):
        return list(numbers)
    return sorted({number % IDS: number for number in numbers}.values())


def _read(config: Json, state: Json | None) -> Iterator[Message]:
    first = 1 if state is None else int(state["n"]) + 1
    for number in range(first, config["last"] + 1):
        yield record({"n": number, "id": number % IDS})
        if number % config["every"] == 0:
            yield checkpoint({"n": number})
            time.sleep(config["delay"])


INTEGER = {"type": "integer"}
STREAMS = [
    PlainStream(
        policy,
        _read,
        json_schema={"type": "object", "properties": {"n": INTEGER, "id": INTEGER}},
        source_defined_primary_key=[["id"]],
        default_cursor_field=["n"],
    )
    for policy in MODES
]


if __name__ == "__main__":
    sys.exit(run(STREAMS, sys.argv[1:]))
