"""The demo connection `carrier`: its API, the program that runs it beside a command, and its manifest."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.declarative.manifest import clock
from connectors.declarative.source import ManifestSource
from connectors.declarative.stream import ManifestStream
from connectors.sdk import run
from examples import carrier_api as api
from tests.support.elt import Elt
from tests.support.examples import examples
from tests.support.project import REPOSITORY, Project

FOLDER = REPOSITORY / "elt_assets" / "defs" / "carrier"
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
SINCE = {"from": "2026-02-01T00:00:00Z"}
KEY = "the-key"
WITH_API = [sys.executable, "examples/carrier_api.py"]
Json = dict[str, Any]


def collected(path: str, parameters: Mapping[str, Any], now: datetime = NOON) -> list[Json]:
    """Follow the pages of a resource."""
    found: list[Json] = []
    after = ""
    while True:
        query = urllib.parse.urlencode({**parameters, "after": after})
        page = api.answer(f"{path}?{query}", now)
        after = page.pop("next")
        [records] = page.values()
        found += records
        if after is None:
            return found


def between(begin: datetime, end: datetime) -> dict[str, str]:
    return {"from": begin.strftime(api.TIME), "to": end.strftime(api.TIME)}


@settings(deadline=None, max_examples=examples(30))
@given(
    cuts=st.sets(st.integers(1, 5 * 86_400 - 1), max_size=6),
    limit=st.integers(20, 300),
    path=st.sampled_from(["/parcels", "/depots/ber/scans"]),
)
def test_ranges_that_follow_each_other_hold_every_record_once(
    cuts: set[int], limit: int, path: str
) -> None:
    first = NOON - timedelta(days=5)
    begins = [first + timedelta(seconds=cut) for cut in sorted({0, *cuts})]
    ends = [*(begin - timedelta(seconds=1) for begin in begins[1:]), NOON]
    ranges = [between(*each) for each in zip(begins, ends, strict=True)]
    parts = [collected(path, {**each, "limit": limit}) for each in ranges]
    whole = collected(path, between(first, NOON))
    assert [record for part in parts for record in part] == whole
    assert len(whole) > 50


def test_the_data_of_the_past_stay_and_those_of_a_day_are_added() -> None:
    later = NOON + timedelta(days=1)
    before, after = (collected("/depots/par/scans", SINCE, now) for now in (NOON, later))
    assert after[: len(before)] == before
    assert 5 < len(after) - len(before) < 50
    parcels, then = (
        {record["id"]: record for record in collected("/parcels", SINCE, now)}
        for now in (NOON, later)
    )
    assert set(parcels) < set(then)
    assert all(then[each]["updated_at"] >= parcels[each]["updated_at"] for each in parcels)
    assert any(then[each] != parcels[each] for each in parcels)


def test_a_range_of_any_size_is_answered() -> None:
    assert collected(
        "/parcels", {"from": "0001-01-01T00:00:00Z", "to": "2025-02-01T00:00:00Z"}, NOON
    )
    assert collected("/parcels", between(NOON, NOON - timedelta(days=1))) == []
    assert collected("/parcels", between(NOON + timedelta(days=1), NOON)) == []


@pytest.fixture
def url() -> Iterator[str]:
    with api.serve(KEY, lambda: NOON) as found:
        yield found


def fetched(url: str, key: str = KEY) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers={"X-Api-Key": key})) as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("path", "key", "status", "text"),
    [
        ("depots", "another", 401, "is not the API key"),
        ("depots", "", 401, "is not the API key"),
        ("vans", KEY, 404, "there is no /vans"),
        ("depots/xyz/scans", KEY, 404, "there is no /depots/xyz/scans"),
        ("parcels?from=yesterday", KEY, 400, "from is not a time"),
        ("parcels?limit=many", KEY, 400, "limit is not a number"),
    ],
)
def test_a_request_that_is_wrong_is_refused_with_the_reason(
    url: str, path: str, key: str, status: int, text: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetched(f"{url}/{path}", key)
    with refused.value as answer:
        assert answer.code == status
        assert text in json.load(answer)["message"]


class Carrier(ManifestSource):
    """The source of the manifest; `close` closes what it has opened."""

    def __init__(self) -> None:
        super().__init__(FOLDER / "manifest.yaml")
        self._opened: list[ManifestStream] = []

    def streams(self, config: Any) -> list[ManifestStream]:
        found = super().streams(config)
        self._opened += found
        return found

    def close(self) -> None:
        for stream in self._opened:
            stream._readers.environment.close()


def source(url: str, folder: Path, verb: str, now: datetime = NOON, **files: Any) -> list[Json]:
    """Run a command of the manifest's source, and return its messages."""
    arguments = [verb]
    files["config"] = {"url": url, "api_key": KEY, "start_date": SINCE["from"]}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
        arguments += [f"--{name}", str(folder / name)]
    output = io.BytesIO()
    with clock.frozen(now), contextlib.closing(Carrier()) as carrier:
        code = run(carrier, arguments, output)
    assert code == 0, output.getvalue().decode()
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_the_source_can_be_reached(url: str, tmp_path: Path) -> None:
    found = source(url, tmp_path, "check")
    assert [each for each in found if each["type"] == "CONNECTION_STATUS"] == [
        {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}
    ]


def test_the_catalog_is_the_one_that_the_source_reports(url: str, tmp_path: Path) -> None:
    assert _discovered(url, tmp_path) == json.loads((FOLDER / "catalog.json").read_text())


