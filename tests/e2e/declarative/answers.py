"""The APIs of the scenarios: functions that return the script of the server for a round."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from tests.e2e.declarative.api import (
    ISO,
    ROUNDS,
    answer_in_turn,
    comparable,
    echo,
    orders,
    parse_parameters,
    select_shop,
    serve_list,
    times,
    tree,
)
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, Script

Json = dict[str, Any]

DYNAMIC = ("table_a", "table_b c", "table_d")
ONE_RECORD = [{"id": 1}]


def tokens(round_: int) -> Script:
    """Orders, behind a token endpoint."""
    guarded = answer_in_turn(Answer(401, {"message": "expired"}), {"data": ONE_RECORD})

    def token(request: Received) -> Any:
        parameters = {**parse_parameters(request), **request.params}
        names = (
            ("short_token", "seconds") if "app" in parameters else ("access_token", "expires_in")
        )
        rotated = {"refresh_token": "refresh-new"} if "refresh-kept" in parameters.values() else {}
        return {names[0]: f"for {parameters.get('grant_type')}", names[1]: 3600, **rotated}

    return tree({"/token": token, "/guarded": guarded, "/orders": orders(round_)})


def logins(round_: int) -> Script:
    """Orders, behind a login."""
    return tree({"/login": lambda _: {"session": {"token": "s1"}}, "/orders": orders(round_)})


def errors(_: int) -> Script:
    """Resources that fail at first."""
    done = {"data": ONE_RECORD}
    later = int(ROUNDS[0].timestamp()) + 45
    answers: dict[str, tuple[Any, ...]] = {
        "usual": (Answer(503), Answer(500, {"message": "no"}), Answer(429), done),
        "constant": (Answer(500), Answer(502), done),
        "exponential": (Answer(404), Answer(500), Answer(504), done),
        "header": (
            Answer(429, headers={"X-Wait": "13"}),
            Answer(503, headers={"X-Wait": "2.5"}),
            done,
        ),
        "header_regex": (
            Answer(429, headers={"X-Wait": "wait 14 s"}),
            Answer(429, headers={"X-Wait": "soon"}),
            Answer(429),
            done,
        ),
        "until": (
            Answer(429, headers={"X-Until": str(later)}),
            Answer(429, headers={"X-Until": "1"}),
            done,
        ),
        "ignored": (Answer(404, {"message": "not for you"}),),
        "predicate": ({"busy": True}, {"busy": True}, done),
        "contains": (
            Answer(400, {"error": {"message": "please try again"}}),
            Answer(422, {"errors": [{"message": "no such order"}]}),
        ),
        "composite": (Answer(429), Answer(503), Answer(400, done)),
    }
    return tree({f"/{name}": answer_in_turn(*sequence) for name, sequence in answers.items()})


def failures(round_: int) -> Script:
    """Resources that fail again and again."""

    def halfway(request: Received) -> Any:
        part = request.params["part"]
        return Answer(403, {"message": "closed"}) if part == "two" else {"data": [{"id": part}]}

    return tree(
        {
            "/refused": lambda _: Answer(401, {"message": "who are you"}),
            "/exhausted": lambda _: Answer(500, {"message": "down"}),
            "/failing": lambda _: {"error": "quota", "data": ONE_RECORD},
            "/not_json": lambda _: Answer(
                200, b"<html>hello</html>", {"Content-Type": "text/html"}
            ),
            "/halfway": halfway,
            "/orders": orders(round_),
        }
    )


def serve_encodings(_: int) -> Script:
    """The same records in each encoding."""
    rows: list[Json] = [
        {"id": 1, "text": "plain", "amount": 1.5, "none": None},
        {"id": 2, "text": 'with "quotes", commas\nand lines', "amount": 1e3, "none": None},
        {"id": 3, "text": "Größe ü €", "amount": -0.25, "none": [1, {"a": 2}]},
    ]
    lines = b"\n".join(json.dumps(row).encode() for row in rows) + b"\n"
    table = 'id,text,amount\r\n1,plain,1.5\r\n2,"with ""quotes"", commas\nand lines",\r\n3,Größe,0'.encode()
    tabs = "id\ttext\tamount\n1\tGröße\t-\n2\t\t5\n".encode("latin-1")
    tree_ = b"""<?xml version="1.0"?><list kind="a"><item id="1"><text>plain</text></item>
    <item id="2"><text lang="en">two</text><text>three</text><none/></item></list>"""
    bodies: Json = {
        "json": {"data": [{"line": rows[0]}, {"line": rows[1]}, {"other": 1}]},
        "jsonl": lines,
        "iterable": b"first\nsecond\n\nthird",
        "xml": tree_,
        "csv": table,
        "csv_tabs": tabs,
        "gzip_csv": gzip.compress(table),
        "gzip_jsonl": gzip.compress(lines),
        "gzip_json": gzip.compress(json.dumps({"data": rows}).encode()),
        "one_object": {"data": {"first": rows[0]}},
        "root_list": rows,
        "root_object": rows[2],
        "no_path": {"data": {"something": rows}},
    }
    return tree({f"/{name}": _constant(body) for name, body in bodies.items()})


def _constant(body: Any) -> Script:
    return lambda _: Answer(body=body, headers={"Content-Type": "application/octet-stream"})


def customers(_: int) -> Script:
    """Orders with nested fields and names of each kind."""
    records = [
        {
            "id": number,
            "updated_at": f"2024-01-0{number}T10:00:00Z",
            "shop": number % 3 + 1,
            "state": "open",
            "amount": number * 3.5,
            "customer": {
                "name": f"Änne {number}",
                "vip": number % 2 == 0,
                "age": None,
                "id": number * 10,
            },
            "tags": ["a", {"deep": [1, None]}],
            "Mixed Case": 1,
            "MixedCase": {"HTTPServer": 2, "camelCase": None},
            "2nd": "x",
            "lines": [{"line": 1}, {"line": 2}][: number % 3],
        }
        for number in range(1, 5)
    ]
    return tree({"/orders": records})


def serve_anything(round_: int) -> Script:
    """Orders, and one record for any other request."""
    order_script = tree({"/orders": orders(round_)})
    return lambda request: order_script(request) if request.path == "/orders" else echo(request)


def days(round_: int) -> Script:
    """Orders, also those of one day."""
    all_orders = orders(round_)

    def script(request: Received) -> Any:
        day = request.path.removeprefix("/days/")
        part = [order for order in all_orders if order["updated_at"].startswith(day)]
        return serve_list(part if day != request.path else all_orders)(request)

    return script


def _moment(text: str) -> float:
    instant = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (instant if instant.tzinfo else instant.replace(tzinfo=timezone.utc)).timestamp()


def formats(round_: int) -> Script:
    """Orders whose times are written in each format."""

    def strftime(text: str) -> Callable[[datetime], str]:
        return lambda time: time.strftime(text)

    def thousandths(time: datetime) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S.250Z")

    def american(text: str) -> float:
        return datetime.strptime(text, "%m/%d/%Y").replace(tzinfo=timezone.utc).timestamp()

    writers: dict[str, tuple[Callable[[datetime], Any], Callable[[Any], Any]]] = {
        "seconds": (lambda time: int(time.timestamp()), comparable),
        "milliseconds": (lambda time: int(time.timestamp() * 1000) + 250, comparable),
        "fractions": (lambda time: time.timestamp() + 0.25, comparable),
        "microseconds": (lambda time: int(time.timestamp()) * 10**6 + 250, comparable),
        "microsecond_text": (strftime("%Y-%m-%dT%H:%M:%S.000250Z"), comparable),
        "millisecond_text": (thousandths, comparable),
        "offset": (lambda time: time.strftime("%Y-%m-%dT%H:%M:%S+0000"), comparable),
        "fixed_offset": (strftime("%Y-%m-%dT%H:%M:%S+00:00"), comparable),
        "day": (strftime("%Y-%m-%d"), comparable),
        "compact_day": (strftime("%Y%m%d"), comparable),
        "spaced": (strftime("%Y-%m-%d %H:%M:%S"), comparable),
        "american": (strftime("%m/%d/%Y"), american),
    }
    scripts: dict[str, Any] = {
        f"/{name}": serve_list(orders(round_, write), key=key)
        for name, (write, key) in writers.items()
    }
    several = orders(round_)
    for order in several:
        time = datetime.fromisoformat(order["updated_at"].replace("Z", "+00:00"))
        ways = (
            order["updated_at"],
            time.strftime("%Y-%m-%dT%H:%M:%S.500000Z"),
            f"{time:%Y-%m-%dT%H:%M:%S}+0000",
        )
        order["updated_at"] = [*ways, str(int(time.timestamp()))][order["id"] % 4]
    nested = [
        {"id": order["id"], "meta": {"changed": order["updated_at"]}} for order in orders(round_)
    ]
    scripts["/several"] = lambda _: {"data": several}
    scripts["/nested"] = lambda _: {"data": nested}
    return tree(scripts)


def feeds(round_: int) -> Script:
    """Orders, from the newest to the oldest one, and others without some."""
    all_orders = orders(round_)
    gaps = [
        dict(order) for order in all_orders if not "2024-01-10" < order["updated_at"] < "2024-01-24"
    ]
    gaps[1]["updated_at"] = None
    del gaps[2]["updated_at"]

    def leave_gaps(request: Received) -> Any:
        parameters = parse_parameters(request)
        dated = [order for order in gaps if order.get("updated_at")]
        within = [
            order
            for order in dated
            if parameters["since"] <= order["updated_at"] <= parameters["until"]
        ]
        return {"data": within + (gaps[1:3] if parameters["since"] < "2024-01-04" else [])}

    return tree(
        {"/orders": all_orders, "/newest": all_orders[::-1], "/gaps": leave_gaps, "/empty": []}
    )


def numbers(round_: int) -> Script:
    """Orders with a number that counts up."""
    records = [{"id": order["id"], "number": order["id"] * 3} for order in orders(round_)]
    return tree({"/numbered": serve_list(records, "number")})


def shops(round_: int) -> Script:
    """Shops, their orders and the items of those."""
    all_orders = orders(round_)
    times_ = list(times(5, 60))
    places = [
        {
            "id": number,
            "region": "north" if number % 2 else "south",
            "owner": {"name": f"owner {number % 2}"},
            "updated_at": times_[number].strftime(ISO),
        }
        for number in range(1, 4)
    ]
    if round_:
        places[0]["updated_at"] = "2024-02-03T01:00:00Z"

    def script(request: Received) -> Any:
        parts = request.path.strip("/").split("/")
        match parts:
            case ["shops"]:
                return serve_list(places)(request)
            case ["shops", shop, "orders"]:
                return serve_list(select_shop(all_orders, int(shop)))(request)
            case ["shops", shop, "newest"]:
                return serve_list(select_shop(all_orders, int(shop))[::-1])(request)
            case ["orders", order, "items"]:
                part = [record for record in all_orders if record["id"] == int(order)]
                return serve_list(
                    [{**record, "id": f"{order}-{n}"} for record in part for n in (1, 2)]
                )(request)
            case ["depots"]:
                return {"data": [{"code": "d1"}, {"code": "d2"}]}
            case ["orders"]:
                return serve_list(_choose(all_orders, parse_parameters(request)))(request)
            case _:
                return serve_list([{"id": request.path, "updated_at": "2024-01-15T00:00:00Z"}])(
                    request
                )

    return script


def grow(round_: int) -> Script:
    """Shops and their orders; in the second round another shop, whose order is older than the first read."""
    late = [{"id": 99, "updated_at": "2024-01-10T00:00:00Z"}]
    shop_script = shops(round_)
    listed = {"data": [{"id": number} for number in range(1, 4 + round_)]}

    def script(request: Received) -> Any:
        if request.path == "/shops":
            return listed
        return (
            serve_list(late)(request) if request.path == "/shops/4/orders" else shop_script(request)
        )

    return script


def _choose(all_orders: Sequence[Json], parameters: dict[str, str]) -> list[Json]:
    shop, state = parameters.get("shop"), parameters.get("state")
    chosen = [order for order in all_orders if shop is None or str(order["shop"]) == shop]
    return [order for order in chosen if state is None or order["state"] == state]


def tables(_: int) -> Script:
    """Tables that an endpoint lists."""
    listed = [
        {"id": 1, "name": "a", "key": "id"},
        {"id": 2, "name": "b c", "key": "number", "view": "all"},
        {"id": 3, "name": "d", "key": "id"},
    ]

    def script(request: Received) -> Any:
        if request.path == "/tables":
            token = request.params.get("after")
            return {"data": listed[2:] if token else listed[:2], "next": None if token else "c2"}
        return echo(request)

    return script


def fields(_: int) -> Script:
    """Orders, and the fields that they have."""
    columns = [
        {"name": "id", "kind": "text"},
        {"name": "amount", "kind": "money"},
        {"name": "shop", "kind": "whole"},
        {"name": "state", "kind": "texts"},
    ]
    return tree({"/fields": lambda _: {"data": [{"columns": columns}]}, "/orders": orders(0)})


def slow(round_: int) -> Script:
    """Orders, and until when how many requests are left."""
    records = orders(round_)[:14]

    def script(request: Received) -> Any:
        answer = serve_list(records)(request)
        limits = {"X-Remaining": "100", "X-Reset": str(int(time.time()) + 1)}
        return Answer(body=answer.body, headers={**answer.headers, **limits})

    return script


def reports(round_: int) -> Script:
    """Jobs that are done when they are asked for the third time."""
    created: list[Json] = []
    polled: dict[str, int] = {}
    lock = threading.Lock()
    all_orders = orders(round_)

    def script(request: Received) -> Any:
        match request.path.strip("/").split("/"):
            case ["reports"]:
                with lock:
                    created.append(request.json)
                    body = request.json
                name = f"{body['kind']}-{body.get('since', '')}~{body.get('until', '')}"
                return {"id": name, "state": "queued"}
            case ["reports", name]:
                with lock:
                    polled[name] = polled.get(name, 0) + 1
                state = ("queued", "running", "done")[min(polled[name], 3) - 1]
                host = request.headers["host"]
                return {"id": name, "state": state, "urls": [f"http://{host}/files/{name}"]}
            case ["files", name]:
                return _file(name, all_orders)
        return Answer(204)

    return script


def _file(name: str, all_orders: list[Json]) -> Answer:
    kind, _, interval = name.partition("-")
    since, _, until = interval.partition("~")
    part = [order for order in all_orders if not since or since <= order["updated_at"] <= until]
    if kind == "gzipped":
        return Answer(
            body=gzip.compress(b"".join(json.dumps(order).encode() + b"\n" for order in part))
        )
    lines = [
        "id,updated_at,shop",
        *(f"{order['id']},{order['updated_at']},{order['shop']}" for order in part),
    ]
    return Answer(body="\n".join(lines).encode(), headers={"Content-Type": "text/csv"})
