"""The tables of the shop that it always has."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.faker.shop import INSTANT, INTEGER, NUMBER, STRING, Shop, ShopStream, schema
from connectors.sdk.items import Record

FIRST = ("Ada", "Ben", "Chloé", "Deniz", "Emeka", "Farah", "Goran", "Hana", "Inês", "Jūrō", "Kofi")
LAST = ("Abe", "Berg", "Costa", "Diallo", "Evans", "Fischer", "García", "Haddad", "Ito", "Öztürk")
STREETS = ("Main Street", "Church Lane", "Mill Road", "Station Road", "Harbour Street")
CITIES = ("Lisbon", "Łódź", "Osaka", "Accra", "Tromsø", "Quito", "Izmir", "Perth")
TAGS = ("newsletter", "wholesale", "vip", "beta")
GOODS = ("Lamp", "Chair", "Teapot", "Notebook", "Rug", "Mirror", "Clock", "Vase")
LOOKS = ("Red", "Oak", "Glass", "Folding", "Woven", "Small", "Antique")
CATEGORIES = ("home", "garden", "office", "gifts")


class Users(ShopStream):
    name = "users"
    json_schema = schema(
        id=INTEGER,
        **dict.fromkeys(("name", "email"), STRING),
        active={"type": "boolean"},
        address={"type": "object", "properties": dict.fromkeys(("street", "city", "zip"), STRING)},
        tags={"type": "array", "items": STRING},
        **dict.fromkeys(("created_at", "updated_at"), INSTANT),
    )

    def row(self, number: int, day: int) -> Record:
        first, last = self.random(number, "name", len(FIRST), len(LAST))
        domain, active, tags, house, street, city, code = self.random(
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
            "created_at": self.created_at(number),
        }


class Products(ShopStream):
    name = "products"
    json_schema = schema(id=INTEGER, name=STRING, category=STRING, price=NUMBER, updated_at=INSTANT)

    def row(self, number: int, day: int) -> Record:
        look, good, category = self.random(number, "name", len(LOOKS), len(GOODS), len(CATEGORIES))
        [percent] = self.random(number, day, 41)
        return {
            "id": number + 1,
            "name": f"{LOOKS[look]} {GOODS[good]}",
            "category": CATEGORIES[category],
            "price": self.list_price(number) * (80 + percent) // 100 / 100,
        }

    def list_price(self, number: int) -> int:
        """Return the list price in cents. The price on a day is up to 20 % higher or lower."""
        return 100 + self.random(number, "price", 20_000)[0]


class Orders(ShopStream):
    name = "orders"
    json_schema = schema(
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
        creation_day = self.creation_day(number)
        customers = self.users.created(0, max(0, creation_day - 1)).stop
        user, product, quantity = self.random(number, "order", customers, self.products.initial, 5)
        return {
            "id": number + 1,
            "user_id": user + 1,
            "product_id": product + 1,
            "quantity": quantity + 1,
            "amount": self.products.list_price(product) * (quantity + 1) / 100,
            "status": self._status(number, day - creation_day),
            "ordered_at": self.created_at(number),
        }

    def _list_changed(self, day: int) -> Sequence[int]:
        """Return the orders, among those that can still be open, whose status changes on this day."""
        recent = self.created(day - self.days_open, day - 1)
        ages = ((number, day - self.creation_day(number)) for number in recent)
        return [n for n, age in ages if self._status(n, age) != self._status(n, age - 1)]

    def _status(self, number: int, age: int) -> str:
        """Return the status at an age in days. It only moves forward, and is final within `days_open`."""
        outcome, payment, carrier = self.random(number, "life", 8, 3, 2)
        paid = 0 if payment else 1
        if age <= paid:
            return "paid" if age == paid else "placed"
        if outcome == 0:
            return "cancelled"
        return "shipped" if age <= paid + 1 + carrier else "delivered"
