"""Dagster's UI in a real browser: what a person sees of streams, and does with them.

With `ELT_SCREENSHOTS=docs/images` in the environment the pictures of the docs are taken again, with several
hundred thousand rows.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.programs.windowed_source import windowed
from tests.support.project import BIN, REPOSITORY, Project, find_program

pytestmark = pytest.mark.external

PICTURES = os.environ.get("ELT_SCREENSHOTS")
ROWS = 300_000 if PICTURES else 300
SLOW = 180_000
"""Milliseconds: a run starts a process, and that a JVM."""
DAILY = {
    "type": "daily",
    "start": "2026-01-01",
    "end": "2026-02-01",
    "bind": {"start": "from", "end": "to"},
}

POLARS = """
import dagster as dg
import polars as pl

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")


@dg.asset(
    ins={"readings": dg.AssetIn(["weather", "readings"])},
    partitions_def=DAYS,
    io_manager_key="io_manager",
)
def counts(readings: pl.DataFrame) -> pl.DataFrame:
    return readings.group_by("station").agg(pl.len())
"""


@dataclass(frozen=True)
class Ui:
    url: str
    page: Page
    project: Project

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}/{path}")

    def materialize(self, asset: str) -> None:
        """Click, and go to the page of the run."""
        self.open(f"assets/{asset}")
        self.page.get_by_role("button", name="Materialize").first.click()
        self.page.get_by_role("link", name="View", exact=True).first.click()
        expect(self.page).to_have_url(re.compile("/runs/"))
        self._wait_for(self.page.url.partition("/runs/")[2].partition("?")[0])
        self.page.reload()

    def _wait_for(self, run_id: str) -> None:
        deadline = time.monotonic() + SLOW / 1000
        with dg.DagsterInstance.from_config(str(self.project.home)) as instance:
            while True:
                run = instance.get_run_by_id(run_id)
                if run is not None and run.is_finished:
                    return
                assert time.monotonic() < deadline, f"run {run_id} does not end"
                time.sleep(0.5)

    def shows(self, text: str | re.Pattern[str], timeout: int = SLOW) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=timeout)

    def shoot(self, name: str, part: Locator | None = None) -> None:
        """A picture for the docs, of the page or of a part of it."""
        if PICTURES:
            self.page.wait_for_timeout(3000)  # animations end
            path = str(REPOSITORY / PICTURES / f"{name}.png")
            (self.page if part is None else part).screenshot(path=path)


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    project = Project(tmp_path_factory.mktemp("ui"))
    project.connection(
        "shop",
        source={"connector": "faker", "config": {"count": ROWS}},
        streams=[
            {
                "name": "users",
                "sync_mode": "incremental",
                "destination_sync_mode": "append_dedup",
                "history": True,
                "checks": {"not_null": ["email"], "row_count": {"max": 1, "severity": "warn"}},
            },
            {"name": "products", "destination_sync_mode": "overwrite"},
        ],
    )
    project.discover("shop")
    project.connection("broken", source={"connector": "faker"}, streams=[{"name": "nobody"}])
    (project.root / "defs" / "means.py").write_text(POLARS)
    windowed(project, partitions=DAILY)
    live = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    windowed(project, "lost", config={"fails_at": "2026-01-03T12:00:00+00:00"}, **live)
    with _dagster(project) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_program("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(60_000)
        yield Ui(url, page, project)
        browser.close()


class _dagster:
    """`dagster dev` on a free port."""

    def __init__(self, project: Project):
        self._project = project

    def __enter__(self) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = (self._project.root / "dev.log").open("wb")
        command = [str(BIN / "dagster"), "dev", "-m", "elt_assets.definitions"]
        self._process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            env={
                **self._project.environment,
                "DAGSTER_DISABLE_TELEMETRY": "yes",
                "ELT_ON_BROKEN_CONNECTION": "skip",
            },
            cwd=REPOSITORY,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while not self._is_up(url):
            assert self._process.poll() is None, Path(self._log.name).read_text()
            assert time.monotonic() < deadline, Path(self._log.name).read_text()
            time.sleep(0.5)
        return url

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    @staticmethod
    def _is_up(url: str) -> bool:
        try:
            with urllib.request.urlopen(f"{url}/server_info", timeout=5):
                return True
        except OSError:
            return False


def test_the_graph_shows_connections_streams_and_history(ui: Ui) -> None:
    if PICTURES:
        ui.project.sync("group:shop")
    ui.open("locations/__repository__@elt_assets.definitions/asset-groups/shop")
    for name in ("shop", "users", "users_history", "products"):
        expect(ui.page.get_by_text(name, exact=True).first).to_be_visible()
    ui.shoot("graph")


def test_a_stream_can_be_materialized_in_the_ui_and_shows_its_metadata(ui: Ui) -> None:
    for _ in range(2 if PICTURES else 1):
        ui.materialize("shop/users")
        expect(ui.page.get_by_text("Success", exact=True).first).to_be_visible()
    ui.open("assets/shop/users")
    ui.shows("Row count")
    ui.shows("_airbyte_extracted_at")
    ui.shows("non-nullable")
    ui.shoot("stream")
    ui.page.get_by_role("button", name="Plots").click()
    ui.shows("elt/records_read")
    expect(ui.page.locator("canvas").first).to_be_visible()
    ui.shoot("plots")
    ui.open("assets/shop/users?view=events")
    ui.shows("the first materialisation")  # of the summary: what has changed
    ui.shows("elt/state")
    ui.shows(re.compile('"stream_state"'))
    ui.shows(re.compile('"updated_at"'))
    ui.shoot("state")
    ui.open("assets/shop/users_history?view=events")
    ui.shows("dagster/row_count")
    ui.open("assets/shop/users?view=checks&checkDetail=not_null_email")
    ui.shows("Passed")
    ui.open("assets/shop/users?view=checks&checkDetail=row_count")
    ui.shows("300 rows; there must be at least 0 and at most 1")


def test_a_broken_connection_is_a_failed_check_beside_the_others(ui: Ui) -> None:
    deadline = time.monotonic() + SLOW / 1000
    key = dg.AssetCheckKey(dg.AssetKey(["broken"]), "loads")
    with dg.DagsterInstance.from_config(str(ui.project.home)) as instance:
        while not instance.event_log_storage.get_latest_asset_check_execution_by_key([key]):
            assert time.monotonic() < deadline, "the sensor has not reported the broken connection"
            time.sleep(1)
    ui.open("assets/broken?view=checks&checkDetail=loads")
    ui.shows("Failed")
    ui.shows(re.compile("the connection 'broken' cannot be loaded"))


@pytest.mark.long
def test_days_can_be_backfilled_in_the_ui(ui: Ui) -> None:
    days = 7 if PICTURES else 2
    last = 2 + days
    ui.open("assets/weather/readings")
    ui.page.get_by_role("button", name="Materialize").first.click()
    field = ui.page.get_by_placeholder(re.compile("^ex: 2026"))
    field.fill(f"[2026-01-03...2026-01-{last:02}]")
    field.press("Enter")
    ui.shows(f"{days} partitions")
    ui.shoot("backfill")
    ui.page.get_by_role("button", name="Launch backfill").click()
    days_there = {f"2026-01-{day:02d}" for day in range(3, last + 1)}
    deadline = time.monotonic() + SLOW / 1000
    while _green(ui, "weather", "readings") != days_there and time.monotonic() < deadline:
        time.sleep(2)
    ui.open("assets/weather/readings?view=partitions")
    ui.shows(f"Materialized ({days})")
    ui.shows("Failed (0)")
    ui.shoot("partitions")
    assert len(ui.project.rows("weather", "readings")) == days * 48
    ui.open("assets/counts")
    ui.page.get_by_role("button", name="Materialize").first.click()
    field = ui.page.get_by_placeholder(re.compile("^ex: 2026"))
    field.fill(f"[2026-01-03...2026-01-{last:02}]")
    field.press("Enter")
    ui.page.get_by_role("button", name="Launch backfill").click()
    while _green(ui, "counts") != days_there and time.monotonic() < deadline:
        time.sleep(2)
    ui.open("assets/counts?view=partitions")
    ui.shows(f"Materialized ({days})")
    assert {row["len"] for row in ui.project.rows("counts")} == {24}


def _green(ui: Ui, *key: str) -> set[str]:
    with dg.DagsterInstance.from_config(str(ui.project.home)) as instance:
        return instance.get_materialized_partitions(dg.AssetKey(list(key)))


def test_a_check_can_be_run_alone_in_the_ui(ui: Ui) -> None:
    ui.open("assets/shop/users?view=checks&checkDetail=primary_key")
    ui.shows("No two rows have the same primary key")
    ui.page.get_by_role("button", name=re.compile(r"Execute$")).first.click()
    if PICTURES:
        ui.page.wait_for_timeout(60_000)  # the check runs
    ui.open("assets/shop/users?view=checks&checkDetail=primary_key&checkDetailTab=history")
    ui.shoot("checks")
    ui.open("runs")
    ui.shows("primary_key")


@pytest.mark.long
def test_a_failed_sync_shows_the_error_of_the_source(ui: Ui) -> None:
    ui.materialize("lost/readings")
    expect(ui.page.get_by_text("Failure", exact=True).first).to_be_visible()
    ui.shows(re.compile("the line is dead"))
    ui.shoot("failure", ui.page.get_by_text(re.compile("the line is dead")).last)
    ui.project.reconfigure("lost", fails_at="")
