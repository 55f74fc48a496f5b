"""A source that counts: `python -m tests.programs.counting_source VERB …`.

Record `n` of a stream is a version of the id `n % ids`. Its config: `last`, the number that it counts to;
`every`, the records between states; `delay`, the seconds that it waits at each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from connectors.sdk import Checkpoint, Stream, run
from connectors.sdk.items import Item
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from elt_assets.protocol.airbyte.sync_modes import APPEND, APPEND_DEDUP, OVERWRITE, OVERWRITE_DEDUP
from tests.programs.simple_source import SimpleSource

if TYPE_CHECKING:  # a program that tests start hundreds of times
    from tests.support.project import Project

IDS = 40
MODES = {
    APPEND: INCREMENTAL,
    APPEND_DEDUP: INCREMENTAL,
    OVERWRITE: FULL_REFRESH,
    OVERWRITE_DEDUP: FULL_REFRESH,
}


def counting(project: Project, name: str, **config: Any) -> None:
    """A connection to it, with a stream for each policy, which is its name."""
    streams: list[dict[str, Any]] = [
        {"name": policy, "sync_mode": mode, "destination_sync_mode": policy}
        for policy, mode in MODES.items()
    ]
    for stream in streams:
        if stream["name"] == APPEND_DEDUP:
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
    catalog = {"streams": [json.loads(each.describe().to_json()) for each in _streams({})]}
    (folder / "catalog.json").write_text(json.dumps(catalog))


def expected(policy: str, last: int) -> list[int]:
    """The numbers that its table must have in the end."""
    numbers = range(1, last + 1)
    if policy in (APPEND, OVERWRITE):
        return list(numbers)
    return sorted({number % IDS: number for number in numbers}.values())


class Numbers(Stream):
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "properties": {"n": {"type": "integer"}, "id": {"type": "integer"}},
    }
    primary_key = (("id",),)
    cursor_field = ("n",)
    source_defined_cursor = True
    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def __init__(self, name: str, config: dict[str, Any]):
        self.name = name
        self._config = config

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        first = 1 if state is None else int(state["n"]) + 1
        for number in range(first, self._config["last"] + 1):
            yield {"n": number, "id": number % IDS}
            if number % self._config["every"] == 0:
                yield Checkpoint({"n": number})
                time.sleep(self._config["delay"])


def _streams(config: dict[str, Any]) -> list[Stream]:
    return [Numbers(policy, config) for policy in MODES]


class Counter(SimpleSource):
    name = "counter"

    def streams(self, config: dict[str, Any]) -> Sequence[Stream]:
        return _streams(config)


if __name__ == "__main__":
    sys.exit(run(Counter(), sys.argv[1:]))
