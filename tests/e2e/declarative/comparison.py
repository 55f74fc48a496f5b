"""The properties that two engines must have in common: canonical forms of requests, records and states.

Requests are compared in their order within a slice. Requests belong to one slice if they differ only in what
names a page.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from tests.e2e.declarative.api import parse_parameters
from tests.e2e.declarative.engines import Outcome
from tests.programs.recording_api import Received

Json = dict[str, Any]

PAGE_NAMES = frozenset(
    {"page", "page0", "offset", "after", "size", "limit", "x-page", "x-offset", "x-after", "x-size"}
)
"""The names of what names a page, anywhere in a request."""
NO_STATE = {"__ab_no_cursor_state_message": True}
"""The state that airbyte-cdk sends for a stream without a cursor; connectors.declarative sends none."""
_EPOCH = re.compile(r"[0-9]{10,16}(\.[0-9]+)?")
_FAR = 1e11
"""Seconds since 1970 that are no time of a record, but milliseconds or microseconds."""
_OF_THE_CLIENT = frozenset(
    {"host", "user-agent", "accept", "accept-encoding", "connection", "content-length"}
)
"""The headers that an HTTP client adds."""


def requests(outcome: Outcome) -> dict[str, list[Json]]:
    """Return the requests by slice, in their order within it."""
    return group_by_slice(request(received) for received in outcome.requests)


def group_by_slice(canonical: Iterable[Json]) -> dict[str, list[Json]]:
    """Return canonical requests by slice, in their order within it."""
    groups: dict[str, list[Json]] = {}
    for entry in canonical:
        groups.setdefault(slice_of(entry), []).append(entry)
    return groups


def request(received: Received) -> Json:
    """Return a request without what the HTTP client chooses."""
    headers = {
        name: _header(name, value)
        for name, value in received.headers.items()
        if name not in _OF_THE_CLIENT and (received.body or name != "content-type")
    }
    return {
        "method": received.method,
        "path": urllib.parse.unquote(received.path),
        "params": sorted(received.query),
        "headers": headers,
        "body": _body(received),
    }


def _header(name: str, value: str) -> Any:
    """Return a header in a form that does not depend on how it was written."""
    if name == "content-type":
        return value.partition(";")[0]
    scheme, _, token = value.rpartition(" ")
    if token.count(".") == 2 and token.startswith("ey"):
        return [scheme, *map(_decode, token.split(".")[:2])]
    return value


def _decode(part: str) -> Any:
    """Return a part of a JSON Web Token."""
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def _body(received: Received) -> Any:
    kind = received.headers.get("content-type", "")
    if not received.body:
        return None
    if "json" in kind:
        return json.loads(received.body)
    if "form" in kind:
        return sorted(received.form)
    return received.body.decode("latin-1")


def slice_of(canonical: Json) -> str:
    """Return what tells apart the slices of requests."""
    return json.dumps(_remove_pages(canonical), sort_keys=True)


def _remove_pages(value: Any) -> Any:
    if isinstance(value, Mapping):
        remainder = {
            name: _remove_pages(entry) for name, entry in value.items() if name not in PAGE_NAMES
        }
        return {name: entry for name, entry in remainder.items() if entry not in ({}, [], None)}
    if isinstance(value, list):
        return [_remove_pages(entry) for entry in value if not _is_page(entry)]
    return value


def _is_page(value: Any) -> bool:
    """Return whether a value is a parameter that names a page."""
    return isinstance(value, list | tuple) and len(value) == 2 and value[0] in PAGE_NAMES


def records(outcome: Outcome) -> dict[str, list[str]]:
    """Return the records of each stream, in the order of their JSON: slices may be read at the same time."""
    return {
        name: sorted(json.dumps(_numbers(record), sort_keys=True) for record in stream_records)
        for name, stream_records in sorted(outcome.records.items())
    }


def _numbers(value: Any) -> Any:
    """Return a value in which 1.0 is 1: they are one number."""
    if isinstance(value, Mapping):
        return {name: _numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def states(outcome: Outcome) -> Json:
    """Return the meaning of the last state of each stream, except one that says only that there is none."""
    states_by_stream = {
        name: state for name, state in sorted(outcome.states.items()) if state != NO_STATE
    }
    return {name: interpret(state) for name, state in states_by_stream.items()}


def interpret(state: Any) -> Json:
    """Return the meaning of a state: the instant of each partition, that of all partitions, and the states of
    the parents. How long a read took (`lookback_window`) is left out."""
    state = state or {}
    if "states" in state or "use_global_cursor" in state:
        partitions = {
            json.dumps(_partition(entry["partition"]), sort_keys=True): _values(entry["cursor"])
            for entry in state.get("states") or ()
        }
        return {
            "partitions": partitions,
            "all": _values(state.get("state") or {}),
            "is_global": bool(state.get("use_global_cursor")),
            "parents": {
                name: interpret(entry) for name, entry in (state.get("parent_state") or {}).items()
            },
        }
    return _values(state)


def _partition(values: Mapping[str, Any]) -> Json:
    """Return the values of a partition; `parent_slice` only if there is one."""
    entries = {
        name: _partition(value) if name == "parent_slice" and isinstance(value, Mapping) else value
        for name, value in values.items()
    }
    return {name: value for name, value in entries.items() if value or name != "parent_slice"}


def _values(cursor: Mapping[str, Any]) -> Json:
    return {name: instant(value) for name, value in cursor.items() if name not in NO_STATE}


def instant(value: Any) -> Any:
    """Return the instant of a date-time as ISO 8601 writes it, in UTC; other values as texts."""
    if _EPOCH.fullmatch(str(value)):
        seconds = float(value)
        while seconds > _FAR:
            seconds /= 1000
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
    try:
        time = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return str(value)
    zoned = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    return zoned.astimezone(timezone.utc).isoformat()


def failures(outcome: Outcome) -> dict[str, str]:
    """Return how each stream ended."""
    return dict(sorted(outcome.status.items()))


def configs(outcome: Outcome) -> list[Json]:
    """Return the configs that the engine asks to save, with date-times as instants."""
    return [
        _instants(control["connectorConfig"]["config"])
        for control in outcome.select_type("CONTROL")
    ]


def _instants(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _instants(entry) for name, entry in value.items()}
    return instant(value) if isinstance(value, str) else value


def waits(outcome: Outcome) -> list[float]:
    """Return the waits, to a tenth of a second, from the shortest one: streams wait at the same time."""
    return sorted(round(seconds, 1) for seconds in outcome.waits)


def ends_of_intervals(outcome: Outcome, time: datetime) -> frozenset[str]:
    """Return what a state may have as the end of an interval: what was requested as `until`, or the present
    time, in each precision."""
    ends = {instant(value) for received in outcome.requests for value in _ends(received)}
    days = {time.strftime(text) for text in ("%Y-%m-%dT00:00:00+00:00", "%m/%d/%Y")}
    return frozenset({*ends, *days, time.isoformat()})


def _ends(received: Received) -> list[str]:
    parameters = parse_parameters(received)
    return [parameters["until"]] if "until" in parameters else []


ASPECTS = {
    "requests": requests,
    "records": records,
    "states": states,
    "failures": failures,
    "configs": configs,
}
"""The parts that are compared in each scenario."""


def observe(outcome: Outcome, aspects: Iterable[str]) -> Json:
    """Return the canonical forms of some aspects of an outcome."""
    return {name: {**ASPECTS, "waits": waits}[name](outcome) for name in aspects}
