"""The page of `elt status --html` in a real browser: nothing runs, nothing is loaded, and all of it is seen.

With `ELT_SCREENSHOTS=docs/images` in the environment the picture of the docs is taken again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from elt_assets.cli.status_page import render_page
from elt_assets.cli.status_report import sort_by_need
from elt_assets.orchestration.days import MAX_DAYS
from tests.cli.test_status_page import HOSTILE, TIME, status
from tests.support.project import REPOSITORY, find_program

pytestmark = pytest.mark.external

PICTURES = os.environ.get("ELT_SCREENSHOTS")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 420])
def test_the_page_is_seen_whole(tmp_path: Path, scheme: str, width: int) -> None:
    statuses = [status(f"stream {number}", days=MAX_DAYS) for number in range(198)]
    statuses += [status(HOSTILE, "a <b>wrong</b> password" * 9, 5), status("w" * 200, "x" * 500)]
    path = tmp_path / "status.html"
    path.write_text(render_page(sort_by_need(statuses), {"other": "no file"}, TIME), "utf-8")
    requests, messages = list[str](), list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_program("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("dialog", lambda dialog: messages.append(dialog.message))
        page.goto(path.as_uri())
        assert requests == [path.as_uri()] and messages == []
        assert page.locator("h1").inner_text().startswith("200 streams: 198 fine")
        assert page.locator("tbody tr").count() == 200 and page.locator("script").count() == 0
        assert page.locator("svg").first.is_visible() and page.locator("polyline").count() > 700
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        dark, text = (
            page.evaluate(f"getComputedStyle(document.body).{name}")
            for name in ("backgroundColor", "color")
        )
        assert (dark == "rgb(255, 255, 255)") == (scheme == "light") and text != dark
        if PICTURES and width > 1000:
            page.screenshot(path=str(REPOSITORY / PICTURES / f"status_{scheme}.png"))
        browser.close()
