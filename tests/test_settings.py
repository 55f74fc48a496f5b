"""The settings of a project: where they come from, which place wins, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from elt_assets import paths, settings
from elt_assets.branches import branch_name
from elt_assets.errors import ConfigError
from elt_assets.orchestration.resources import LakeResource
from elt_assets.runner.vault import open_vault
from elt_assets.settings import hold_settings

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


def test_settings_that_are_held_stay_the_same_until_the_end_of_the_context(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_LAKE", "/first")
    with hold_settings():
        monkeypatch.setenv("ELT_LAKE", "/second")
        assert paths.lake() == "/first"
    assert paths.lake() == "/second"


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


BRANCHES = """
[tool.elt]
lake = "s3://shop/lake"
vault = "s3://shop/vault"
[tool.elt.env.prod]
"""


@pytest.fixture
def preview(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of a branch deployment of Dagster+."""
    monkeypatch.setenv("DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT", "1")
    monkeypatch.setenv("DAGSTER_CLOUD_GIT_BRANCH", "feature/New_Orders")
    monkeypatch.setenv("DAGSTER_HOME", str(root / "home"))
    return root


def test_a_branch_deployment_never_gets_the_lake_of_production(
    preview: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(preview, BRANCHES)
    message = "deployment of the branch 'feature/New_Orders', and `lake` .* not a place of its own"
    with pytest.raises(ConfigError, match=message) as error:
        paths.lake()
    assert error.value.guidance and "{branch}" in error.value.guidance
    monkeypatch.setenv("ELT_ENV", "prod")
    with pytest.raises(ConfigError, match=message):
        paths.lake()
    monkeypatch.setenv("ELT_LAKE", "s3://shop/other")
    with pytest.raises(ConfigError, match=message):
        paths.lake()
    with pytest.raises(ConfigError, match=r"`root` of `elt_lake` .* not a place of its own"):
        _ = LakeResource(root="s3://shop/lake").uri
    monkeypatch.setenv("ELT_VAULT_KEY", "x" * 43 + "=")
    with pytest.raises(ConfigError, match=r"`vault` .* not a place of its own"):
        open_vault()


def test_a_branch_deployment_writes_to_a_lake_of_its_own(
    preview: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = branch_name("feature/New_Orders")
    assert re.fullmatch(r"feature_new_orders_[0-9a-f]{8}", name)
    assert name != branch_name("feature/new-orders")
    assert paths.lake() == str(preview / "home" / f"lake_{name}")  # without a project
    write(preview, f'{BRANCHES}[tool.elt.env.branch]\nlake = "s3://shop-dev/{{branch}}/lake"\n')
    assert paths.lake() == f"s3://shop-dev/{name}/lake"
    write(preview, f'{BRANCHES}[tool.elt.env.branch]\nlake = "s3://shop-dev/lake"\n')
    os.utime(preview / "pyproject.toml", ns=(1, 1))
    assert paths.lake() == "s3://shop-dev/lake"
    monkeypatch.setenv("ELT_LAKE", "s3://x/{env}/{branch}")
    assert paths.lake() == f"s3://x/branch/{name}"
    assert LakeResource(root="s3://y/{branch}").uri == f"s3://y/{name}"
    for variable in ("DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT", "DAGSTER_CLOUD_GIT_BRANCH"):
        monkeypatch.delenv(variable)
    with pytest.raises(ConfigError, match=r"`lake` has the placeholder \{branch\}"):
        paths.lake()
    monkeypatch.setenv("ELT_BRANCH", "next")  # of another preview of pull requests
    assert paths.lake() == "s3://x/branch/next"


def test_the_placeholder_of_the_environment_needs_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, '[tool.elt]\nlake = "s3://shop/{env}"\n')
    with pytest.raises(ConfigError, match=r"placeholder \{env\}.*\n.*set ELT_ENV"):
        paths.lake()
    monkeypatch.setenv("ELT_ENV", "dev")
    assert paths.lake() == "s3://shop/dev"
