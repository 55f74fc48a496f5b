"""The kinds of source that a connection may name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elt_assets.connection import load_connection
from elt_assets.errors import ConfigError
from elt_assets.module_start import module_command
from elt_assets.runner.kinds import KINDS, list_built_in, open_connector
from elt_assets.runner.singer_tap import SingerTap
from tests.support.connector_specs import spec_of
from tests.support.project import write_plugin


def test_built_in_connectors_are_found_without_loading_them() -> None:
    assert "faker" in list_built_in()
    assert "sdk" not in list_built_in()


def program_of(kind: str, value: Any) -> tuple[list[str], str]:
    """The command line of a source, and its name in messages."""
    spec = spec_of(kind, value, Path("nowhere"))
    return list(spec.kind.command(spec)), spec.name


def test_a_built_in_connector_runs_by_this_python() -> None:
    assert program_of("connector", "faker") == (module_command("connectors.faker"), "faker")


def test_a_command_is_used_unchanged() -> None:
    command = ["/opt/my source", "--x"]
    assert program_of("command", command) == (command, "my source")


def test_opening_a_connector_starts_and_installs_nothing(tmp_path: Path) -> None:
    config = {"a": {"env": "NOT_SET"}}
    open_connector(spec_of("package", "no-such==1.0", tmp_path, config=config))
    open_connector(spec_of("command", ["/no/such/program"], tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_package_registers_a_connector_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, entry in (("crm", "crm = crm"), ("fake", "faker = fake")):
        source = write_plugin(tmp_path / module, module, "", "elt_assets.connectors", entry)
        monkeypatch.syspath_prepend(source)
    assert program_of("connector", "crm") == (module_command("crm"), "crm")
    assert program_of("connector", "faker")[0][-1] == "connectors.faker"


def test_two_packages_that_register_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("one", "two"):
        source = write_plugin(
            tmp_path / module, module, "", "elt_assets.connectors", f"crm = {module}"
        )
        monkeypatch.syspath_prepend(source)
    with pytest.raises(
        ConfigError, match=r"two packages register the connector 'crm': \w+ and \w+"
    ):
        list_built_in()


def test_an_unknown_built_in_connector_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no built-in connector 'fakr'\n.*faker.*entry-point"):
        KINDS["connector"].check("fakr")


def test_a_tap_is_a_command_or_a_package(tmp_path: Path) -> None:
    command = ["/opt/tap-x", "--flag"]
    assert program_of("tap", command) == (command, "tap-x")
    assert spec_of("tap", "any-tap-x==1.0", tmp_path).name == "any-tap-x==1.0"
    for value in (["tap-x"], "any-tap-x==1.0"):
        assert isinstance(open_connector(spec_of("tap", value, tmp_path)), SingerTap)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["package", "tap"])
def test_a_package_without_a_version_is_refused_at_once(kind: str) -> None:
    with pytest.raises(ConfigError, match="no exact version"):
        KINDS[kind].check("source-x")


KIND = """
import json
import os
import subprocess
import sys
from elt_assets.runner.source_kind import SourceKind

class Script(SourceKind):
    key = "script"
    value_type = str
    examples = (("script: source.py", "a script of Python"),)

    def command(self, spec):
        return [sys.executable, spec.value]
"""
SOURCE = """
import json, sys
answers = {
    "spec": {"type": "SPEC", "spec": {"connectionSpecification": {}}},
    "check": {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}},
}
print(json.dumps(answers[sys.argv[1]]))
"""
DEFINITION = """
type: elt_assets.ConnectionComponent
attributes: {name: mine, source: {script: SOURCE}, streams: [{name: users}]}
"""


def test_a_package_adds_a_kind_of_source(tmp_path: Path) -> None:
    """The kind is one module and one entry point; the YAML, `elt` and Dagster take it like any other."""
    source, folder = tmp_path / "source.py", tmp_path / "defs" / "mine"
    folder.mkdir(parents=True)
    entry = "script = script_kind:Script"
    added = write_plugin(tmp_path / "site", "script_kind", KIND, "elt_assets.source_kinds", entry)
    source.write_text(SOURCE)
    (folder / "defs.yaml").write_text(DEFINITION.replace("SOURCE", json.dumps(str(source))))
    places = {"ELT_DEFS": str(folder.parent), "DAGSTER_HOME": str(tmp_path / "home")}
    program = "from elt_assets.cli import main; assert main(['check', 'mine']) == main(['connectors']) == 0"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **places, "PYTHONPATH": added},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "a script of Python" in done.stdout
    with pytest.raises(ConfigError, match="unknown key 'script'"):
        load_connection(folder)  # in this process there is no such package
