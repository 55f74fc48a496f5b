"""Manifests and data that hypothesis makes: a cursor, with or without partitions, and records at any time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from tests.e2e.declarative.api import ISO, ROUNDS, comparable, parse_parameters, serve_list
from tests.e2e.declarative.scenarios import Scenario
from tests.programs.recording_api import Received, Script

Json = dict[str, Any]

DAY = "%Y-%m-%d"
FORMATS = {
    ISO: "PT1S",
    "%s": "PT1S",
    "%ms": "PT0.001S",
    "%Y-%m-%dT%H:%M:%S.%fZ": "PT0.000001S",
    "%Y-%m-%dT%H:%M:%S%z": "PT1S",
    DAY: "P1D",
    "%Y%m%d": "P1D",
}
"""The formats of cursors, and the granularity of each."""
SHOPS = ("1", "2", "3")
STATES = ("open", "sent")
STARTS = (0, 0, 1440 * 9 + 75, 1440 * 20, 1440 * 45)
"""The minutes after the first day at which the source starts; the last one is after both reads."""
FIRST_DAY = datetime(2024, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Case:
    """A manifest with one stream, and the records of its API.

    Attributes:
        sync: the DatetimeBasedCursor.
        router: the partition router; None for none.
        format: the format of the cursor.
        records: the minute, the shop and the state of each record.
        start: the start of the config.
        loses_cursors: whether there is a record without a cursor, which each interval has.
    """

    sync: Json
    router: Any
    format: str
    records: tuple[tuple[int, str, str], ...]
    start: str
    loses_cursors: bool = False

    @property
    def manifest(self) -> Json:
        selector = {"extractor": {"type": "DpathExtractor", "field_path": ["data"]}}
        retriever: Json = {
            "type": "SimpleRetriever",
            "requester": _requester("orders"),
            "record_selector": {"type": "RecordSelector", **selector},
            "paginator": {
                "type": "DefaultPaginator",
                "pagination_strategy": {
                    "type": "CursorPagination",
                    "cursor_value": "{{ response.next }}",
                },
                "page_token_option": _option("after"),
            },
        }
        if self.router is not None:
            retriever["partition_router"] = self.router
        return {
            "version": "7.39.0",
            "type": "DeclarativeSource",
            "check": {"type": "CheckStream", "stream_names": ["orders"]},
            "spec": {"type": "Spec", "connection_specification": {"type": "object"}},
            "streams": [
                {
                    "type": "DeclarativeStream",
                    "name": "orders",
                    "primary_key": "id",
                    "retriever": retriever,
                    "incremental_sync": self.sync,
                    "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object"}},
                }
            ],
        }

    def api(self, round_: int) -> Script:
        """Return the script of the server for a round."""
        records = [
            {"id": number, "shop": shop, "state": state, "updated_at": write(time, self.format)}
            for number, (minute, shop, state) in enumerate(self.records)
            if (time := FIRST_DAY + timedelta(minutes=minute)) < ROUNDS[round_]
        ]
        if self.loses_cursors:
            records.append({"id": -1, "shop": "1", "state": "open", "updated_at": None})
        if self.sync.get("is_data_feed"):
            records.sort(key=lambda record: comparable(record["updated_at"]), reverse=True)

        def script(request: Received) -> Any:
            if request.path == "/shops":
                return {"data": [{"id": shop, "updated_at": _shop_time(shop)} for shop in SHOPS]}
            match request.path.split("/"):
                case ["", "shops", shop, "depots"]:
                    ids = (f"{shop}-{state}" for state in STATES)
                    return {
                        "data": [{"id": entry, "updated_at": _shop_time(shop)} for entry in ids]
                    }
            parameters = parse_parameters(request)
            if "depot" in parameters:
                parameters["shop"], _, parameters["state"] = parameters["depot"].partition("-")
            names = [name for name in ("shop", "state") if name in parameters]
            part = [
                entry for entry in records if all(entry[name] == parameters[name] for name in names)
            ]
            dated = [entry for entry in part if entry["updated_at"] is not None]
            answer = serve_list(dated)(request)
            answer.body["data"] += [entry for entry in part if entry not in dated]
            return answer

        return script

    @property
    def scenario(self) -> Scenario:
        return _Generated("generated", self.api, {"start": self.start}, rounds=2, case=self)


@dataclass(frozen=True)
class _Generated(Scenario):
    case: Case | None = None

    @property
    def manifest(self) -> Json:
        assert self.case is not None
        return self.case.manifest


def write(time: datetime, format_: str) -> Any:
    """Return a time in a format."""
    special: dict[str, Callable[[], Any]] = {
        "%s": lambda: int(time.timestamp()),
        "%ms": lambda: int(time.timestamp() * 1000),
        "%Y-%m-%dT%H:%M:%S%z": lambda: time.strftime("%Y-%m-%dT%H:%M:%S+0000"),
    }
    return special[format_]() if format_ in special else time.strftime(format_)


def _shop_time(shop: str) -> str:
    return (FIRST_DAY + timedelta(days=5 * int(shop))).strftime(ISO)


def _option(name: str, into: str = "request_parameter") -> Json:
    return {"type": "RequestOption", "inject_into": into, "field_name": name}


def _requester(path: str) -> Json:
    return {
        "type": "HttpRequester",
        "url_base": "{{ config['url'] }}",
        "path": path,
        "http_method": "GET",
    }


def _shops(incremental: bool) -> Json:
    """Return a router whose partitions are the shops of a parent stream."""
    selector = {"extractor": {"type": "DpathExtractor", "field_path": ["data"]}}
    parent: Json = {
        "type": "DeclarativeStream",
        "name": "shops",
        "primary_key": "id",
        "retriever": {
            "type": "SimpleRetriever",
            "requester": _requester("shops"),
            "record_selector": {"type": "RecordSelector", **selector},
        },
        "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object"}},
    }
    if incremental:
        parent["incremental_sync"] = {
            "type": "DatetimeBasedCursor",
            "cursor_field": "updated_at",
            "datetime_format": ISO,
            "start_datetime": "2024-01-01T00:00:00Z",
        }
    config = {
        "type": "ParentStreamConfig",
        "stream": parent,
        "parent_key": "id",
        "partition_field": "shop",
        "request_option": _option("shop"),
        "incremental_dependency": incremental,
    }
    return {"type": "SubstreamPartitionRouter", "parent_stream_configs": [config]}


def _depots(incremental: bool) -> Json:
    """Return a router whose partitions are the depots of the shops, each with the orders of one state."""
    depots: Json = copy.deepcopy(_shops(incremental))
    [config] = depots["parent_stream_configs"]
    shops = copy.deepcopy(depots)
    del shops["parent_stream_configs"][0]["request_option"]
    config["stream"]["name"] = "depots"
    retriever = config["stream"]["retriever"]
    retriever["partition_router"] = shops
    retriever["requester"]["path"] = "shops/{{ stream_partition.shop }}/depots"
    config["partition_field"] = "depot"
    config["request_option"] = _option("depot")
    return depots


def _list(values: tuple[str, ...], name: str) -> Json:
    return {
        "type": "ListPartitionRouter",
        "values": list(values),
        "cursor_field": name,
        "request_option": _option(name),
    }


ROUTERS: tuple[Any, ...] = (
    None,
    _list(SHOPS, "shop"),
    [_list(SHOPS[:2], "shop"), _list(STATES, "state")],
    _shops(incremental=False),
    _shops(incremental=True),
    [_shops(incremental=False), _list(STATES, "state")],
    _depots(incremental=False),
    _depots(incremental=True),
)


def _steps(format_: str) -> list[str]:
    """Return the steps that fit a format."""
    days = ["P3D", "P1W", "P10D", "P1M"]
    return days if FORMATS[format_] == "P1D" else [*days, "PT60H"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return a case: a combination of format, step, lookback, limits, router, kind of cursor, and records."""
    format_ = draw(st.sampled_from(list(FORMATS)))
    sync: Json = {
        "type": "DatetimeBasedCursor",
        "cursor_field": "updated_at",
        "datetime_format": format_,
        "start_datetime": {
            "type": "MinMaxDatetime",
            "datetime": "{{ config['start'] }}",
            "datetime_format": ISO,
        },
    }
    router = draw(st.sampled_from(ROUTERS))
    kind = draw(st.sampled_from(["filter", "filter", "filter", "feed", "client"]))
    if kind == "filter":
        into = draw(st.sampled_from(["request_parameter", "header"]))
        prefix = "X-" if into == "header" else ""
        sync["start_time_option"] = _option(f"{prefix}since", into)
        sync["end_time_option"] = _option(f"{prefix}until", into)
        if draw(st.booleans()):
            sync["step"] = draw(st.sampled_from(_steps(format_)))
            sync["cursor_granularity"] = FORMATS[format_]
        if FORMATS[format_] != "P1D" and draw(st.integers(0, 4)) == 0:
            sync["is_compare_strictly"] = True
    else:
        sync["is_data_feed" if kind == "feed" else "is_client_side_incremental"] = True
    filters_days = kind != "filter" and FORMATS[format_] == "P1D"
    shortest = "P1D" if filters_days else "PT6H"  # see `deviations`
    lookback = draw(st.sampled_from([None, None, shortest, "P1D", "P4D"]))
    if lookback:
        sync["lookback_window"] = lookback
    if kind == "filter" and draw(st.integers(0, 3)) == 0:
        sync["end_datetime"] = {
            "type": "MinMaxDatetime",
            "datetime": "2024-02-05T10:00:00Z",
            "datetime_format": ISO,
        }
    if router is not None and draw(st.integers(0, 3)) == 0:
        sync["global_substream_cursor"] = True
    minutes = st.integers(0, 40 * 1440) | st.integers(0, 40).map(lambda day: day * 1440)
    record = st.tuples(minutes, st.sampled_from(SHOPS), st.sampled_from(STATES))
    records = draw(st.lists(record, max_size=12))
    start = FIRST_DAY + timedelta(minutes=draw(st.sampled_from(STARTS)))
    loses = kind == "filter" and draw(st.integers(0, 4)) == 0
    return Case(sync, router, format_, tuple(records), start.strftime(ISO), loses)
