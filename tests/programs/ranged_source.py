"""A source with a stream for each way to say what is read: `python -m tests.programs.ranged_source VERB …`.

Its config: `lookback`: whether there is also a stream that looks back, whose rows come again in each sync.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from connectors.sdk import Parent, Stream, Window, run
from connectors.sdk.items import Context, Record
from tests.programs.simple_source import SimpleSource

STORES = ("a", "b", "c")
ORDERS: list[Record] = [
    {
        "id": number,
        "store": STORES[number % 7 % 3],
        "at": f"2024-01-{number + 1:02}T{number % 24:02}:00:00Z",
        "day": f"2024-01-{number + 1:02}",
    }
    for number in range(30)
]
"""Some of the same day, so that a bookmark has several records."""
ORDERS += [{**order, "id": order["id"] + 100} for order in ORDERS[::4]]
TEXT = {"type": "string"}


class Orders(Stream):
    """The orders, by their time."""

    name = "unsorted"
    primary_key = ("id",)
    replication_key: str | None = "at"
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "store": TEXT,
            "at": {**TEXT, "format": "date-time"},
            "day": {**TEXT, "format": "date"},
        },
    }
    is_resumable = True

    def records(self, window: Window) -> Iterator[Record]:
        store = window.partition.get("store")
        end = window.end or "9"
        rows = [
            dict(order) for order in ORDERS if store in (None, order["store"]) and order["at"] < end
        ]
        if self.order is not None:
            rows.sort(key=lambda row: str(row["at"]), reverse=self.order == "descending")
        yield from rows


class Sorted(Orders):
    name, order, STATE_MSG_FREQUENCY = "sorted", "ascending", 4


class Newest(Orders):
    name, order, STATE_MSG_FREQUENCY = "newest", "descending", 4


class Stepped(Orders):
    name, step, start_date = "stepped", "P7D", "2024-01-01T00:00:00Z"
    end_date = "2024-02-01T00:00:00Z"


class Days(Stepped):
    name, step, replication_key, start_date = "days", "P1M", "day", "2023-12-31"


class NewestSteps(Newest):
    name, step, start_date, end_date = "newest_steps", "P10D", "2024-01-01T00:00:00Z", "2024-01-31"


class ByStore(Sorted):
    name, concurrency = "by_store", 3

    def partitions(self) -> Iterable[Context]:
        return [{"store": store} for store in STORES]


class Late(Sorted):
    name, lookback = "late", "P3D"


class Stores(Stream):
    name = "stores"
    primary_key = ("id",)
    replication_key = "changed"
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "properties": {"id": TEXT, "changed": {"type": "integer"}, "city": TEXT},
    }

    def records(self, window: Window) -> Iterator[Record]:
        for number, store in enumerate(STORES):
            yield {"id": store, "changed": number, "city": f"city of {store}"}


class OfStores(Orders):
    name, missing_keys = "of_stores", "error"
    parent = Parent(Stores, fields={"id": "store", "city": "store_city"}, only_changed=True)


class AllOfStores(OfStores):
    """The orders of changed stores, all of them: they have no time that a sync could begin at."""

    name, replication_key, is_resumable = "all_of_stores", None, False


class Ranged(SimpleSource):
    name = "ranged"

    def streams(self, config: Mapping[str, Any]) -> list[Stream]:
        kinds = [Orders, Sorted, Newest, Stepped, Days, NewestSteps, ByStore]
        late = [Late()] if config.get("lookback") else []
        return [*(kind() for kind in kinds), *late, Stores(), OfStores(), AllOfStores()]


if __name__ == "__main__":
    sys.exit(run(Ranged(), sys.argv[1:]))
