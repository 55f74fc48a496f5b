"""The source on our SDK that has the streams of `sdk_tap`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from connectors.sdk import Parent, Source, Stream, Window, run
from connectors.sdk.items import Context, Record

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": ["integer", "null"]},
        "storeId": {"type": ["integer", "null"]},
        "updatedAt": {"type": ["string", "null"], "format": "date-time"},
    },
}


class Config(BaseModel):
    days: list[int] = []
    fail_after: int | None = None
    stream: str | None = None


class Days(Stream):
    primary_key = ("id",)
    replication_key = "updatedAt"
    json_schema = SCHEMA
    STATE_MSG_FREQUENCY = 1

    def __init__(self, config: Config):
        self.config = config

    def records(self, window: Window) -> Iterator[Record]:
        for number, day in enumerate(self.config.days):
            if number == self.config.fail_after:
                raise RuntimeError("as the config demands")
            at = f"2021-01-{day:02}T00:00:00Z"
            if window.start is None or at >= window.start:
                yield {"id": day, "storeId": window.partition.get("storeId", 0), "updatedAt": at}


class Sorted(Days):
    name = "sorted"
    order = "ascending"


class Unsorted(Days):
    name = "unsorted"


class Partitioned(Days):
    name = "partitioned"

    def partitions(self) -> Iterable[Context]:
        return [{"storeId": 1}, {"storeId": 2}]


class Stores(Days):
    name = "stores"
    replication_key = None  # type: ignore[assignment]

    def records(self, window: Window) -> Iterator[Record]:
        yield from ({"id": 1}, {"id": 2})


class Orders(Days):
    name = "orders"

    def __init__(self, config: Config):
        super().__init__(config)
        self.parent = Parent(Stores(config), fields={"id": "storeId"})


class DaysSource(Source):
    name = "source-days"
    config_type = Config

    def check(self, config: Config) -> None:
        """Accept every valid config."""

    def streams(self, config: Config) -> Sequence[Stream]:
        found = [
            Sorted(config),
            Unsorted(config),
            Partitioned(config),
            Stores(config),
            Orders(config),
        ]
        family = {"orders": ("stores", "orders")}.get(config.stream or "", (config.stream,))
        return [stream for stream in found if stream.name in family]


if __name__ == "__main__":
    sys.exit(run(DaysSource(), sys.argv[1:]))
