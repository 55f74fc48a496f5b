"""The differences between connectors.declarative and airbyte-cdk, and their reasons.

Each deviation says what is expected instead. A test fails if one is not needed any more.

These are not of one scenario. `laboratory.compare` accounts for the first three; the data avoids the others:

- A stream without a cursor has no state. airbyte-cdk sends `__ab_no_cursor_state_message`, from which
  nothing can be resumed.
- Nulls are written in records. airbyte-cdk leaves out the fields of a record that are null, when it prints
  the record.
- After an interval the state is its end. The specification: if the last record is earlier than the end of
  the interval, the end is stored. airbyte-cdk stores the time of the last record, and reads the rest of
  the interval again.
- With `is_compare_strictly`, no interval begins and ends with the same text. An API that refuses equal
  times refuses equal days too. airbyte-cdk compares the times before it writes them as days.
- With `clamping`, a day, week or month that was read in part is read again from its beginning. airbyte-cdk
  goes on with the next one, and misses the rest of it; its state does not move at all if the start is
  within a day, week or month.
- Where records are filtered, all of the day in which a lookback window begins is read. A format of days
  does not tell which records of that day are within the window. airbyte-cdk drops them all, unless the
  window begins with the day.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.declarative.comparison import group_by_slice

Json = dict[str, Any]

START = "2024-01-03T00:00:00Z"
_NOT_A_TIME = re.compile(r":(1[0-4]|5[0-9])Z$")
"""Matches the seconds that the times of records do not have."""
FIRST = ("first",)
BOTH = ("first", "second")


@dataclass(frozen=True)
class Deviation:
    """A difference that is intended.

    Attributes:
        scenario: the name of the manifest.
        title: what connectors.declarative does.
        reason: why it is right.
        expected: changes what is observed of airbyte-cdk into what is expected.
        rounds: the reads in which it shows: "first", "second".
        is_certain: whether it shows in all of them; it may depend on the threads of airbyte-cdk.
    """

    scenario: str
    title: str
    reason: str
    expected: Callable[[Json], None]
    rounds: tuple[str, ...] = FIRST
    is_certain: bool = True


def _one_login(observed: Json) -> None:
    """Expect one request for a token where there are several in sequence."""
    for requests in observed["requests"].values():
        if requests[0]["path"] == "/login":
            del requests[2:]


def _share_token(observed: Json) -> None:
    """Expect one token for the streams with the same credentials."""
    for requests in observed["requests"].values():
        if requests[0]["path"] == "/token" and len(requests) > 1:
            del requests[-1]


def _exact_waits(observed: Json) -> None:
    """Expect waits without the second that is added, and growing ones where none are declared."""
    declared = [seconds - 1 for seconds in observed["waits"] if 2.5 < seconds < 40]
    until = [seconds for seconds in observed["waits"] if seconds > 40]
    observed["waits"] = sorted([*declared, *until, 1.0, 2.0, 4.0])


def _no_html(observed: Json) -> None:
    """Expect a failure where the body is not JSON."""
    observed["failures"]["not_json"] = "INCOMPLETE"


def _shops_once(observed: Json) -> None:
    """Expect each request for the shops once."""
    _once(observed, "/shops")


def _parents_once(observed: Json) -> None:
    """Expect each request for the records of a parent once."""
    _once(observed, "/shops", "/depots")


def _once(observed: Json, *paths: str) -> None:
    for key, requests in observed["requests"].items():
        if requests[0]["path"] in paths:
            observed["requests"][key] = _distinct(requests)


def _partitions_once(observed: Json) -> None:
    """Expect each partition once, although several records of its parent name it."""
    _parents_once(observed)
    for key, requests in observed["requests"].items():
        if requests[0]["path"].startswith("/owners/"):
            observed["requests"][key] = _distinct(requests)
    observed["records"]["nested_key"] = sorted(set(observed["records"]["nested_key"]))


def _new_ones_from_the_start(observed: Json) -> None:
    """Expect that partitions without a state are read from the start. airbyte-cdk begins some seconds before
    the latest time of a record, or before the end of the first read."""
    changed = [request for group in observed["requests"].values() for request in group]
    for request in changed:
        request["params"] = [
            (name, START if name == "since" and _NOT_A_TIME.search(value) else value)
            for name, value in request["params"]
        ]
    observed["requests"] = group_by_slice(changed)
    _parents_once(observed)


def _older_record(observed: Json) -> None:
    """Expect the record of a new partition that is older than the first read."""
    _new_ones_from_the_start(observed)
    late = json.dumps({"id": 99, "updated_at": "2024-01-10T00:00:00Z"})
    observed["records"]["orders_of_shop"] = sorted([*observed["records"]["orders_of_shop"], late])


def _migrate(observed: Json) -> None:
    """Expect that partitions continue from the states of an older version, with one state each."""
    begins = {
        "/of/d1": "2024-01-14T00:00:00Z",
        "/of/d2": "2024-01-25T00:00:00Z",
        "/shops/1/orders": "2024-01-20T00:00:00Z",
        "/shops/2/orders": "2024-01-21T00:00:00Z",
    }
    changed = [entry for group in observed["requests"].values() for entry in group]
    for entry in changed:
        begin = begins.get(entry["path"])
        if begin is not None and ("since", START) in entry["params"]:
            entry["params"] = sorted({**dict(entry["params"]), "since": begin}.items())
    observed["requests"] = group_by_slice(changed)
    starts = {1: "2024-01-20", 2: "2024-01-21", "/of/d2": "2024-01-25"}
    for name, key in (("by_key", "id"), ("by_number", "shop")):
        read = [json.loads(entry) for entry in observed["records"][name]]
        observed["records"][name] = [
            json.dumps(entry, sort_keys=True)
            for entry in read
            if entry["updated_at"] >= starts.get(entry[key], START)
        ]
    for key in ('{"shop": "1"}', '{"shop": "2"}'):
        del observed["states"]["by_number"]["partitions"][key]
    _one_state_each(observed)


def _one_state_each(observed: Json) -> None:
    """Expect a state for each partition in place of one for all."""
    state = observed["states"]["was_global"]
    state["is_global"] = False
    for shop in (1, 2, 3):
        state["partitions"].setdefault(json.dumps({"shop": shop}), dict(state["all"]))


def _distinct(requests: list[Json]) -> list[Json]:
    return [request for index, request in enumerate(requests) if request not in requests[:index]]


def _json_texts(observed: Json) -> None:
    """Expect JSON where a value becomes text, in place of the notation of Python."""
    for record in observed["records"]["normalized"]:
        assert "{'deep': [1, None]}" in record
    observed["records"]["normalized"] = [
        record.replace("{'deep': [1, None]}", json.dumps('{"deep":[1,null]}')[1:-1])
        for record in observed["records"]["normalized"]
    ]


def _texts_stay(observed: Json) -> None:
    """Expect texts of records and of slices as texts where no type is declared."""
    records = map(json.loads, observed["records"]["of_config"])
    observed["records"]["of_config"] = sorted(
        json.dumps({**record, "from_shop": str(record["from_shop"])}, sort_keys=True)
        for record in records
    )


def _no_field_is_lost(observed: Json) -> None:
    """Expect no field in place of another one of its name: it has its path, or the stream fails."""
    records = map(json.loads, observed["records"]["flat_without_lists"])
    observed["records"]["flat_without_lists"] = [
        json.dumps({**record, "customer.id": 10 * record["id"]}, sort_keys=True)
        for record in records
    ]
    del observed["records"]["snake"]
    observed["failures"]["snake"] = "INCOMPLETE"


_PARENTS = {
    "cache": _shops_once,
    "incremental_parents": _parents_once,
    "older_states": _parents_once,
}
DEVIATIONS = [
    *(
        Deviation(
            scenario,
            "Each page of a parent is read once.",
            "airbyte-cdk reads it again if two streams need it at the same time.",
            expected,
            BOTH,
            is_certain=False,
        )
        for scenario, expected in _PARENTS.items()
    ),
    Deviation(
        "oauth",
        "Streams with the same credentials share a token.",
        "airbyte-cdk requests a token for each stream, and APIs limit the number of tokens.",
        _share_token,
    ),
    Deviation(
        "logins",
        "One login serves a stream.",
        "airbyte-cdk logs in twice for a Bearer token, because it asks for the token twice.",
        _one_login,
    ),
    Deviation(
        "error_handlers",
        "A wait is as long as the manifest or the API says; without either it doubles.",
        "airbyte-cdk adds a second to each, and counts retries after 429 separately.",
        _exact_waits,
    ),
    Deviation(
        "failures",
        "A body that is not JSON is an error.",
        "airbyte-cdk takes HTML for a page without records, and the stream seems to be complete.",
        _no_html,
    ),
    Deviation(
        "parents",
        "A partition that several records of the parent name is read once, as is each page of the parent.",
        "airbyte-cdk sends the records of such a partition several times, if it has no cursor.",
        _partitions_once,
        BOTH,
    ),
    Deviation(
        "incremental_parents",
        "A partition that is new in a later read is read from the start.",
        "airbyte-cdk begins with the latest time of all partitions, and misses its older records.",
        _new_ones_from_the_start,
        ("second",),
    ),
    Deviation(
        "new_partitions",
        "A partition that is new in a later read is read from the start.",
        "airbyte-cdk begins with the latest time of all partitions, and misses its older records.",
        _older_record,
        ("second",),
    ),
    Deviation(
        "older_states",
        "LegacyToPerPartitionStateMigration continues each partition from its older state.",
        "airbyte-cdk does not find the migrated states: they lack `parent_slice`, and have numbers as texts.",
        _migrate,
    ),
    Deviation(
        "older_states",
        "After one state for all partitions, each partition has its own again.",
        "One for all is a way of airbyte-cdk to limit memory, which is not needed.",
        _one_state_each,
        ("second",),
        is_certain=False,
    ),
    Deviation(
        "lists",
        "A text stays a text in a field that is added without a type.",
        "airbyte-cdk makes a number of each text that looks like one: 007 becomes 7, and 1.10 becomes 1.1.",
        _texts_stay,
        BOTH,
    ),
    Deviation(
        "transformations",
        "No field is lost to another one that gets its name.",
        "airbyte-cdk stores the last one, and says nothing.",
        _no_field_is_lost,
    ),
    Deviation(
        "transformations",
        "An object that the schema declares as a text becomes JSON.",
        "airbyte-cdk writes it in the notation of Python, which no destination can read.",
        _json_texts,
    ),
]


def allow(scenario: str, round_: str, observed: Json) -> Json:
    """Return what is expected of connectors.declarative, from what is observed of airbyte-cdk."""
    for deviation in DEVIATIONS:
        if deviation.scenario == scenario and round_ in deviation.rounds:
            before = copy.deepcopy(observed)
            deviation.expected(observed)
            assert not deviation.is_certain or observed != before, (
                f"{deviation.title} is no deviation any more"
            )
    return observed


def replace_ends(theirs: Any, ours: Any, ends: frozenset[str]) -> Any:
    """Return a state of airbyte-cdk as it is expected of connectors.declarative: the end of an interval,
    where that is what ours has, and theirs is not later."""
    if isinstance(ours, Mapping):
        theirs_by_name = theirs if isinstance(theirs, Mapping) else {}
        expected = {
            name: replace_ends(theirs_by_name.get(name), value, ends)
            for name, value in ours.items()
        }
        missing = {name: value for name, value in theirs_by_name.items() if name not in ours}
        return {**missing, **{name: value for name, value in expected.items() if value is not None}}
    is_end = isinstance(ours, str) and ours in ends
    return ours if is_end and (theirs is None or str(theirs) <= ours) else theirs


def remove_starts(state: Any, start: str) -> Any:
    """Return a state without what says nothing: that a stream or a partition is read from the start."""
    if not isinstance(state, Mapping):
        return state
    remainder = {
        name: remove_starts(value, start) for name, value in state.items() if value != start
    }
    return {name: value for name, value in remainder.items() if value != {}}
