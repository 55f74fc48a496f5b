"""The stream that `sdk` measures, on our SDK: `python -m benchmarks.sdk_source --config FILE`.

Config: `records` in all; `partitions`, 0 for a stream without. `peer_singer_sdk` has the same stream.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from connectors.sdk import Source, Stream, Window, run
from connectors.sdk.items import Context, Record

BASE = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
Config = Mapping[str, int]


class Orders(Stream):
    name = "orders"
    primary_key = ("id",)
    replication_key = "updated_at"
    order = "ascending"
    json_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string"},
            "email": {"type": "string"},
            "amount": {"type": "number"},
            "updated_at": {"type": "string", "format": "date-time"},
            "meta": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
            },
        },
    }

    def __init__(self, config: Config):
        self.config = config

    def partitions(self) -> Iterable[Context] | None:
        number = self.config["partitions"]
        return ({"part": part} for part in range(number)) if number else None

    def records(self, window: Window) -> Iterator[Record]:
        for i in range(self.config["records"] // (self.config["partitions"] or 1)):
            yield {
                "id": i,
                "name": f"n{i}",
                "email": f"u{i}@example.com",
                "amount": i * 1.5,
                "updated_at": (BASE + dt.timedelta(seconds=i * 30)).isoformat(),
                "meta": {"a": 1, "b": "x"},
            }


class Bench(Source):
    name = "bench"

    def check(self, config: Config) -> None:
        """Succeed: this source needs no connection."""

    def streams(self, config: Config) -> Sequence[Stream]:
        return [Orders(config)]


if __name__ == "__main__":
    sys.exit(run(Bench(), sys.argv[1:]))
