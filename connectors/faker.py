"""A source of generated data: a small shop whose data changes every day. The same seed gives the same data.

`python -m connectors.faker spec|check|discover|read …`. Each stream is a log of row versions, ordered by
`updated_at`. An incremental read is the slice of the log up to the shop's clock. The first read ends at the
end of day 0, which contains the initial rows. A read from a state at the end of a day reads the next day, on
which rows are created (5 % of the initial number) and changed (10 %).
"""

from __future__ import annotations

import random
import sys
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from connectors.sdk import Checkpoint, Estimate, Item, Record, Source, Stream, run
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
DAY_US = DAY // MICROSECOND

FIRST = ("Ada", "Ben", "Chloé", "Deniz", "Emeka", "Farah", "Goran", "Hana", "Inês", "Jūrō", "Kofi")
LAST = ("Abe", "Berg", "Costa", "Diallo", "Evans", "Fischer", "García", "Haddad", "Ito", "Öztürk")
STREETS = ("Main Street", "Church Lane", "Mill Road", "Station Road", "Harbour Street")
CITIES = ("Lisbon", "Łódź", "Osaka", "Accra", "Tromsø", "Quito", "Izmir", "Perth")
TAGS = ("newsletter", "wholesale", "vip", "beta")
GOODS = ("Lamp", "Chair", "Teapot", "Notebook", "Rug", "Mirror", "Clock", "Vase")
LOOKS = ("Red", "Oak", "Glass", "Folding", "Woven", "Small", "Antique")
CATEGORIES = ("home", "garden", "office", "gifts")
DRAFT = "http://json-schema.org/draft-07/schema#"
DATE_TIME = r"^(19|20)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$"
STRING, INTEGER, NUMBER = ({"type": kind} for kind in ("string", "integer", "number"))
INSTANT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}


def _schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DRAFT, "type": "object", "properties": properties}


def _setting(title: str, kind: str, **rules: Any) -> dict[str, Any]:
    return {"title": title, "type": kind, **rules}


SPECIFICATION = _schema(
    count=_setting("Users at the start", "integer", minimum=1, maximum=1_000_000_000, default=1000),
    seed=_setting("The same seed gives the same data", "integer", default=42),
    start=_setting("Start of day 0", "string", pattern=DATE_TIME, default="2026-01-01T00:00:00Z"),
    records_per_state=_setting("Records between checkpoints", "integer", minimum=1, default=500),
    days=_setting("Number of days with events; by default without end", "integer", minimum=1),
    delay_ms=_setting("Milliseconds to wait at a checkpoint", "number", minimum=0, default=0),
    api_key=_setting("Not used; shows how secrets are handled", "string", airbyte_secret=True),
)
SETTINGS: dict[str, Any] = SPECIFICATION["properties"]
SPECIFICATION["additionalProperties"] = False
SPECIFICATION["title"] = "A small shop whose data changes every day"


@dataclass(frozen=True)
class Shop:
    """The parsed config. `start` is in UTC, without a zone."""

    count: int
    seed: int
    start: datetime
    records_per_state: int
    delay_ms: float
    days: int | None = None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Shop:
        """Return the parsed config. Raise ConfigError if `start` is not a date."""
        known = {name: rules.get("default") for name, rules in SETTINGS.items()} | config
        try:
            start = _instant(known["start"])
        except ValueError as error:
            raise ConfigError(f"start: {error}") from error
        whole = {name: int(known[name]) for name in ("count", "seed", "records_per_state")}
        days = None if known["days"] is None else int(known["days"])
        return cls(start=start, delay_ms=known["delay_ms"], days=days, **whole)

    def instant(self, microseconds: int) -> str:
        """Return the time after the start, always with six decimals, so that it sorts as text."""
        moment = self.start + microseconds * MICROSECOND
        return moment.isoformat(timespec="microseconds") + "Z"