def test_a_read_and_the_next_one_bring_every_record(url: str, tmp_path: Path) -> None:
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    catalog = {"streams": [{"stream": s, **modes} for s in _discovered(url, tmp_path)["streams"]]}
    catalog["streams"][0]["sync_mode"] = "full_refresh"
    messages = source(url, tmp_path, "read", catalog=catalog)
    assert _records(messages, "depots") == api.depots()
    parcels, scans = _records(messages, "parcels"), _records(messages, "scans")
    assert parcels == collected("/parcels", SINCE)
    assert scans == _all_scans(NOON)
    states = {
        message["state"]["stream"]["stream_descriptor"]["name"]: message["state"]
        for message in messages
        if message["type"] == "STATE"
    }
    later = NOON + timedelta(hours=6)
    with api.serve(KEY, lambda: later) as url_later:
        files = {"catalog": catalog, "state": list(states.values())}
        messages = source(url_later, tmp_path, "read", later, **files)
    new_parcels, new_scans = _records(messages, "parcels"), _records(messages, "scans")
    assert 0 < len(new_parcels) < 100 and 0 < len(new_scans) < 100
    rows = {record["id"]: record for record in (*parcels, *new_parcels)}
    assert rows == {record["id"]: record for record in collected("/parcels", SINCE, later)}
    assert _unique([*scans, *new_scans]) == _unique(_all_scans(later))


def _discovered(url: str, folder: Path) -> Json:
    [found] = [each for each in source(url, folder, "discover") if each["type"] == "CATALOG"]
    catalog: Json = found["catalog"]
    return catalog


def _records(messages: Sequence[Json], stream: str) -> list[Json]:
    records = (message["record"] for message in messages if message["type"] == "RECORD")
    return [record["data"] for record in records if record["stream"] == stream]


def _all_scans(now: datetime) -> list[Json]:
    return [
        {**record, "depot_id": depot}
        for depot in api.DEPOTS
        for record in collected(f"/depots/{depot}/scans", SINCE, now)
    ]


def _unique(scans: Sequence[Json]) -> set[tuple[str, str, str]]:
    return {(each["parcel_id"], each["status"], each["depot_id"]) for each in scans}


@pytest.fixture
def demo(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of the repository, with a home of the test's own."""
    monkeypatch.delenv("ELT_DEFS")
    monkeypatch.chdir(REPOSITORY)


@pytest.mark.process
@pytest.mark.usefixtures("demo")
def test_the_source_follows_the_rules_of_its_protocol(
    elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = api.present().replace(hour=0, minute=0, second=0, microsecond=0)
    config = {"start_date": (midnight - timedelta(days=10)).strftime(api.TIME)}
    with api.serve(KEY, lambda: midnight) as url:
        monkeypatch.setenv("CARRIER_URL", url)
        monkeypatch.setenv("CARRIER_KEY", KEY)
        elt("test-connector", "carrier", "--cuts", "1", "--config", json.dumps(config))


ASK = (
    "import os, sys, urllib.request as r;"
    "ask = lambda: r.urlopen(r.Request(os.environ['CARRIER_URL'] + '/depots',"
    " headers={'X-Api-Key': os.environ['CARRIER_KEY']})).status;"
)


def started(script: str) -> subprocess.Popen[str]:
    """Start a Python script beside the API, in a process group of its own."""
    return subprocess.Popen(
        [*WITH_API, sys.executable, "-c", ASK + script],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.process
def test_the_api_runs_as_long_as_the_command() -> None:
    with started("print(os.environ['CARRIER_URL'], ask()); sys.exit(7)") as process:
        assert process.stdout is not None
        url, status = process.stdout.read().split()
        assert (process.wait(), status) == (7, "200")
    with pytest.raises(urllib.error.URLError, match="refused"):
        fetched(f"{url}/depots")


@pytest.mark.process
def test_two_commands_at_the_same_time_have_each_its_api() -> None:
    script = "print(os.environ['CARRIER_URL'], flush=True); sys.stdin.read(); sys.exit(ask() - 200)"
    command = [*WITH_API, sys.executable, "-c", ASK + script]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as one,
        subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as other,
    ):
        assert one.stdout is not None and other.stdout is not None
        assert one.stdout.readline() != other.stdout.readline()
        for process in (one, other):
            process.communicate()
            assert process.returncode == 0


@pytest.mark.process
def test_ctrl_c_ends_the_command_first_and_then_the_api() -> None:
    script = (
        "import signal, time;"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(ask() - 195));"
        "print('ready', flush=True);"
        # One long sleep would not be interrupted by a signal that arrives before it begins.
        "[time.sleep(0.1) for _ in range(600)]"
    )
    with started(script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=20) == 5


@pytest.mark.process
def test_a_request_to_terminate_ends_the_command_too() -> None:
    with started("import time; print('ready', flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begin = time.monotonic()
        process.terminate()
        assert process.wait(timeout=20) == 128 + signal.SIGTERM
        assert time.monotonic() - begin < 20


@pytest.mark.process
def test_a_command_that_does_not_exist_is_reported() -> None:
    done = subprocess.run(
        [*WITH_API, "no-such-command"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert "no-such-command cannot be started: No such file" in done.stderr
    done = subprocess.run(WITH_API, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:6]) == (2, "usage:")


@pytest.mark.process
@pytest.mark.usefixtures("demo")
def test_connections_load_without_the_api_and_an_error_names_what_is_missing(elt: Elt) -> None:
    assert "valid carrier" in elt("validate", "carrier")
    assert "CARRIER_URL, which is not set" in elt.refuse("check", "carrier")["message"]
