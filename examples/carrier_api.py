"""The API of a small parcel carrier, which the connection `carrier` reads, for as long as a command runs.

    python examples/carrier_api.py COMMAND [ARGUMENT ...]

It serves on a free port of the loopback interface. The command gets the base URL in `CARRIER_URL` and the API
key in `CARRIER_KEY`. The exit code is the one of the command.

| path | parameters | answer |
|---|---|---|
| `/depots` | | `{"depots": [...]}` |
| `/parcels` | `from`, `to`: times of `updated_at` | `{"parcels": [...], "next": "..."}` |
| `/depots/ID/scans` | `from`, `to`: times of `scanned_at` | `{"scans": [...], "next": null}` |

Times are as `2026-01-31T09:30:00Z`. Both ends of a range are included; by default it is the last day. A page
has `limit` records, and `next` is the parameter `after` of the next page. Every request needs the key in the
header `X-Api-Key`.

The data depend only on the time: on each day since 2025 the carrier accepts 40 parcels, and each of them
passes three depots within two days. A parcel is updated when it is scanned.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TIME = "%Y-%m-%dT%H:%M:%SZ"
LIMIT = 200
"""The number of records on a page, at most and by default."""
FIRST_DAY = datetime(2025, 1, 1, tzinfo=timezone.utc)
PARCELS_A_DAY = 40
LONGEST_WAY = timedelta(days=2)
"""The time from a parcel's first scan to its last one, at most."""
DEPOTS = {
    "ams": "Amsterdam",
    "ber": "Berlin",
    "cph": "Copenhagen",
    "mil": "Milan",
    "par": "Paris",
}
STATUSES = ("accepted", "in transit", "delivered")

Json = dict[str, Any]
Records = Mapping[str, Json]
"""Records by their place in the order of time, which is a text."""
Range = tuple[datetime, datetime]
"""The first and the last moment of a range of time."""


class RequestError(Exception):
    """A request that cannot be answered: the status, and a text that says why."""

    def __init__(self, status: HTTPStatus, text: str):
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Scan:
    """The arrival of a parcel at a depot."""

    depot: str
    status: str
    time: datetime


@dataclass(frozen=True)
class Parcel:
    """A parcel, and its scans in the order of time."""

    id: str
    grams: int
    scans: Sequence[Scan]

    def last_scan(self, moment: datetime) -> Scan | None:
        """Return the latest scan up to a moment; None if there is none yet."""
        return next((scan for scan in reversed(self.scans) if scan.time <= moment), None)

    def record(self, last: Scan) -> Json:
        """Return the parcel as it is after a scan."""
        return {
            "id": self.id,
            "weight": self.grams / 1000,
            "origin": self.scans[0].depot,
            "destination": self.scans[-1].depot,
            "status": last.status,
            "created_at": self.scans[0].time.strftime(TIME),
            "updated_at": last.time.strftime(TIME),
        }


@lru_cache(maxsize=400)
def parcels_of(day: date) -> Sequence[Parcel]:
    """Return the parcels that are accepted on a day."""
    return [_parcel(day, number) for number in range(PARCELS_A_DAY)]


def _parcel(day: date, number: int) -> Parcel:
    identifier = f"{day:%Y%m%d}-{number:03}"
    chance = random.Random(identifier)
    scanned_at = datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
    scanned_at += timedelta(seconds=chance.randrange(86_400))
    scans = []
    for depot, status in zip(chance.sample(sorted(DEPOTS), len(STATUSES)), STATUSES, strict=True):
        scans.append(Scan(depot, status, scanned_at))
        scanned_at += timedelta(seconds=chance.randrange(3_600, 86_400))
    return Parcel(identifier, chance.randrange(100, 20_000), scans)


def depots() -> list[Json]:
    """Return all depots."""
    return [{"id": identifier, "city": city} for identifier, city in DEPOTS.items()]


def parcels(within: Range, moment: datetime) -> Records:
    """Return the parcels that were last updated within a range of time."""
    begin, end = within
    records = [
        parcel.record(last)
        for parcel in _list_moving_parcels(within, moment)
        if (last := parcel.last_scan(moment)) is not None and begin <= last.time <= end
    ]
    return {f"{record['updated_at']}/{record['id']}": record for record in records}


