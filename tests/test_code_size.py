"""`scripts/code_size.py` keeps what a folder of code has reached."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "code_size.py"
MODULE = "import json\n\n\ndef read(text):\n    return json.loads(text)\n\n\nFIRST = read('1')\n"
MANY = "def f(a, b, c, d, e, f, *, g):\n    return a\n"
METHOD = "class A:\n    def f(self, a, b, c, d, e, f):\n        return a\n"


@pytest.fixture
def script() -> Any:
    spec = importlib.util.spec_from_file_location("code_size", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def find_worse(script: Any, repository: Path, text: str) -> list[str]:
    """Return what is worse in a folder of one module, once it has another text, and once it grows by one."""
    folder = repository / "elt_assets" / "lake"
    folder.mkdir(parents=True)
    (folder / "rows.py").write_text(MODULE)
    recorded = {name: script.measure(m) for name, m in script.read_folders(repository).items()}
    assert list(script.list_worse(script.read_folders(repository), recorded)) == []
    (folder / "rows.py").write_text(text)
    folders = {"elt_assets/lake": script.read_folders(repository)["elt_assets/lake"]}
    return list(script.list_worse(folders, recorded))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MODULE + "SECOND = 2\n", "5 lines of code, and 4 are recorded"),
        ("import json\n", "a median of 1 lines in a module, and 4 is recorded"),
        ("import json\nimport re\nA = 1\nB = 2\n", "50.0 % imports, and 25.0 % are recorded"),
        (MANY + "A = 1\nB = 2\n", "1 functions with more than six parameters, and 0 are recorded"),
        (
            "from dagster._core import launcher\nA = 1\nB = 2\nC = 3\n",
            "1 imports from inner modules of Dagster, and 0 are recorded",
        ),
    ],
)
def test_a_figure_that_becomes_worse_is_named(
    script: Any, tmp_path: Path, text: str, problem: str
) -> None:
    assert f"elt_assets/lake: {problem}" in find_worse(script, tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        METHOD + "A = 1\n",
        "from dagster import Definitions\nA = 1\nB = 2\nC = 3\n",
        "from dagster.components import Component\nA = 1\nB = 2\nC = 3\n",
        MODULE + "# a comment\n",
    ],
)
def test_what_is_not_worse_passes(script: Any, tmp_path: Path, text: str) -> None:
    assert find_worse(script, tmp_path, text) == []


@pytest.mark.parametrize(
    ("module", "is_inner"),
    [
        ("dagster._core.launcher", True),
        ("dagster_shared.check", True),
        ("dagster.components.core.decl", True),
        ("dagster_pyspark._x", True),
        ("dagster", False),
        ("dagster.components", False),
        ("dagster_pyspark", False),
    ],
)
def test_inner_modules_of_dagster_are_known(script: Any, module: str, is_inner: bool) -> None:
    assert (script._INNER.match(module) is not None) is is_inner


def test_a_folder_without_a_record_is_named(script: Any, tmp_path: Path) -> None:
    (tmp_path / "connectors" / "crm").mkdir(parents=True)
    (tmp_path / "connectors" / "crm" / "source.py").write_text(MODULE)
    problems = script.list_worse(script.read_folders(tmp_path), {"elt_assets": [0, 0, 0, 0, 0]})
    assert "connectors/crm: is not in code_size.json" in list(problems)
