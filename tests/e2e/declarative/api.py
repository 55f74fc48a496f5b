"""The API that the manifests read: resources in pages of each kind, filtered by time.

A request names its page, its page size and its interval in the query, a JSON body, a form, or headers that
begin with `X-`. The names are the same everywhere:

| name | meaning |
|---|---|
| `page`, `page0` | the number of the page, from 1 or from 0 |
| `offset` | the number of records to skip |
| `after` | the token of the page |
| `size`, `limit` | the size of the page; 4 without it |
| `since`, `until` | the least and the greatest value of the cursor field |

Each response names the next page in each way: `next`, `more`, `links.next`, `number` and
`pages`, and the header `X-Next`.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, Script

Json = dict[str, Any]

SIZE = 4
ROUNDS = (
    datetime(2024, 1, 31, 12, tzinfo=timezone.utc),
    datetime(2024, 2, 9, 6, tzinfo=timezone.utc),
)
"""The times of the first and the second read."""
ISO = "%Y-%m-%dT%H:%M:%SZ"


def parse_parameters(request: Received) -> dict[str, str]:
    """Return the values of a request by their names, wherever they are."""
    headers = {name[2:]: value for name, value in request.headers.items() if name.startswith("x-")}
    kind = request.headers.get("content-type", "")
    body: Json = {}
    if request.body and "json" in kind:
        body = dict(_leaves(request.json))
    elif request.body and "form" in kind:
        body = dict(request.form)
    parameters = {**headers, **body, **request.params}
    return {name: str(value) for name, value in parameters.items()}


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            if isinstance(entry, Mapping | list):
                yield from _leaves(entry)
            else:
                yield name, entry
    elif isinstance(value, list):
        for entry in value:
            yield from _leaves(entry)


def comparable(value: Any) -> Any:
    """Return a cursor value as a number, or as a text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def serve_list(
    records: Sequence[Json],
    field: str = "updated_at",
    key: Callable[[Any], Any] = comparable,
) -> Script:
    """Return a script that answers a page of records.

    Args:
        records: all records.
        field: the cursor field.
        key: returns what to compare of a value.
    """

    def script(request: Received) -> Answer:
        parameters = parse_parameters(request)
        selected = list(records)
        if parameters.get("since"):
            selected = [
                record for record in selected if key(record[field]) >= key(parameters["since"])
            ]
        if parameters.get("until"):
            selected = [
                record for record in selected if key(record[field]) <= key(parameters["until"])
            ]
        return _page(request, parameters, selected)

    return script


def _page(request: Received, parameters: Mapping[str, str], records: Sequence[Json]) -> Answer:
    size = int(parameters.get("size") or parameters.get("limit") or SIZE)
    begin = int(parameters.get("offset") or (parameters.get("after") or "c0")[1:])
    if parameters.get("page"):
        begin = size * (int(parameters["page"]) - 1)
    if parameters.get("page0"):
        begin = size * int(parameters["page0"])
    end = begin + size
    token = f"c{end}" if end < len(records) else None
    query = urllib.parse.urlencode({**request.params, "after": token})
    host = request.headers["host"]
    return Answer(
        body={
            "data": list(records[begin:end]),
            "next": token,
            "more": token is not None,
            "pages": -(-len(records) // size),
            "number": begin // size + 1,
            "links": {"next": token and f"http://{host}{request.path}?{query}"},
        },
        headers={"X-Next": token} if token else {},
    )


def tree(scripts: Mapping[str, Script | Sequence[Json]]) -> Script:
    """Return a script that answers by the path: with another script, or with a page of records. A path that
    is longer than a known one, such as `/orders/first`, has the same answer."""
    by_path = {
        path: answer if callable(answer) else serve_list(answer) for path, answer in scripts.items()
    }

    def script(request: Received) -> Any:
        path = urllib.parse.unquote(request.path)
        answer = by_path.get(path) or by_path.get(path.rpartition("/")[0])
        return Answer(404, {"message": "nothing is there"}) if answer is None else answer(request)

    return script


def times(number: int, hours: float = 29.5) -> Iterator[datetime]:
    """Yield the times at which orders change, from 2024-01-01 on."""
    begin = datetime(2024, 1, 1, 3, 30, 15, tzinfo=timezone.utc)
    return (begin + timedelta(hours=hours * index) for index in range(number))


def orders(
    round_: int, time_format: Callable[[datetime], Any] | str = ISO, **more: Any
) -> list[Json]:
    """Return the orders that there are in a round, by their time.

    Args:
        round_: 0 for the first read, 1 for the second one.
        written: the format of the time, or the function that writes it.
        more: further fields of each.
    """
    write = (
        (lambda time: time.strftime(time_format)) if isinstance(time_format, str) else time_format
    )
    return [
        {
            "id": number,
            "updated_at": write(time),
            "shop": number % 3 + 1,
            "state": ("open", "paid", "sent")[number % 3],
            "amount": number * 1.25,
            **more,
        }
        for number, time in enumerate(times(34), 1)
        if time < ROUNDS[round_]
    ]


def select_shop(all_orders: Sequence[Json], shop: Any) -> list[Json]:
    """Return the orders of one shop."""
    return [order for order in all_orders if order["shop"] == shop]


def answer_in_turn(*answers: Any) -> Script:
    """Return a script that gives each answer once, and then the last one again and again."""
    remaining = list(answers)

    def script(request: Received) -> Any:
        answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return answer(request) if callable(answer) else answer

    return script


def echo(request: Received) -> Json:
    """Answer one record: what was received."""
    text = json.dumps(sorted(parse_parameters(request).items()))
    return {"data": [{"id": 1, "method": request.method, "path": request.path, "given": text}]}
