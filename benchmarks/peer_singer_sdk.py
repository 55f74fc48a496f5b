# mypy: ignore-errors
"""The same stream as `sdk_source` has, on the SDK of Meltano: `python peer_singer_sdk.py --config FILE`."""

import datetime as dt

from singer_sdk import Stream, Tap
from singer_sdk import typing as th

BASE = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)


class Orders(Stream):
    name = "orders"
    primary_keys = ("id",)
    replication_key = "updated_at"
    is_sorted = True
    schema = th.PropertiesList(
        th.Property("id", th.IntegerType),
        th.Property("name", th.StringType),
        th.Property("email", th.StringType),
        th.Property("amount", th.NumberType),
        th.Property("updated_at", th.DateTimeType),
        th.Property(
            "meta",
            th.ObjectType(th.Property("a", th.IntegerType), th.Property("b", th.StringType)),
        ),
    ).to_dict()

    @property
    def partitions(self):
        number = self.config["partitions"]
        return [{"part": part} for part in range(number)] if number else None

    def get_records(self, context):
        for i in range(self.config["records"] // (self.config["partitions"] or 1)):
            yield {
                "id": i,
                "name": f"n{i}",
                "email": f"u{i}@example.com",
                "amount": i * 1.5,
                "updated_at": (BASE + dt.timedelta(seconds=i * 30)).isoformat(),
                "meta": {"a": 1, "b": "x"},
            }


class Bench(Tap):
    name = "tap-bench"
    config_jsonschema = th.PropertiesList(
        th.Property("records", th.IntegerType), th.Property("partitions", th.IntegerType)
    ).to_dict()

    def discover_streams(self):
        return [Orders(self)]


if __name__ == "__main__":
    Bench.cli()