def scans(depot: str, within: Range, moment: datetime) -> Records:
    """Return the scans at a depot within a range of time."""
    begin, end = within
    records = [
        {"parcel_id": parcel.id, "status": scan.status, "scanned_at": scan.time.strftime(TIME)}
        for parcel in _list_moving_parcels(within, moment)
        for scan in parcel.scans
        if scan.depot == depot and begin <= scan.time <= min(end, moment)
    ]
    return {f"{record['scanned_at']}/{record['parcel_id']}": record for record in records}


def _list_moving_parcels(within: Range, moment: datetime) -> Iterator[Parcel]:
    """Yield the parcels that may have a scan within a range of time, up to the present."""
    begin, end = within
    day = (max(begin, FIRST_DAY + LONGEST_WAY) - LONGEST_WAY).date()
    last = min(end, moment).date()
    while day <= last:
        yield from parcels_of(day)
        day += timedelta(days=1)


def answer(target: str, moment: datetime) -> Json:
    """Return the answer to a request.

    Args:
        target: the path and the query.
        moment: the present, after which nothing has happened yet.

    Raises:
        RequestError: there is no such path, or a parameter is not valid.
    """
    address = urllib.parse.urlsplit(target)
    query = dict(urllib.parse.parse_qsl(address.query))
    match address.path.strip("/").split("/"):
        case ["depots"]:
            return {"depots": depots()}
        case ["parcels"]:
            return _page("parcels", parcels(_range(query, moment), moment), query)
        case ["depots", depot, "scans"] if depot in DEPOTS:
            return _page("scans", scans(depot, _range(query, moment), moment), query)
    raise RequestError(HTTPStatus.NOT_FOUND, f"there is no {address.path}")


def _range(query: Mapping[str, str], moment: datetime) -> Range:
    begin = _time(query, "from", moment - timedelta(days=1))
    return begin, _time(query, "to", moment)


def _time(query: Mapping[str, str], name: str, default: datetime) -> datetime:
    if name not in query:
        return default
    try:
        return datetime.strptime(query[name], TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"{name} is not a time as {TIME}") from None


def _page(name: str, records: Records, query: Mapping[str, str]) -> Json:
    limit = query.get("limit", str(LIMIT))
    if not limit.isdecimal():
        raise RequestError(HTTPStatus.BAD_REQUEST, "limit is not a number")
    size = max(1, min(int(limit), LIMIT))
    remaining = sorted(place for place in records if place > query.get("after", ""))
    page = remaining[:size]
    return {
        name: [records[place] for place in page],
        "next": page[-1] if len(remaining) > size else None,
    }


def present() -> datetime:
    """Return the present time."""
    return datetime.now(timezone.utc)


@contextmanager
def serve(key: str, clock: Callable[[], datetime] = present) -> Iterator[str]:
    """Serve on a free port while the context lasts; yields the base URL.

    Args:
        key: the API key that every request needs.
        clock: returns the time up to which there are data.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body are sent together
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            try:
                self._check_key()
                self._send(HTTPStatus.OK, answer(self.path, clock()))
            except RequestError as error:
                self._send(error.status, {"message": str(error)})

        def _check_key(self) -> None:
            sent_key = self.headers.get("X-Api-Key", "")
            if not secrets.compare_digest(sent_key.encode(), key.encode()):
                raise RequestError(HTTPStatus.UNAUTHORIZED, "X-Api-Key is not the API key")

        def _send(self, status: HTTPStatus, content: Json) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end and return its exit code, as a shell reports it.

    Ctrl-C and a request to terminate end the command, and this process only after it.
    """
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends it to the command too
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return 127
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code


def _environment(url: str, key: str) -> dict[str, str]:
    """Return the variables of a command; requests to this machine do not go through a proxy."""
    direct = {
        name: ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
        for name in ("no_proxy", "NO_PROXY")
    }
    return {**os.environ, **direct, "CARRIER_URL": url, "CARRIER_KEY": key}


def main() -> int:
    command = sys.argv[1:]
    if not command:
        print("usage: python examples/carrier_api.py COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    key = secrets.token_hex(16)
    with serve(key) as url:
        return run(command, _environment(url, key))


if __name__ == "__main__":
    sys.exit(main())
