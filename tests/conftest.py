"""One Spark session for the whole run; the name of a test that fails is printed as soon as it fails."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from elt_assets import settings
from elt_assets.lake.session import SparkProvider
from elt_assets.orchestration.resources import SparkResource
from tests.support import examples
from tests.support.dagster_caches import caches
from tests.support.elt import elt, own
from tests.support.project import REPOSITORY, Project

__all__ = ["elt", "own"]

HERE = Path(__file__).parent
INSTANCE = """
telemetry: {enabled: false}
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
"""The `dagster.yaml` of runs in a process of the tests. Dagster starts four programs for each run, to store
its output."""
SPARK = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    # Workers do not search the working directory for the programs of the tests.
    "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
}
"""Settings for tables of a few rows. To generate classes for each query takes a quarter of the tests' CPU
time and saves nothing there, and to describe each plan for Spark's UI takes a twentieth. The processes that
tests start run with the default settings."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for a minute, as the tests start them: compiling its code to the optimum, in
threads of its own, takes half of its CPU time."""
os.environ.update(dict.fromkeys(("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"), SHORT_LIVED))
os.environ["ELT_SPARK_ARCHIVE"] = "off"  # a test that wants the archive makes it
# A shell starts a background process with SIGINT ignored. Dagster then ignores SIGTERM, too, and so would
# each process that a test starts and ends.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """Try a fifth of the examples of each property in `make unit`: they are half of its time."""
    examples.use_share(0.2 if config.option.markexpr == UNIT else 1)


class Failures:
    """Prints the names of tests that fail, where a run of half an hour shows dots."""

    def __init__(self, terminal: pytest.TerminalReporter):
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    terminal = plugins.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(
        session.config, "workerinput"
    ):  # the main process alone
        plugins.register(Failures(terminal))


JVMS = frozenset({"spark_provider", "project"})
"""Fixtures of tests that need Spark: the shared session, and a project whose commands are processes."""
TIERS = ("unit", "process", "spark", "external")
FOLDERS = {
    "e2e": "spark",
    **dict.fromkeys(("cli", "orchestration", "runner", "testing"), "process"),
}
"""The tier of a folder's tests, where neither a mark nor a fixture says another; of other folders `unit`."""


UNIT = "unit and not long"
"""The marker expression of `make unit`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file of another tier for `make unit`: to import them all takes as long as its tests."""
    is_other = FOLDERS.get(collection_path.parent.name, "unit") != "unit"
    if config.option.markexpr != UNIT or not is_other or collection_path.suffix != ".py":
        return None
    return True if "pytest.mark.unit" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into one of the tiers, and this folder's files first.

    They are the longest: as the last ones, they would run beside an idle process.
    """
    items.sort(key=lambda item: item.path.parent != HERE)
    for item in items:
        if any(item.get_closest_marker(tier) for tier in TIERS):
            continue
        if JVMS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
        else:
            item.add_marker(FOLDERS.get(item.path.parent.name, "unit"))


@pytest.fixture(autouse=True)
def forget_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the project of the test before: a process has one, and these tests are many projects."""
    monkeypatch.setattr(settings, "_active_project", None)


@pytest.fixture(params=[0, 0o077], ids=oct)
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with a umask that takes no permission away, and with one that takes all of others'."""
    former = os.umask(request.param)
    yield
    os.umask(former)


@pytest.fixture(scope="session")
def spark_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProvider]:
    """The session that the orchestration would build."""
    provider = SparkResource(spark_config=SPARK).provider
    folder = tmp_path_factory.mktemp("spark")
    lines = (f"{name} {value}\n" for name, value in SPARK.items())
    (folder / "spark-defaults.conf").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        # These settings are for all sessions of this process: runs have sessions of other resources.
        patch.setenv("SPARK_CONF_DIR", str(folder))
        provider.get()
    yield provider
    provider.get().stop()


@pytest.fixture(scope="session")
def spark(spark_provider: SparkProvider) -> SparkSession:
    return spark_provider.get()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the connectors from PyPI, which are installed once for all tests of all processes."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "packages"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home with databases, for copies: Dagster needs up to a second of CPU to create them."""
    home = tmp_path_factory.mktemp("dagster") / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs(limit=1)
        assert instance.schedule_storage is not None
        instance.schedule_storage.all_instigator_state()
    return home


@pytest.fixture(scope="session")
def dagster_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with caches(tmp_path_factory.mktemp("dagster_caches")):
        yield


@pytest.fixture
def project(tmp_path: Path, packages: Path, empty_home: Path) -> Project:
    """A project of the test's own."""
    project = Project(tmp_path)
    shutil.copytree(empty_home, project.home)
    (project.home / "packages").symlink_to(packages)
    return project
