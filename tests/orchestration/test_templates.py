"""Templates of connections where Dagster has a part: in `translation` and in `post_processing`."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest

from elt_assets.connection import place_in
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.orchestration import project
from elt_assets.orchestration.component import ConnectionComponent
from tests.programs.windowed_source import windowed
from tests.support.project import Project

READINGS = dg.AssetKey(["weather", "readings"])
HOSTILE = "{{ spec|attr('__class__') }}"
STATEMENT = "{% set x = spec %}"


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("raw/{{ stream.name }} of {{ connection.name }}", "raw/readings of weather"),
        ("{{ spec.group_name }}", "weather"),
        ("{{ env.TEAM_NAME }}-{{ env('NOT_SET', 'x') }}", "core-x"),
        ("[1, 2]", "[1, 2]"),
        ("{{ '{{' }} {{ '{{ lipsum() }}' }}", "{{ {{ lipsum() }}"),
    ],
)
def test_a_translation_has_names_of_the_stream(
    own: Project, template: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed(own)
    monkeypatch.setenv("TEAM_NAME", "core")
    own.amend("weather", translation={"description": template})
    assert build().resolve_asset_graph().get(READINGS).description == value


def test_a_variable_of_the_project_is_what_a_template_cannot_write(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed(own)
    own.amend("weather", translation={"automation_condition": "{{ nightly }}"})
    file = own.root / "defs" / "weather" / "defs.yaml"
    file.write_text(f"{file.read_text()}\ntemplate_vars_module: nightly_variables\n")
    (own.root / "nightly_variables.py").write_text(
        "import dagster as dg\n\n@dg.template_var\n"
        "def nightly(): return dg.AutomationCondition.on_cron('0 6 * * *')\n"
    )
    monkeypatch.syspath_prepend(str(own.root))
    condition = build().resolve_asset_graph().get(READINGS).automation_condition
    assert condition == dg.AutomationCondition.on_cron("0 6 * * *")


@pytest.mark.parametrize("template", [HOSTILE, STATEMENT])
def test_a_translation_runs_no_code(own: Project, template: str) -> None:
    windowed(own)
    own.amend("weather", translation={"description": template})
    folder = own.root / "defs" / "weather"
    for load in (build, lambda: ConnectionComponent.load_at(place_in(folder)).definitions()):
        with pytest.raises(
            ConfigError, match=r"cannot be evaluated: it (is no name|has a statement)"
        ):
            load()


def test_post_processing_has_names_and_their_attributes(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed(own)
    monkeypatch.setenv("TEAM_NAME", "core")
    monkeypatch.setenv("SHOP_TOKEN", "a-secret")
    file = own.root / "defs" / "weather" / "defs.yaml"
    connection = file.read_text()

    def write(template: str) -> None:
        processing = {"assets": [{"target": "*", "attributes": {"description": template}}]}
        file.write_text(f"{connection}\npost_processing: {json.dumps(processing)}\n")

    write("in {{asset.group_name}}, of {{ env.TEAM_NAME }}, {{ env('NOT_SET', 'x') }}")
    description = build().resolve_asset_graph().get(READINGS).description
    assert description == "in weather, of core, x"
    for template in ("{{ env.SHOP_TOKEN }}", HOSTILE):
        write(template)
        with pytest.raises(ConfigError, match=r"defs\.yaml: .*cannot be evaluated") as caught:
            build()
        assert "a-secret" not in str(caught.value)
    with monkeypatch.context() as patch:
        patch.setattr(project, "find_refused_files", lambda _: ())  # as with Dagster's own loader
        with pytest.raises(ConfigError, match="cannot be evaluated"):
            build()
    # Dagster evaluates it after an error too.
    monkeypatch.setenv("ELT_ON_BROKEN_CONNECTION", "skip")
    assert "weather" in {key.to_user_string() for key in build().resolve_all_asset_keys()}
