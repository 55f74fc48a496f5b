"""The tables of the shop that show what sources can have: deletes, late records, many columns, nested
objects, partitions, and a parent with its child.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from connectors.faker.shop import INSTANT, INTEGER, NUMBER, STRING, Shop, ShopStream, schema
from connectors.faker.tables import CITIES
from connectors.sdk import Parent, Stream, Window
from connectors.sdk.items import Context, Record
from elt_assets.protocol.catalog import DELETED_AT

COLUMNS = 200
REGIONS = ("east", "north", "south", "west")


class Subscriptions(ShopStream):
    """Rows that are deleted within twenty days: the delete marker is the time."""

    name = "subscriptions"
    json_schema = schema(
        id=INTEGER,
        plan=STRING,
        **{DELETED_AT: {**INSTANT, "type": ["string", "null"]}},
        **dict.fromkeys(("created_at", "updated_at"), INSTANT),
    )
    days_of_life = 20

    def row(self, number: int, day: int) -> Record:
        [plan] = self.random(number, "plan", 3)
        end = self._end(number)
        return {
            "id": number + 1,
            "plan": ("free", "basic", "team")[plan],
            "created_at": self.created_at(number),
            DELETED_AT: self.shop.time(end * 86_400_000_000) if day >= end else None,
        }

    def _list_changed(self, day: int) -> Sequence[int]:
        recent = self.created(day - self.days_of_life, day - 1)
        return [number for number in recent if self._end(number) == day]

    def _end(self, number: int) -> int:
        [age] = self.random(number, "end", self.days_of_life)
        return self.creation_day(number) + 1 + age


class Shipments(ShopStream):
    """Rows that partly arrive late. Each day ends with versions of the day before, and those are older than
    the versions that came first."""

    name = "shipments"
    order = None
    json_schema = schema(
        id=INTEGER,
        place=STRING,
        **dict.fromkeys(("created_at", "updated_at"), INSTANT),
    )

    def row(self, number: int, day: int) -> Record:
        [place] = self.random(number, day, len(CITIES))
        return {
            "id": number + 1,
            "place": CITIES[place],
            "created_at": self.created_at(number),
        }

    def max_bookmark(self, partition: Context) -> None:
        """Return no limit: the shop's time is not the present."""

    def _day(self, day: int, after: int) -> Iterator[Record]:
        yield from super()._day(day, after)
        if day and not after:
            yield from list(super()._day(day - 1, 0))[::10]

    def _count(self, day: int, after: int) -> int:
        late = -(-len(self._log(day - 1)) // 10) if day and not after else 0
        return super()._count(day, after) + late


class Measurements(ShopStream):
    """Rows with ten values each, in a table of 200 columns."""

    name = "measurements"
    json_schema = schema(
        id=INTEGER, **{f"value_{n}": NUMBER for n in range(COLUMNS)}, updated_at=INSTANT
    )

    def row(self, number: int, day: int) -> Record:
        limits = [COLUMNS, 1000] * 10
        measured = self.random(number, day, *limits)
        values = {f"value_{n}": v / 10 for n, v in zip(measured[::2], measured[1::2], strict=True)}
        return {"id": number + 1, **values}


class Profiles(ShopStream):
    """Rows of nested objects and lists."""

    name = "profiles"
    json_schema = schema(
        id=INTEGER,
        contact={
            "type": "object",
            "properties": {
                "address": {
                    "type": "object",
                    "properties": {"city": STRING, "position": {"type": "array", "items": NUMBER}},
                },
                "phones": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"kind": STRING, "number": STRING}},
                },
            },
        },
        updated_at=INSTANT,
    )

    def row(self, number: int, day: int) -> Record:
        city, east, north, phones, phone = self.random(number, day, len(CITIES), 360, 180, 3, 10**6)
        numbers = [{"kind": f"line {n + 1}", "number": f"+{phone + n:09}"} for n in range(phones)]
        position = [east - 180.5, north - 90.5]
        address = {"city": CITIES[city], "position": position}
        return {"id": number + 1, "contact": {"address": address, "phones": numbers}}


class Visits(ShopStream):
    """Rows of four regions. Each region is a partition, and has a log of its own."""

    name = "visits"
    primary_key = ("region", "id")
    json_schema = schema(region=STRING, id=INTEGER, pages=INTEGER, updated_at=INSTANT)

    def partitions(self) -> Iterable[Context]:
        return [{"region": region} for region in REGIONS]

    def records(self, window: Window) -> Iterator[Record]:
        part = _Visits(self.shop, self.initial, f"visits:{window.partition['region']}")
        return part.records(window)

    def row(self, number: int, day: int) -> Record:
        [pages] = self.random(number, day, 50)
        return {"id": number + 1, "pages": pages + 1}


class _Visits(Visits):
    """The visits of one region."""

    records = ShopStream.records


class Stores(Stream):
    """The stores. Each store is a partition of the inventory."""

    name = "stores"
    primary_key = ("id",)
    json_schema = schema(id=INTEGER, city=STRING)

    def __init__(self, count: int):
        self._count = count

    def records(self, window: Window) -> Iterator[Record]:
        for number in range(self._count):
            yield {"id": number + 1, "city": CITIES[number % len(CITIES)]}


class Inventory(ShopStream):
    """The products in each store: a child stream, with a bookmark for each store."""

    name = "inventory"
    primary_key = ("store_id", "id")
    parent = Parent(Stores, fields={"id": "store_id"})
    json_schema = schema(store_id=INTEGER, id=INTEGER, quantity=INTEGER, updated_at=INSTANT)

    def records(self, window: Window) -> Iterator[Record]:
        part = _Inventory(self.shop, self.initial, f"inventory:{window.partition['store_id']}")
        return part.records(window)

    def row(self, number: int, day: int) -> Record:
        [quantity] = self.random(number, day, 100)
        return {"id": number + 1, "quantity": quantity}


class _Inventory(Inventory):
    """The products in one store."""

    records = ShopStream.records


def more_tables(shop: Shop) -> list[Stream]:
    """Return the tables that a shop has with `all_streams`."""
    return [
        Subscriptions(shop, shop.count),
        Shipments(shop, shop.count),
        Measurements(shop, shop.count),
        Profiles(shop, shop.count),
        Visits(shop, max(1, shop.count // 4)),
        Stores(max(2, shop.count // 500)),
        Inventory(shop, 20),
    ]
