"""The documentation as a site: `make docs` builds it, it is complete, and it needs no other host."""

from __future__ import annotations

import re
import subprocess
from html import unescape
from pathlib import Path

import pytest

import connectors.sdk
import elt_assets
from elt_assets.cli.entry import COMMANDS
from elt_assets.connection.connection import Connection
from elt_assets.settings import Settings
from tests.support.project import REPOSITORY

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = ["make", "-o", ".venv/.made-from-constraints", "docs", f"SITE={folder}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _text(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\ssrc=\"([^\"]*)", text)
        loaded += re.findall(r"<link\b[^>]*\shref=\"([^\"]*)", text)
        assert not [target for target in loaded if "//" in target], page
        assert 'class="mermaid"' not in text  # the theme would fetch its program


def test_the_reference_has_every_key_setting_command_and_name(site: Path) -> None:
    schema = Connection.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    keys = {key for model in models for key in model.get("properties", {})}
    descriptions = {p["description"] for m in models for p in m.get("properties", {}).values()}
    page = _text(site / "reference" / "defs-yaml.html")
    assert len(keys) > 90
    assert not [key for key in keys if not re.search(rf"^{key}$", page, flags=re.MULTILINE)]
    assert not [text for text in descriptions if text.replace("`", "") not in page]
    settings = _text(site / "reference" / "settings.html")
    assert not [key for key in Settings.model_fields if f"ELT_{key.upper()}" not in settings]
    commands = _text(site / "reference" / "commands.html")
    assert not [name for name in (*COMMANDS, "state reset") if f"elt {name}" not in commands]
    for module, page_name in ((elt_assets, "api"), (connectors.sdk, "sdk")):
        page = _text(site / "reference" / f"{page_name}.html")
        names = [name for name in module.__all__ if not name.startswith("_")]
        assert not [name for name in names if f"{module.__name__}.{name}" not in page]


def test_types_defaults_and_limits_are_written_as_in_yaml(site: Path) -> None:
    page = (site / "reference" / "defs-yaml.html").read_text()
    rows = [re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL) for row in page.split("<tr>")]
    cells = {row[0]: [_plain(cell) for cell in row[1:4]] for row in rows if row}
    assert cells["<code>heartbeat</code>"] == ["string", "1h", "as 6h"]
    assert cells["<code>attempts</code>"] == ["integer", "2", "at least 0; at most 20"]
    assert cells["<code>streams</code>"] == ["list of Stream", "required", "at least 1 item(s)"]


def _plain(cell: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", cell))
