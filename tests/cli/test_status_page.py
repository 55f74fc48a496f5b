"""`elt status --html`: a page for people, in one file, with every value escaped."""

from __future__ import annotations

import datetime as dt
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.cli import main
from elt_assets.cli.status_page import render_page
from elt_assets.orchestration.attention import KINDS, Concern
from elt_assets.orchestration.days import MAX_DAYS, Day
from elt_assets.orchestration.last_syncs import LastSync, SyncFailure
from elt_assets.orchestration.status import StreamStatus
from tests.cli.test_status_overview import age, fail
from tests.programs.scripted import script, state
from tests.support.elt import Elt
from tests.support.project import Project

TIME = dt.datetime(2026, 3, 10, 12, tzinfo=dt.timezone.utc)
HOSTILE = "<script>alert(1)</script>\"'&amp;\u202e\x1b[31m"


class Page(HTMLParser):
    """The tags, the attributes and the text of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def status(name: str = "orders", text: str = "", days: int = 0) -> StreamStatus:
    concerns = [Concern("failed", text, text, text)] if text else []
    first = TIME.date() - dt.timedelta(days=days)
    series = {
        (first + dt.timedelta(days=n)).isoformat(): Day(9, n, n, n / 7, 10**9 + n, 10**12 + n, n)
        for n in range(days)
    }
    failure = SyncFailure(TIME, "run", text) if text else None
    sync = LastSync("failed" if text else "complete", TIME, days=series, failure=failure)
    return StreamStatus(
        name, "shop", "incremental → append", sync, sync.result, TIME, [], None, None, None, None,
        None, concerns,
    )  # fmt: skip


@given(st.text(), st.text(min_size=1))
def test_no_value_becomes_a_tag(name: str, text: str) -> None:
    page = Page(render_page([status(name, text)], {name: text}, TIME))
    plain = Page(render_page([status("orders", "no answer")], {"shop": "x"}, TIME))
    assert [tag for tag in page.tags if tag != "br"] == [tag for tag in plain.tags if tag != "br"]
    assert page.attributes == plain.attributes


def test_the_page_needs_nothing_else_and_stays_small() -> None:
    statuses = [status(f"{HOSTILE}{n}", "an error" * 20, MAX_DAYS) for n in range(200)]
    text = render_page(statuses, {}, TIME)
    page = Page(text)
    assert len(text.encode()) <= 2_000_000
    assert not {"script", "link", "img", "iframe", "object", "a"} & set(page.tags)
    assert not {"src", "href", "onload", "onclick"} & set(page.attributes)
    assert (
        "url(" not in text
        and "@import" not in text
        and "http" not in text.replace("http-equiv", "")
    )
    assert page.tags.count("svg") == 200 * 3 + 200  # of rows, duration, lag and size
    assert "\u202e" not in text and "\x1b" not in text


def test_the_kinds_of_needs_are_all_shown() -> None:
    statuses = [status(kind, "x") for kind in KINDS]
    page = Page(render_page(statuses, {}, TIME))
    assert "Need a person" in page.text and "next: x" in page.text


def test_the_page_of_a_project_shows_what_the_command_shows(
    own: Project, elt: Elt, tmp_path: Path
) -> None:
    name = "<script>alert(1)</script>"
    script(own, [state("a secret state")], name="odd", config={"password": "hunter2-in-config"})
    folder = own.root / "defs" / "odd"
    catalog: Any = json.loads((folder / "catalog.json").read_text())
    catalog["streams"].append({**catalog["streams"][0], "name": name})
    (folder / "catalog.json").write_text(json.dumps(catalog))
    own.amend("odd", streams=[{"name": "things", "sync_mode": "incremental"}, {"name": name}])
    script(own, fail("the key <b>is</b> wrong"), name="broken", schedule="0 * * * *")
    elt("sync", "odd", "things")
    age(own, "odd", dt.timedelta())
    assert main(["sync", "broken"]) == 2
    elt.capture.readouterr()
    path = tmp_path / "status.html"
    output = elt("status", "--html", str(path))
    text = path.read_text()
    page = Page(text)
    assert output.splitlines()[0] in page.text
    assert f"odd/{name}" in page.text and "<script" not in text
    assert "the key <b>is</b> wrong" in page.text and 'schedule: "0 * * * *" (UTC)' in page.text
    assert "without a schedule: never stale" in page.text
    assert "hunter2" not in text and "a secret state" not in text
    assert page.tags.count("polyline") == 0 and page.tags.count("circle") > 0  # one day


def test_a_page_that_cannot_be_written_is_an_error(own: Project, elt: Elt, tmp_path: Path) -> None:
    error = elt.refuse("status", "--html", str(tmp_path / "missing" / "status.html"))
    assert "cannot be written" in error["message"] and "folder that exists" in error["guidance"]
    elt("status", "--html", str(tmp_path / "status.html"))
    assert own.home.exists() and (tmp_path / "status.html").exists()


@pytest.mark.parametrize("size", [0, 1, 999, 1_500_000, 2 * 10**12])
def test_sizes_are_shown_with_their_unit(size: int) -> None:
    days = {TIME.date().isoformat(): Day(1, size=size)}
    stream = status()
    stream.sync.days.update(days)  # type: ignore[attr-defined]
    expected = {0: "0 B", 1: "1 B", 999: "999 B", 1_500_000: "1.5 MB", 2 * 10**12: "2.0 TB"}
    assert expected[size] in Page(render_page([stream], {}, TIME)).text
