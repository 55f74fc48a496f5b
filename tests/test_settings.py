"""The settings of a project: where they come from, which place wins, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elt_assets import paths, settings
from elt_assets.errors import ConfigError

SETTINGS = """
[tool.elt]
lake = "lake"
spark = {"spark.executor.memory" = "1g", "spark.app.name" = "shop"}
storage_options = {aws_region = "eu-central-1"}
alert_hook = "shop.alerts:tell"

[tool.elt.env.prod]
lake = "s3://shop/lake"
spark = {"spark.executor.memory" = "8g"}

[tool.elt.env.test]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which is the working directory, without settings in the environment."""
    for name in [name for name in os.environ if name.startswith("ELT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(settings, "_active_project", None)
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)


def test_the_environment_overrides_the_file_and_a_variable_overrides_both(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, SETTINGS)
    assert paths.lake() == str(root / "lake")  # relative to the project
    monkeypatch.setenv("ELT_ENV", "prod")
    assert paths.lake() == "s3://shop/lake"
    expected = {"spark.executor.memory": "8g", "spark.app.name": "shop"}
    assert settings.settings().spark == expected  # merged key by key
    monkeypatch.setenv("ELT_ENV", "test")  # an empty table
    assert paths.lake() == str(root / "lake")
    monkeypatch.setenv("ELT_LAKE", "/data/lake")
    assert paths.lake() == "/data/lake"
    monkeypatch.setenv("ELT_SPARK", "/etc/spark.conf")
    assert paths.spark_settings() == Path("/etc/spark.conf")


def test_a_changed_file_is_read_again(root: Path) -> None:
    write(root, '[tool.elt]\nlake = "first"\n')
    assert paths.lake() == str(root / "first")
    write(root, '[tool.elt]\nlake = "second"\n')
    os.utime(root / "pyproject.toml", ns=(1, 1))
    assert paths.lake() == str(root / "second")


def test_the_project_is_found_from_a_folder_below_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, '[tool.dg.project]\nroot_module = "shop"\n')
    below = root / "src" / "shop" / "defs" / "crm"
    below.mkdir(parents=True)
    write(below, '[project]\nname = "no_project_of_elt"\n')
    monkeypatch.chdir(below)
    assert settings.project() == root
    assert paths.connections() == root / "src" / "shop" / "defs"
    assert paths.home() == Path(os.environ.get("DAGSTER_HOME") or root / "dagster_home")
    monkeypatch.setenv("ELT_PROJECT", str(root))
    monkeypatch.chdir("/")
    assert settings.project() == root


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ('[tool.elt]\nlak = "x"\n', {}, r"\[tool.elt\] lak: Extra inputs"),
        ('[tool.elt]\nlake = ["x"]\n', {}, r"\[tool.elt\] lake: Input should be"),
        ("[tool.elt]\n", {"ELT_RESOURCES": "shop.resources"}, "ELT_RESOURCES: String should match"),
        (SETTINGS, {"ELT_ENV": "prd"}, "ELT_ENV is 'prd'"),
        ("[tool.elt\n", {}, "is not valid TOML"),
        (
            "[tool.elt]\n",
            {"ELT_PROJECT": "/nowhere"},
            "ELT_PROJECT: /nowhere has no pyproject.toml",
        ),
    ],
)
def test_what_is_not_a_setting_is_refused_with_its_place(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    variables: dict[str, str],
    message: str,
) -> None:
    write(root, text)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message) as error:
        settings.settings()
    assert error.value.guidance


def test_no_value_of_a_setting_is_in_an_error(root: Path) -> None:
    write(root, '[tool.elt]\nstorage_options = {aws_secret_access_key = ["hunter2"]}\n')
    with pytest.raises(ConfigError) as error:
        settings.settings()
    assert "hunter2" not in str(error.value)


def test_two_projects_above_each_other_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "[tool.elt]\n")
    write(root / "inner", "[tool.elt]\n")
    monkeypatch.chdir(root / "inner")
    with pytest.raises(ConfigError, match="projects above each other"):
        settings.project()
    monkeypatch.setenv("ELT_PROJECT", str(root / "inner"))
    assert settings.project() == root / "inner"