class ShopStream(Stream, ABC):
    """One table of the shop. Rows are numbered from 0 in the order of their creation; `id` is one more.

    Days before day 0 have no log, but rows are created on them: the initial rows are created on the about
    twenty days that end with day 0, so the shop starts in its steady state. A row changes at most once a
    day, so that its content depends only on its number and the day, and no history is replayed.
    """

    primary_key = (("id",),)
    cursor_field = ("updated_at",)
    source_defined_cursor = True
    is_resumable = True
    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def __init__(self, shop: Shop, initial: int):
        self.shop = shop
        self.initial = initial
        self.daily = max(1, round(initial / 20))

    @abstractmethod
    def row(self, number: int, day: int) -> Record:
        """Return the row as it is since `day`, without `updated_at`."""

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """Yield one day, from the position of the state. A full refresh reads only day 0.

        Raises:
            ConfigError: the state is not of this shop.
        """
        day, after = (0, 0) if state is None else self._position(state)
        if state is not None and self._is_over(configured, day):
            yield Checkpoint(state)
            return
        log = self._log(day)
        size, opening, clock = len(log), day * DAY_US, self.shop.instant((day + 1) * DAY_US)
        # Event i happens at (i + 1) / size of the day: the last one at the end of the day.
        first = bisect_right(range(size), after, key=lambda i: (i + 1) * DAY_US // size)
        yield Estimate(rows=size - first)
        for i in range(first, size):
            record = self.row(log[i], day)
            record["updated_at"] = self.shop.instant(opening + (i + 1) * DAY_US // size)
            yield record
            if (i + 1 - first) % self.shop.records_per_state == 0 and i + 1 < size:
                yield Checkpoint({"updated_at": record["updated_at"], "clock": clock})
                time.sleep(self.shop.delay_ms / 1000)
        yield Checkpoint({"updated_at": clock, "clock": clock})

    def has_new_data(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> bool:
        return not self._is_over(configured, 0 if state is None else self._position(state)[0])

    def _is_over(self, configured: ConfiguredStream, day: int) -> bool:
        """Return whether a read finds no events on `day` or later."""
        last = 1 if configured.sync_mode == FULL_REFRESH else self.shop.days
        return last is not None and day >= last

    def _position(self, state: dict[str, Any]) -> tuple[int, int]:
        """Return the day to read, and the microsecond of that day after which to read."""
        try:
            clock, updated_at = _instant(state["clock"]), _instant(state["updated_at"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._foreign_state(state) from None
        days, rest = divmod(clock - self.shop.start, DAY)
        if rest or days < 1 or updated_at > clock:
            raise self._foreign_state(state)
        if updated_at == clock:
            return days, 0
        return days - 1, max(0, (updated_at - clock + DAY) // MICROSECOND)

    def _foreign_state(self, state: dict[str, Any]) -> ConfigError:
        message = f"the state of stream {self.name!r} belongs to another shop or `start`: {state}"
        return ConfigError(message, guidance="reset the state, or restore the previous `start`")

    def _log(self, day: int) -> Sequence[int]:
        """Return the numbers of the rows that are created or changed on a day, in the order of events."""
        if day == 0:
            return range(self.initial)
        changed, created = self._changed(day), self.created(day, day)
        # Both are mixed evenly. Of two rows at the same time, the older one is first: see `_created_at`.
        mix = [(n / len(rows), row) for rows in (changed, created) for n, row in enumerate(rows, 1)]
        return [row for _, row in sorted(mix)]

    def _changed(self, day: int) -> Sequence[int]:
        rng = random.Random(f"{self.shop.seed}:{self.name}:{day}")
        return rng.sample(range(self.created(0, day - 1).stop), max(1, round(self.initial / 10)))

    def created(self, first: int, last: int) -> range:
        """Return the rows that are created on these days, both included."""
        start = self.initial + (first - 1) * self.daily
        return range(max(0, start), self.initial + last * self.daily)

    def _creation_day(self, number: int) -> int:
        return (number - self.initial) // self.daily + 1

    def _created_at(self, number: int) -> str:
        """Return the creation time of a row: times are spread evenly over a day, never after the event."""
        return self.shop.instant((number - self.initial + self.daily) * DAY_US // self.daily)

    def _random(self, number: int, version: int | str, *limits: int) -> list[int]:
        """Return a number below each of `limits`, always the same ones for the same row and version."""
        key = f"{self.shop.seed}:{self.name}:{number}:{version}".encode()
        pool = int.from_bytes(blake2b(key, digest_size=16).digest(), "big")
        values = []
        for limit in limits:
            pool, value = divmod(pool, limit)
            values.append(value)
        return values


class Users(ShopStream):
    name = "users"
    json_schema = _schema(
        id=INTEGER,
        **dict.fromkeys(("name", "email"), STRING),
        active={"type": "boolean"},
        address={"type": "object", "properties": dict.fromkeys(("street", "city", "zip"), STRING)},
        tags={"type": "array", "items": STRING},
        **dict.fromkeys(("created_at", "updated_at"), INSTANT),
    )

    def row(self, number: int, day: int) -> Record:
        first, last = self._random(number, "name", len(FIRST), len(LAST))
        domain, active, tags, house, street, city, code = self._random(
            number, day, 3, 10, 1 << len(TAGS), 200, len(STREETS), len(CITIES), 100_000
        )
        return {
            "id": number + 1,
            "name": f"{FIRST[first]} {LAST[last]}",
            "email": f"user{number + 1}@example.{('com', 'net', 'org')[domain]}",
            "active": active > 0,
            "address": {"street": f"{house + 1} {STREETS[street]}"}
            | {"city": CITIES[city], "zip": f"{code:05}"},
            "tags": [tag for i, tag in enumerate(TAGS) if tags >> i & 1],
            "created_at": self._created_at(number),
        }


class Products(ShopStream):
    name = "products"
    json_schema = _schema(
        id=INTEGER, name=STRING, category=STRING, price=NUMBER, updated_at=INSTANT
    )

    def row(self, number: int, day: int) -> Record:
        look, good, category = self._random(number, "name", len(LOOKS), len(GOODS), len(CATEGORIES))
        [percent] = self._random(number, day, 41)
        return {
            "id": number + 1,
            "name": f"{LOOKS[look]} {GOODS[good]}",
            "category": CATEGORIES[category],
            "price": self.list_price(number) * (80 + percent) // 100 / 100,
        }

    def list_price(self, number: int) -> int:
        """Return the list price in cents. The price on a day is up to 20 % higher or lower."""
        return 100 + self._random(number, "price", 20_000)[0]


class Orders(ShopStream):
    name = "orders"
    json_schema = _schema(
        **dict.fromkeys(("id", "user_id", "product_id", "quantity"), INTEGER),
        amount=NUMBER,
        status=STRING | {"enum": ["placed", "paid", "shipped", "delivered", "cancelled"]},
        **dict.fromkeys(("ordered_at", "updated_at"), INSTANT),
    )
    days_open = 4

    def __init__(self, shop: Shop, initial: int, users: Users, products: Products):
        super().__init__(shop, initial)
        self.users = users
        self.products = products

    def row(self, number: int, day: int) -> Record:
        creation_day = self._creation_day(number)
        customers = self.users.created(0, max(0, creation_day - 1)).stop
        user, product, quantity = self._random(number, "order", customers, self.products.initial, 5)
        return {
            "id": number + 1,
            "user_id": user + 1,
            "product_id": product + 1,
            "quantity": quantity + 1,
            "amount": self.products.list_price(product) * (quantity + 1) / 100,
            "status": self._status(number, day - creation_day),
            "ordered_at": self._created_at(number),
        }

    def _changed(self, day: int) -> Sequence[int]:
        """Return the orders, among those that can still be open, whose status changes on this day."""
        recent = self.created(day - self.days_open, day - 1)
        ages = ((number, day - self._creation_day(number)) for number in recent)
        return [n for n, age in ages if self._status(n, age) != self._status(n, age - 1)]

    def _status(self, number: int, age: int) -> str:
        """Return the status at an age in days. It only moves forward, and is final within `days_open`."""
        outcome, payment, carrier = self._random(number, "life", 8, 3, 2)
        paid = 0 if payment else 1
        if age <= paid:
            return "paid" if age == paid else "placed"
        if outcome == 0:
            return "cancelled"
        return "shipped" if age <= paid + 1 + carrier else "delivered"


class Faker(Source):
    name = "faker"
    connection_specification = SPECIFICATION

    def check(self, config: dict[str, Any]) -> None:
        Shop.from_config(config)

    def streams(self, config: dict[str, Any]) -> Sequence[Stream]:
        shop = Shop.from_config(config)
        users = Users(shop, shop.count)
        products = Products(shop, max(shop.count // 20, 10))
        return [users, products, Orders(shop, shop.count * 2, users, products)]


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment.replace(tzinfo=None) - (moment.utcoffset() or timedelta())


if __name__ == "__main__":
    sys.exit(run(Faker(), sys.argv[1:]))
