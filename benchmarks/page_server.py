"""A loopback API of orders that costs next to nothing: `python -m benchmarks.page_server RECORDS`.

It answers `GET /orders?since=&until=&offset=&limit=` from a text of all records, which is made before the URL
is printed. An answer is a slice of that text, sent with one write on a connection that stays open.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.parse
from array import array
from datetime import datetime, timedelta, timezone

BASE = datetime(2024, 1, 1, tzinfo=timezone.utc)
EVERY = timedelta(seconds=30)
TIME = "%Y-%m-%dT%H:%M:%SZ"


def time_of(number: int) -> datetime:
    """The time of a record."""
    return BASE + number * EVERY


class Pages:
    """The records as one JSON text, and where each of them begins in it."""

    def __init__(self, records: int):
        text = bytearray()
        self._begins = array("Q", [0])
        for number in range(records):
            text += (
                f'{{"id":{number},"name":"n{number}","email":"u{number}@example.com",'
                f'"amount":{number * 1.5},"updated_at":"{time_of(number).strftime(TIME)}",'
                '"meta":{"a":1,"b":"x"}},'
            ).encode()
            self._begins.append(len(text))
        self._text = memoryview(bytes(text))

    def body(self, since: datetime, until: datetime, offset: int, limit: int) -> bytes:
        """The page of the records within a range of time, both ends included."""
        last = len(self._begins) - 1
        begin = min(-((BASE - since) // EVERY) + offset, last)
        end = max(begin, min((until - BASE) // EVERY + 1, begin + limit, last))
        found = self._text[self._begins[begin] : self._begins[end]]
        return b'{"data":[%b]}' % bytes(found[:-1])


class Connection(asyncio.Protocol):
    """Answers the requests of one connection, which have no bodies."""

    _transport: asyncio.Transport

    def __init__(self, pages: Pages):
        self._pages = pages
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *heads, self._received = (self._received + data).split(b"\r\n\r\n")
        for head in heads:
            body = self._body(head.split(b" ", 2)[1].decode())
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + length + body
            )

    def _body(self, target: str) -> bytes:
        given = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
        since, until = (_time(given[name]) for name in ("since", "until"))
        return self._pages.body(since, until, int(given.get("offset", 0)), int(given["limit"]))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


async def main(records: int) -> None:
    pages = Pages(records)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(pages), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
