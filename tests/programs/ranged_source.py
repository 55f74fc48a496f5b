"""A source with a stream for each way to say what is read: `python -m tests.programs.ranged_source VERB …`.

Its config: `lookback`: whether there is also a stream that looks back, whose rows come again in each sync.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from connectors.sdk import Context, Record, Stream, run
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
    filters_records = True
    is_resumable = True

    def records(self, context: Context | None, start: Any) -> Iterator[Record]:
        store = (context or {}).get("store")
        rows = [dict(order) for order in ORDERS if store in (None, order["store"])]
        if self.is_sorted or self.is_descending:
            rows.sort(key=lambda row: str(row["at"]), reverse=self.is_descending)
        yield from rows


class Sorted(Orders):
    name, is_sorted, STATE_MSG_FREQUENCY = "sorted", True, 4


class Newest(Orders):
    name, is_descending, STATE_MSG_FREQUENCY = "newest", True, 4


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
    filters_records = True
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "properties": {"id": TEXT, "changed": {"type": "integer"}, "city": TEXT},
    }

    def records(self, context: Context | None, start: Any) -> Iterator[Record]:
        for number, store in enumerate(STORES):
            yield {"id": store, "changed": number, "city": f"city of {store}"}

    def get_child_context(self, record: Record, context: Context | None) -> Context:
        return {"store": record["id"]}


class OfStores(Orders):
    name, only_changed_parents, missing_keys = "of_stores", True, "error"
    parent_fields: Mapping[str, str] = {"city": "store_city"}
    partitions = Stream.partitions


class AllOfStores(OfStores):
    """The orders of changed stores, all of them: they have no time that a sync could begin at."""

    name, replication_key, filters_records, is_resumable = "all_of_stores", None, False, False


class Ranged(SimpleSource):
    name = "ranged"

    def streams(self, config: Mapping[str, Any]) -> list[Stream]:
        stores, children = Stores(), [OfStores(), AllOfStores()]
        for child in children:
            child.parent = stores
        kinds = [Orders, Sorted, Newest, Stepped, Days, NewestSteps, ByStore]
        late = [Late()] if config.get("lookback") else []
        return [*(kind() for kind in kinds), *late, stores, *children]


if __name__ == "__main__":
    sys.exit(run(Ranged(), sys.argv[1:]))
