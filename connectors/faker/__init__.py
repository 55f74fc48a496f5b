"""A source of generated data: a small shop whose data changes every day. The same seed gives the same data.

`python -m connectors.faker spec|check|discover|read …`. Each stream is a log of row versions, ordered by
`updated_at`. An incremental read is one day of the log: the first read is day 0, which contains the initial
rows. A read from a state at the end of a day reads the next day, on which rows are created (5 % of the
initial number) and changed (10 %).
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.faker.more_tables import more_tables
from connectors.faker.shop import Shop
from connectors.faker.tables import Orders, Products, Users
from connectors.sdk import Source, Stream


class Faker(Source):
    """The shop."""

    name = "faker"
    config_type = Shop

    def check(self, config: Shop) -> None:
        """Accept every valid config: there is nothing to reach."""

    def streams(self, config: Shop) -> Sequence[Stream]:
        users = Users(config, config.count)
        products = Products(config, max(config.count // 20, 10))
        orders = Orders(config, config.count * 2, users, products)
        return [users, products, orders, *(more_tables(config) if config.all_streams else ())]
