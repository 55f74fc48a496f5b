"""A little shop whose data change day by day, the same for everybody with the same seed.

`python -m connectors.faker spec|check|discover|read …`. Each stream is one log of row versions,
ordered by `updated_at`; an incremental read is the slice of it up to the shop's clock. The first
read stands at the end of day 0, which holds the initial rows; each read that finds its day complete
goes on to the next one, on which rows appear (5 % of the initial number) and rows change (10 %).
"""

from __future__ import annotations

import random
import sys
import time
from abc import abstractmethod
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
    seed=_setting("The same seed gives the same shop", "integer", default=42),
    start=_setting("Opening time", "string", pattern=DATE_TIME, default="2026-01-01T00:00:00Z"),
    records_per_state=_setting("Records between checkpoints", "integer", minimum=1, default=500),
    days=_setting("Days until the shop closes for good; without it, never", "integer", minimum=1),
    delay_ms=_setting("Milliseconds to wait at a checkpoint", "number", minimum=0, default=0),
    api_key=_setting("Not used; shows how secrets are handled", "string", airbyte_secret=True),
)
SETTINGS: dict[str, Any] = SPECIFICATION["properties"]
SPECIFICATION["additionalProperties"] = False
SPECIFICATION["title"] = "A little shop whose data change day by day"


@dataclass(frozen=True)
class Shop:
    """The config, parsed. `start` is in UTC, without a zone."""

    count: int
    seed: int
    start: datetime
    records_per_state: int
    delay_ms: float
    days: int | None = None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Shop:
        """Raises: ConfigError: `start` is no date."""
        known = {name: rules.get("default") for name, rules in SETTINGS.items()} | config
        try:
            start = _instant(known["start"])
        except ValueError as error:
            raise ConfigError(f"start: {error}") from error
        whole = {name: int(known[name]) for name in ("count", "seed", "records_per_state")}
        days = None if known["days"] is None else int(known["days"])
        return cls(start=start, delay_ms=known["delay_ms"], days=days, **whole)

    def instant(self, microseconds: int) -> str:
        """The time so long after the start, always with six decimals: as text it sorts as it is."""
        moment = self.start + microseconds * MICROSECOND
        return moment.isoformat(timespec="microseconds") + "Z"


