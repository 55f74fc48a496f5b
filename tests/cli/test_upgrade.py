"""`elt upgrade`."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.runner.test_package import index
from tests.support.elt import Elt
from tests.support.project import Project

__all__ = ["index"]

PROGRAM = """
import json, sys
def main():
    print(json.dumps({messages}[sys.argv[1]]))
"""
DEFINITION = """# The shop's connection.
type: elt_assets.ConnectionComponent
attributes:
  name: crm
  source:
    package: "source-x==1.0"  # see the wiki
    config: {host: db}
  streams:
    - {name: users, destination_sync_mode: overwrite}  # all of them
"""


def publish(
    index: Path, version: str, properties: dict[str, Any], fields: dict[str, str], **spec: Any
) -> None:
    """Write a wheel of a source with one stream."""
    stream = {
        "name": "users",
        "json_schema": {"properties": {name: {"type": kind} for name, kind in fields.items()}},
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "default_cursor_field": [next(iter(fields))],
    }
    schema = {"type": "object", "properties": properties, **spec}
    messages = {
        "spec": {"type": "SPEC", "spec": {"connectionSpecification": schema}},
        "discover": {"type": "CATALOG", "catalog": {"streams": [stream]}},
    }
    info = f"source_x-{version}.dist-info"
    files = {
        "source_x.py": PROGRAM.format(messages=repr(messages)),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: source-x\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nsource-x = source_x:main\n",
    }
    with zipfile.ZipFile(index / f"source_x-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        archive.writestr(f"{info}/RECORD", record)


@pytest.fixture
def crm(own: Project, index: Path, elt: Elt) -> Path:
    """The folder of a connection with version 1.0; versions 2.0 and 3.0 are in the index."""
    text = {"type": "string"}
    publish(index, "1.0", {"host": text, "old": text}, {"id": "integer", "name": "string"})
    publish(
        index,
        "2.0",
        {"host": {**text, "minLength": 1, "title": "Host"}, "region": text},
        {"id": "integer", "email": "string"},
    )
    publish(index, "3.0", {"host": text, "key": text}, {"id": "integer"}, required=["key"])
    folder = own.root / "defs" / "crm"
    folder.mkdir()
    (folder / "defs.yaml").write_text(DEFINITION)
    elt("discover", "crm")
    return folder


def environments(own: Project) -> list[str]:
    return sorted(path.name.partition("-py")[0] for path in (own.home / "packages").glob("source*"))


def test_a_version_is_shown_and_then_taken(own: Project, crm: Path, elt: Elt) -> None:
    catalog = (crm / "catalog.json").read_text()
    preview = elt.json("upgrade", "crm", "2.0")
    assert {(change["field"], change["change"]) for change in preview["config"]} == {
        ("old", "is gone"),
        ("region", "is new"),
        ("host", "has another minLength"),
    }
    assert {(change["field"], change["kind"]) for change in preview["changes"]} == {
        ("name", "column"),
        ("email", "column"),
    }
    assert preview["taken"] is False and preview["problem"] is None
    assert (crm / "defs.yaml").read_text() == DEFINITION
    assert (crm / "catalog.json").read_text() == catalog
    assert environments(own) == ["source-x==1.0", "source-x==2.0"]

    answer = elt.json("upgrade", "crm", "2.0", "--yes")
    assert answer["taken"] is True and answer["removed"] is True
    assert (crm / "defs.yaml").read_text() == DEFINITION.replace("==1.0", "==2.0")
    assert "email" in (crm / "catalog.json").read_text()
    assert environments(own) == ["source-x==2.0"]
    assert "crm has source-x==2.0 already" in elt.refuse("upgrade", "crm", "2.0")["message"]


def test_a_version_in_an_overlay_is_not_changed_beside_it(
    crm: Path, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_ENV", "prod")
    (crm / "defs.prod.yaml").write_text("attributes: {source: {package: source-x==1.0}}")
    refused = elt.refuse("upgrade", "crm", "2.0", "--yes")
    assert "defs.prod.yaml names the `package`" in refused["message"]
    assert (crm / "defs.yaml").read_text() == DEFINITION


def test_the_state_of_a_stream_is_compared(own: Project, crm: Path, elt: Elt) -> None:
    """Version 4.0 has another cursor."""
    publish(own.root / "index", "4.0", {"host": {}}, {"name": "string", "id": "integer"})
    incremental = "sync_mode: incremental, destination_sync_mode: append}"
    (crm / "defs.yaml").write_text(
        DEFINITION.replace("destination_sync_mode: overwrite}", incremental)
    )
    assert elt.json("upgrade", "crm", "2.0")["states"] == {}
    elt("state", "set", "crm/users", '{"id": 7}')
    assert "is continued" in elt.json("upgrade", "crm", "2.0")["states"]["crm/users"]
    state = elt.json("upgrade", "crm", "4.0")["states"]["crm/users"]
    assert "does not fit: the cursor_field was id" in state


def test_the_former_environment_stays_while_it_is_used(own: Project, crm: Path, elt: Elt) -> None:
    other = crm.parent / "other"
    other.mkdir()
    (other / "defs.yaml").write_text(DEFINITION.replace("crm", "other"))
    assert "other may use it" in elt("upgrade", "crm", "2.0", "--yes")
    [program] = (own.home / "packages").glob("source-x==1.0*/bin/python")
    with subprocess.Popen([program, "-c", "import time; time.sleep(600)"]) as process:
        try:
            assert "a process uses it" in elt("upgrade", "other", "2.0", "--yes")
        finally:
            process.kill()
    assert environments(own) == ["source-x==1.0", "source-x==2.0"]


def test_a_version_that_does_not_fit_is_refused(own: Project, crm: Path, elt: Elt) -> None:
    assert "'key' is a required property" in elt.refuse("upgrade", "crm", "3.0", "--yes")["message"]
    assert "there is no compatible wheel" in elt.refuse("upgrade", "crm", "9.0")["message"]
    assert "names no exact version" in elt.refuse("upgrade", "crm", ">=2")["message"]
    own.connection(
        "plain", source={"connector": "faker", "config": {}}, streams=[{"name": "users"}]
    )
    assert "is no package of an exact version" in elt.refuse("upgrade", "plain")["message"]
    (crm / "defs.yaml").write_text(
        DEFINITION.replace("overwrite}", "overwrite, fields: {include: [name]}}")
    )
    refused = elt.refuse("upgrade", "crm", "2.0", "--yes")
    assert "source-x==2.0 is not taken" in refused["message"]
    assert "==1.0" in (crm / "defs.yaml").read_text()
    assert json.loads((crm / "catalog.json").read_text())["streams"][0]["json_schema"][
        "properties"
    ]["name"]
