# mypy: ignore-errors
"""A tap on the SDK of Meltano, which runs in an environment of its own: its states are exchanged with those
of `sdk_source`, which has the same streams.

Usage: `python sdk_tap.py --config FILE [--state FILE] [--catalog FILE]`. Config: `days`, the days of the
records in the order in which they come; `fail_after`, the number of records after which a stream fails.
"""

from singer_sdk import Stream, Tap
from singer_sdk import typing as th

SCHEMA = th.PropertiesList(
    th.Property("id", th.IntegerType),
    th.Property("storeId", th.IntegerType),
    th.Property("updatedAt", th.DateTimeType),
).to_dict()


class Days(Stream):
    primary_keys = ("id",)
    replication_key = "updatedAt"
    schema = SCHEMA
    STATE_MSG_FREQUENCY = 1

    def get_records(self, context):
        start = self.get_starting_replication_key_value(context)
        for number, day in enumerate(self.config["days"]):
            if number == self.config.get("fail_after"):
                raise RuntimeError("as the config demands")
            at = f"2021-01-{day:02}T00:00:00Z"
            if start is None or at >= start:
                yield {"id": day, "storeId": (context or {}).get("storeId", 0), "updatedAt": at}


class Sorted(Days):
    name = "sorted"
    is_sorted = True
    check_sorted = True


class Unsorted(Days):
    name = "unsorted"


class Partitioned(Days):
    name = "partitioned"
    partitions = ({"storeId": 1}, {"storeId": 2})


class Stores(Stream):
    name = "stores"
    primary_keys = ("id",)
    schema = SCHEMA

    def get_records(self, context):
        yield from ({"id": 1}, {"id": 2})

    def get_child_context(self, record, context):
        return {"storeId": record["id"]}


class Orders(Days):
    name = "orders"
    parent_stream_type = Stores


class SdkTap(Tap):
    name = "tap-days"
    config_jsonschema = th.PropertiesList(
        th.Property("days", th.ArrayType(th.IntegerType)),
        th.Property("fail_after", th.IntegerType),
        th.Property("stream", th.StringType),
    ).to_dict()

    def discover_streams(self):
        found = [Sorted(self), Unsorted(self), Partitioned(self), Stores(self), Orders(self)]
        chosen = self.config.get("stream")
        family = {"orders": ("stores", "orders")}.get(chosen, (chosen,))
        return [stream for stream in found if stream.name in family]


if __name__ == "__main__":
    SdkTap.cli()