class ShopStream(Stream):
    """One table of the shop. Rows are numbered from 0 in the order of birth; `id` is one more.

    Days before 0 have no log, but births: the initial rows were born on the twenty or so days that
    end with day 0, so the shop begins in its steady state. A row changes at most once a day, so
    that its content follows from its number and the day: no history is replayed.
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
        """The row as it is since `day`, but for `updated_at`."""

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """A full refresh is day 0 alone, from where its state says.

        Raises: ConfigError: the state is not of this shop.
        """
        day, after = (0, 0) if state is None else self._position(state)
        if state is not None and self._is_over(configured, day):
            yield Checkpoint(state)
            return
        log = self._log(day)
        size, opening, clock = len(log), day * DAY_US, self.shop.instant((day + 1) * DAY_US)
        # Event i happens at (i + 1) / size of the day: the last one when the clock strikes.
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

    def has_news(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> bool:
        return not self._is_over(configured, 0 if state is None else self._position(state)[0])

    def _is_over(self, configured: ConfiguredStream, day: int) -> bool:
        """Whether nothing happens on a day that a read could yield."""
        last = 1 if configured.sync_mode == FULL_REFRESH else self.shop.days
        return last is not None and day >= last

    def _position(self, state: dict[str, Any]) -> tuple[int, int]:
        """The day to read, and after which of its microseconds."""
        try:
            clock, updated_at = _instant(state["clock"]), _instant(state["updated_at"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._foreign(state) from None
        days, rest = divmod(clock - self.shop.start, DAY)
        if rest or days < 1 or updated_at > clock:
            raise self._foreign(state)
        if updated_at == clock:
            return days, 0
        return days - 1, max(0, (updated_at - clock + DAY) // MICROSECOND)

    def _foreign(self, state: dict[str, Any]) -> ConfigError:
        message = f"the state of stream {self.name!r} is of another shop or `start`: {state}"
        return ConfigError(message, guidance="reset the state, or set `start` back to what it was")

    def _log(self, day: int) -> Sequence[int]:
        """The numbers of the rows that appear or change on a day, in that order of events."""
        if day == 0:
            return range(self.initial)
        changed, born = self._changed(day), self.born(day, day)
        # An even mix of both. On a tie the older row is first: see `_created`.
        mix = [(n / len(rows), row) for rows in (changed, born) for n, row in enumerate(rows, 1)]
        return [row for _, row in sorted(mix)]

    def _changed(self, day: int) -> Sequence[int]:
        dice = random.Random(f"{self.shop.seed}:{self.name}:{day}")
        return dice.sample(range(self.born(0, day - 1).stop), max(1, round(self.initial / 10)))

    def born(self, first: int, last: int) -> range:
        """The rows born on these days, both included."""
        start = self.initial + (first - 1) * self.daily
        return range(max(0, start), self.initial + last * self.daily)

    def _birthday(self, number: int) -> int:
        return (number - self.initial) // self.daily + 1

    def _created(self, number: int) -> str:
        """Births are spread evenly over their day, and never later than their event."""
        return self.shop.instant((number - self.initial + self.daily) * DAY_US // self.daily)

    def _roll(self, number: int, version: int | str, *sides: int) -> list[int]:
        """One number below each of `sides`: always the same for the same row and version."""
        key = f"{self.shop.seed}:{self.name}:{number}:{version}".encode()
        pool = int.from_bytes(blake2b(key, digest_size=16).digest(), "big")
        rolls = []
        for side in sides:
            pool, roll = divmod(pool, side)
            rolls.append(roll)
        return rolls


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
        first, last = self._roll(number, "name", len(FIRST), len(LAST))
        domain, active, tags, house, street, city, code = self._roll(
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
            "created_at": self._created(number),
        }


class Products(ShopStream):
    name = "products"
    json_schema = _schema(
        id=INTEGER, name=STRING, category=STRING, price=NUMBER, updated_at=INSTANT
    )

    def row(self, number: int, day: int) -> Record:
        look, good, category = self._roll(number, "name", len(LOOKS), len(GOODS), len(CATEGORIES))
        [percent] = self._roll(number, day, 41)
        return {
            "id": number + 1,
            "name": f"{LOOKS[look]} {GOODS[good]}",
            "category": CATEGORIES[category],
            "price": self.list_price(number) * (80 + percent) // 100 / 100,
        }

    def list_price(self, number: int) -> int:
        """In cents; what is asked on a day is up to 20 % more or less."""
        return 100 + self._roll(number, "price", 20_000)[0]


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
        birthday = self._birthday(number)
        customers = self.users.born(0, max(0, birthday - 1)).stop
        user, product, quantity = self._roll(number, "order", customers, self.products.initial, 5)
        return {
            "id": number + 1,
            "user_id": user + 1,
            "product_id": product + 1,
            "quantity": quantity + 1,
            "amount": self.products.list_price(product) * (quantity + 1) / 100,
            "status": self._status(number, day - birthday),
            "ordered_at": self._created(number),
        }

    def _changed(self, day: int) -> Sequence[int]:
        """The orders, among those that can still be open, whose status moves on this day."""
        recent = self.born(day - self.days_open, day - 1)
        ages = ((number, day - self._birthday(number)) for number in recent)
        return [n for n, age in ages if self._status(n, age) != self._status(n, age - 1)]

    def _status(self, number: int, age: int) -> str:
        """At an age in days: it only ever goes forward, and ends within `days_open`."""
        luck, payment, carrier = self._roll(number, "life", 8, 3, 2)
        paid = 0 if payment else 1
        if age <= paid:
            return "paid" if age == paid else "placed"
        if luck == 0:
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
