"""The scenarios: a manifest of `manifests/`, a config, and the API that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.declarative import answers
from tests.e2e.declarative.api import ROUNDS, orders, tree
from tests.e2e.declarative.engines import Job
from tests.programs.recording_api import Script

Json = dict[str, Any]

MANIFESTS = Path(__file__).parent / "manifests"


@dataclass(frozen=True)
class Scenario:
    """A manifest, and the API that it reads.

    Attributes:
        name: the name of the manifest.
        api: returns the script of the server for a round, 0 or 1.
        config: the config, besides `url`.
        rounds: 2 to read again from the states of the first read.
        state: the states with which the first read begins.
        waits: whether the waits are compared.
        real_time: whether waits take their time.
    """

    name: str
    api: Callable[[int], Script]
    config: Json = field(default_factory=dict)
    rounds: int = 1
    state: Json = field(default_factory=dict)
    waits: bool = False
    real_time: bool = False

    @property
    def manifest(self) -> Json:
        document: Json = yaml.safe_load((MANIFESTS / f"{self.name}.yaml").read_text())
        return document

    def job(self, round_: int = 0, state: Json | None = None, **changes: Any) -> Job:
        """Return the job of a round."""
        fields = {
            "manifest": self.manifest,
            "config": self.config,
            "streams": self.streams,
            "incremental": self.incremental,
            "now": ROUNDS[round_].isoformat(),
            "state": self.state if state is None else state,
            "real_time": self.real_time,
        }
        return Job(**{**fields, **changes})

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        names = tuple(str(stream["name"]) for stream in self._described)
        return answers.DYNAMIC if self.name == "dynamic_streams" else names

    @property
    def incremental(self) -> frozenset[str]:
        """The names of the streams that have a cursor."""
        names = (stream["name"] for stream in self._described if "incremental_sync" in stream)
        return frozenset(map(str, names))

    @property
    def _described(self) -> list[Json]:
        """The streams, with what the definitions to which they refer have."""
        manifest = self.manifest
        return [_resolve(stream, manifest) for stream in manifest.get("streams", ())]


def _resolve(stream: Json, manifest: Json) -> Json:
    """Return a component with what it takes from a definition."""
    if "$ref" not in stream:
        return stream
    definition = manifest["definitions"][stream["$ref"].rpartition("/")[2]]
    return {**_resolve(definition, manifest), **stream}


def _orders(round_: int) -> Script:
    return tree({"/orders": orders(round_)})


START = "2024-01-03T00:00:00Z"
TENANT = {"tenant": "aCme", "number": 7, "shops": ["1", "2"]}
LOGIN = {"user": "me", "password": "a long enough pass word, 0123456789", "key": "key-1"}
CLIENT = {
    "client_id": "client",
    "client_secret": "client secret",
    "refresh_token": "refresh-0",
    "credentials": {
        "refresh_token": "refresh-kept",
        "access_token": "access-kept",
        "token_expiry_date": "2024-01-01T00:00:00Z",
    },
}
_MIGRATED_CURSOR = "2024-01-21T00:00:00Z"
_LEGACY = {
    "d1": {"updated_at": "2024-01-14T00:00:00Z"},
    "d2": {"updated_at": "2024-01-25T00:00:00Z"},
}
_SAVED = {
    "by_key": _LEGACY,
    "by_number": {
        "1": {"updated_at": "2024-01-20T00:00:00Z"},
        "2": {"updated_at": _MIGRATED_CURSOR},
    },
    "one_for_all": {"updated_at": "2024-01-22T00:00:00Z"},
    "without_parent_slice": {
        "states": [
            {"partition": {"shop": n}, "cursor": {"updated_at": _MIGRATED_CURSOR}}
            for n in (1, 2, 3)
        ],
        "state": {"updated_at": _MIGRATED_CURSOR},
    },
    "some_partitions": {
        "use_global_cursor": False,
        "states": [
            {
                "partition": {"parent_slice": {}, "shop": shop},
                "cursor": {"updated_at": f"2024-01-2{shop}T00:00:00Z"},
            }
            for shop in (1, 2, 3, 9)
        ],
        "state": {"updated_at": "2024-01-24T00:00:00Z"},
        "lookback_window": 3600,
    },
    "was_global": {
        "use_global_cursor": True,
        "state": {"updated_at": "2024-01-24T00:00:00Z"},
        "lookback_window": 86400,
    },
    "ranges": {
        "state_type": "date-range",
        "slices": [
            {"start": START, "end": "2024-01-09T00:00:00Z"},
            {"start": "2024-01-14T00:00:00Z", "end": "2024-01-20T00:00:00Z"},
        ],
    },
    "other_format": {"updated_at": "2024-01-22T00:00:00.250000Z"},
    "before_the_start": {"updated_at": "2023-12-01T00:00:00Z"},
    "in_the_future": {"updated_at": "2025-01-01T00:00:00Z"},
    "after_a_full_read": {"__ab_no_cursor_state_message": True},
}

SCENARIOS = [
    Scenario("page_numbers", _orders, {"size": 6}),
    Scenario("page_offsets", _orders, {"size": 6}),
    Scenario("page_cursors", _orders, {"state": "open"}),
    Scenario(
        "authenticators", _orders, {**LOGIN, "credentials": {"kind": "token", "token": "chosen"}}
    ),
    Scenario("oauth", answers.tokens, CLIENT),
    Scenario("logins", answers.logins, LOGIN),
    Scenario("error_handlers", answers.errors, {"factor": 3}, waits=True),
    Scenario("failures", answers.failures),
    Scenario("decoders", answers.serve_encodings),
    Scenario("transformations", answers.customers, {"tenant": "acme", "shops": [1, 3]}),
    Scenario("request_bodies", answers.serve_anything, TENANT),
    Scenario("intervals", answers.days, {"start": START, "days": 2}, rounds=2),
    Scenario("datetime_formats", answers.formats, rounds=2),
    Scenario("feeds", answers.feeds, {"start": START}, rounds=2),
    Scenario("clamping", _orders, {"start": "2024-01-03T07:20:00Z"}, rounds=2),
    Scenario("counts", answers.numbers, rounds=2),
    Scenario("lists", answers.shops, {"start": START, "shops": ["1", "3"]}, rounds=2),
    Scenario("parents", answers.shops, {"start": START}, rounds=2),
    Scenario("incremental_parents", answers.shops, {"start": START}, rounds=2),
    Scenario("new_partitions", answers.grow, {"start": START}, rounds=2),
    Scenario("older_states", answers.shops, {"start": START}, rounds=2, state=_SAVED),
    Scenario("dynamic_streams", answers.tables),
    Scenario("dynamic_schema", answers.fields),
    Scenario("cache", answers.shops, {"start": START}),
    Scenario("budgets", answers.slow, real_time=True),
    Scenario(
        "templates",
        answers.serve_anything,
        {
            **TENANT,
            "start": START,
            "nested": {"deep": {"name": "found"}},
            "rows": [{"name": "a", "on": True}, {"name": "b", "on": False}, {"name": "c", "on": 1}],
        },
        rounds=2,
    ),
    Scenario("reports", answers.reports, {"start": START}, rounds=2),
    Scenario(
        "config_rules",
        _orders,
        {"account": "acme", "region": "north", "level": 3, "options": {"kind": "a"}},
    ),
]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
