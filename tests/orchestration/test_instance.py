"""The instance of a run: a `dagster.yaml` that cannot be used is refused, and a loss of events is told."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import dagster as dg
import pytest

from elt_assets.cli import main
from elt_assets.connection import place_in
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.lake.write.states import set_state
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.resources import open_instance
from tests.programs.scripted import record, script, state
from tests.support.project import Project

LOGIN = "username: elt, password: hunter22, hostname: 127.0.0.1"


def refusal(home: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the error of opening an instance with this file, which must be about the file alone."""
    (home / "dagster.yaml").write_text(text)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with pytest.raises(ConfigError) as caught:
        open_instance()
    message = str(caught.value)
    assert str(home / "dagster.yaml") in message
    assert "hunter22" not in message
    assert [path.name for path in home.iterdir() if path.suffix == ".db"] == []
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage: [", "is not valid YAML in line 1"),
        (
            f"storage: {{postgre: {{postgres_db: {{{LOGIN}}}}}}}",
            'config entry "postgre" at path root',
        ),
        (f"storage: {{postgres: {{postgres_db: {{{LOGIN}}}}}}}", "db_name"),
        (
            "storage: {postgres: {postgres_url: {env: NOT_SET}}}",
            'variable "NOT_SET" which is not set',
        ),
        (
            "storage: {postgres: {postgres_url: {url: hunter22}}}",
            "root:storage:postgres:postgres_url",
        ),
        ("storage: {custom: {module: nix, class: A}}", "Couldn't import module nix"),
    ],
)
def test_an_invalid_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    error = refusal(tmp_path, text, monkeypatch)
    assert message in error
    assert len(error) < 600, error


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = (
        "storage: {postgres: {postgres_url: 'postgresql+psycopg://elt:hunter22@127.0.0.1/elt'}}"
    )
    assert "elt-assets[postgres]" in refusal(tmp_path, driver, monkeypatch)
    for module in [name for name in sys.modules if name.startswith("dagster_postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    url = "storage: {postgres: {postgres_url: 'postgresql://elt:hunter22@127.0.0.1/elt'}}"
    assert "elt-assets[postgres]" in refusal(tmp_path, url, monkeypatch)


REPEATED = "was rolled back or deleted"
LOST = "Dagster loses the events of this run"


@pytest.mark.usefixtures("spark_provider")
def test_a_project_without_dagster_home_keeps_its_events(
    own: Project,
    empty_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`elt` uses the home of the project; so what happened to a table is noticed there as well."""
    (own.root / "pyproject.toml").write_text("[tool.elt]\n")
    shutil.copytree(empty_home, own.root / "dagster_home")
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("ELT_PROJECT", str(own.root))

    def sync(number: int) -> str:
        script(own, [record(id=number), state(number)], destination_sync_mode="append")
        assert main(["sync", "scripted"]) == 0
        return "".join(capsys.readouterr())

    for number in (1, 2):
        text = sync(number)
        assert not any(alarm in text for alarm in (LOST, REPEATED, "the event log", "DAGSTER_HOME"))
    place = place_in(own.root / "defs" / "scripted")
    (asset,) = ConnectionComponent.load_at(place).stream_assets()
    tables = asset.tables(str(own.root / "dagster_home" / "lake"))
    set_state(tables, None, "killed", tables.main.schema, "things")
    assert "ended before it reported the commit" in sync(3)
    shutil.rmtree(own.root / "dagster_home" / "lake")
    assert REPEATED in sync(4)


@pytest.mark.usefixtures("spark_provider")
@pytest.mark.parametrize("is_ephemeral", [True, False])
def test_a_run_whose_events_are_lost_says_so_once(
    own: Project, empty_home: Path, is_ephemeral: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, or in the folder that commands of Dagster make if `DAGSTER_HOME` is not set."""
    names = ("first", "second")
    for name in names:
        script(own, [record(id=1), state(1)], name=name)
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("ELT_LAKE", str(own.root / "lake"))
    temporary = own.root / ".tmp_dagster_home_42"
    shutil.copytree(empty_home, temporary)
    select = " or ".join(f'key:"{name}/things"' for name in names)
    for _ in range(2):
        with (
            dg.DagsterInstance.ephemeral()
            if is_ephemeral
            else dg.DagsterInstance.from_config(str(temporary))
        ) as instance:
            job = dg.define_asset_job("run", selection=select)
            definitions = dg.Definitions.merge(build(), dg.Definitions(jobs=[job]))
            result = definitions.resolve_job_def("run").execute_in_process(instance=instance)
            assert result.success
            log = "\n".join(entry.user_message for entry in instance.all_logs(result.run_id))
        assert log.count(LOST) == 1
        assert "the event log" not in log and REPEATED not in log
