"""With our component in a team's project, everything that is not ours is as without it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

import elt_assets
from elt_assets.errors import ConfigError
from tests.orchestration import guest
from tests.support.project import Project


def test_what_is_not_ours_is_as_without_us(tmp_path: Path, own: Project) -> None:
    own.connection("crm", source={"connector": "faker"}, streams=[{"name": "users"}])
    own.discover("crm")
    catalog = (own.root / "defs" / "crm" / "catalog.json").read_text()
    guest.write_project(tmp_path / "alone")
    guest.write_project(tmp_path / "together", catalog)
    alone, together = guest.observe(tmp_path / "alone"), guest.observe(tmp_path / "together")
    assert alone["success"] and alone["specs"]["greeting"]["metadata"].count("ROOT") > 1
    assert together == alone


OTHERS = {
    "not_yaml": ("type: PACKAGE.Other\nattributes: [", "expected the node content"),
    "unknown_key": ("type: PACKAGE.Other\nnothing: 1", "nothing"),
    "undefined": ("type: PACKAGE.Other\nattributes: {word: '{{ nobody }}'}", "Error while loading"),
}
OTHER = """
import dagster as dg

class Other(dg.Component, dg.Model, dg.Resolvable):
    word: str

    def build_defs(self, context):
        return dg.Definitions()
"""


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize(("name", "text", "message"), [(k, *v) for k, v in OTHERS.items()])
def test_a_broken_file_of_another_component_is_left_to_dagster(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    name: str,
    text: str,
    message: str,
) -> None:
    package = f"acme_{name}_{policy}"  # Python imports a module once
    folder = tmp_path / package / "defs"
    (folder / "other").mkdir(parents=True)
    (folder / "other" / "defs.yaml").write_text(text.replace("PACKAGE", package))
    (folder / "__init__.py").write_text("")
    (tmp_path / package / "__init__.py").write_text(OTHER)
    (tmp_path / "pyproject.toml").write_text(guest.PYPROJECT.replace("acme", package))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ELT_ON_BROKEN_CONNECTION", policy)
    errors = []
    for load in (
        lambda: dg.load_from_defs_folder(path_within_project=folder),
        lambda: elt_assets.definitions_for(folder),
    ):
        with pytest.raises(Exception, match=message) as caught:
            load()  # type: ignore[no-untyped-call]
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_a_resource_with_a_key_of_ours_is_refused_with_what_to_do(own: Project) -> None:
    own.connection("crm", source={"connector": "faker"}, streams=[{"name": "users"}])
    own.discover("crm")
    file = own.root / "defs" / "resources.py"
    text = "import dagster as dg\nimport elt_assets\ndefs = dg.Definitions(resources={})\n"
    file.write_text(text.format("{'elt_lake': elt_assets.LakeResource(root='/x')}"))
    with pytest.raises(ConfigError, match=r"elt_lake is defined beside .*\n.*setting `resources`"):
        elt_assets.definitions_for(own.root / "defs")
    file.unlink()
    file = file.with_name("same_resources.py")  # Python imports a module once
    file.write_text(text.format("elt_assets.resources()"))
    shared = dg.Definitions(resources=elt_assets.resources())
    merged = dg.Definitions.merge(elt_assets.definitions_for(own.root / "defs"), shared)
    assert "io_manager" not in (merged.resources or {})
