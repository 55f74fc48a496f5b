"""A JSON API of orders on the loopback, and a low-code manifest that reads it by windows of time."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

START = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass
class Orders:
    """The API's rows, and the query of each request that was made of it.

    Attributes:
        count: the number of rows.
        answered: the number of requests that are answered; later ones wait until it is larger. None for all.
    """

    count: int
    url: str = ""
    answered: int | None = None
    queries: list[dict[str, str]] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """One an hour."""
        times = (START + dt.timedelta(hours=number) for number in range(self.count))
        return [
            {"id": n, "amount": n * 1.5, "updated_at": time.strftime(FORMAT)}
            for n, time in enumerate(times)
        ]

    def manifest(self) -> dict[str, Any]:
        """The rows of one stream, `orders`, by days."""

        def moment(time: str) -> dict[str, str]:
            return {"type": "MinMaxDatetime", "datetime": time, "datetime_format": FORMAT}

        def parameter(name: str) -> dict[str, str]:
            return {"type": "RequestOption", "inject_into": "request_parameter", "field_name": name}

        schema = {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "amount": {"type": "number"},
                "updated_at": {"type": "string", "format": "date-time"},
            },
        }
        cursor = {
            "type": "DatetimeBasedCursor",
            "cursor_field": "updated_at",
            "datetime_format": FORMAT,
            "start_datetime": moment("2024-01-01T00:00:00Z"),
            "end_datetime": moment("2024-01-05T23:59:59Z"),
            "start_time_option": parameter("since"),
            "end_time_option": parameter("until"),
            "step": "P1D",
            "cursor_granularity": "PT1S",
        }
        extractor = {"type": "DpathExtractor", "field_path": ["data"]}
        requester = {"type": "HttpRequester", "url_base": self.url, "path": "/orders"}
        stream = {
            "type": "DeclarativeStream",
            "name": "orders",
            "primary_key": ["id"],
            "schema_loader": {"type": "InlineSchemaLoader", "schema": schema},
            "retriever": {
                "type": "SimpleRetriever",
                "requester": {**requester, "http_method": "GET"},
                "record_selector": {"type": "RecordSelector", "extractor": extractor},
            },
            "incremental_sync": cursor,
        }
        return {
            "version": "6.0.0",
            "type": "DeclarativeSource",
            "check": {"type": "CheckStream", "stream_names": ["orders"]},
            "streams": [stream],
            "spec": {
                "type": "Spec",
                "connection_specification": {"type": "object", "properties": {}},
            },
        }


@contextlib.contextmanager
def serving(orders: Orders) -> Iterator[Orders]:
    """The API while the context lasts; `url` is set."""

    class Api(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(self.path).query))
            orders.queries.append(query)
            number = len(orders.queries)
            while orders.answered is not None and number > orders.answered:
                time.sleep(0.05)
            since, until = query.get("since", ""), query.get("until", "~")
            found = [row for row in orders.rows() if since <= row["updated_at"] <= until]
            body = json.dumps({"data": found}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that was killed

    server = Server(("127.0.0.1", 0), Api)
    orders.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield orders
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
