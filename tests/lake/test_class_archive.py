from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import pytest

from elt_assets.lake import class_archive
from elt_assets.lake.session import settings
from tests.support.project import REPOSITORY

OPTIONS = "spark.driver.defaultJavaOptions"
ARCHIVE = "SharedArchiveFile"


@pytest.fixture
def draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    class_archive.folder().mkdir(parents=True)
    draft = class_archive.folder() / "draft.jsa"
    draft.write_bytes(b"classes")
    return draft


def test_no_session_uses_a_draft(draft: Path) -> None:
    assert draft.exists()
    assert ARCHIVE not in settings({})[OPTIONS]


def test_an_embedded_session_uses_the_kept_archive(draft: Path) -> None:
    kept = class_archive.keep(draft)
    assert f'"-XX:SharedArchiveFile={kept}"' in settings({})[OPTIONS]
    assert settings({OPTIONS: "-Xint"})[OPTIONS] == "-Xint"
    assert ARCHIVE not in settings({"spark.master": "spark://host:7077"})[OPTIONS]
    assert OPTIONS not in settings({"spark.remote": "sc://host"})


def test_a_truncated_archive_is_not_used(draft: Path) -> None:
    class_archive.keep(draft).write_bytes(b"class")
    assert ARCHIVE not in settings({})[OPTIONS]


def test_the_archive_is_not_used_by_another_java(
    draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_archive.keep(draft)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "other"))
    assert ARCHIVE not in settings({})[OPTIONS]


def test_a_new_archive_replaces_the_former_one(draft: Path) -> None:
    former = class_archive.keep(draft)
    draft.write_bytes(b"more classes")
    kept = class_archive.keep(draft)
    assert list(class_archive.folder().iterdir()) == [kept]
    assert kept != former


def test_a_new_archive_is_in_the_cache_if_the_environment_is_read_only(
    draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = class_archive.keep(draft)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != own.parent)
    assert class_archive.folder().is_relative_to(tmp_path / "cache" / "elt-assets")
    assert str(own) in settings({})[OPTIONS]
    own.unlink()
    class_archive.folder().mkdir(parents=True)
    cached = class_archive.folder() / "draft.jsa"
    cached.write_bytes(b"classes")
    assert str(class_archive.keep(cached)) in settings({})[OPTIONS]


CODE = """if True:
    from elt_assets import SparkResource
    spark = SparkResource().spark_session
    runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    print(*runtime.getInputArguments())
    print(spark._jvm.java.lang.management.ManagementFactory.getClassLoadingMXBean()
          .getTotalLoadedClassCount())
"""


def _environment(folder: Path) -> Path:
    """An environment with the packages of this one, whose first run is still to come; its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "all.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


def _start_spark(python: Path, **variables: str) -> tuple[str, int]:
    """Start an embedded session in a process; return the arguments of its JVM, and its classes."""
    done = subprocess.run(
        [python, "-c", CODE],
        env={**os.environ, "ELT_SPARK": "", "ELT_SPARK_ARCHIVE": "", **variables},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    arguments, count = done.stdout.splitlines()
    return arguments, int(count)


@pytest.mark.long
def test_the_first_run_makes_the_archive_for_the_later_ones(tmp_path: Path) -> None:
    """The archive is made in the background, once, and without log output."""
    python = _environment(tmp_path / "env")
    folder = tmp_path / "env" / "share" / "elt-assets"
    assert ARCHIVE not in _start_spark(python, ELT_SPARK_ARCHIVE="off")[0]
    assert not folder.exists()
    assert ARCHIVE not in _start_spark(python)[0]
    while not list(folder.glob("spark-*.jsa")):  # without a limit: the priority is the lowest
        assert not list(folder.glob("*.log"))
        time.sleep(0.5)
    arguments, count = _start_spark(python)
    assert f"-XX:SharedArchiveFile={folder}" in arguments
    assert count > 1000


@pytest.mark.process
def test_the_maker_leaves_the_project_of_its_caller_alone(tmp_path: Path) -> None:
    """Its own connection has a name that a team may use too; its sync ends at a Java that cannot start."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    team = tmp_path / "team"
    (team / "defs" / "shop").mkdir(parents=True)
    lake = tmp_path / "lake"
    (team / "pyproject.toml").write_text(f'[tool.elt]\ndefs = "defs"\nlake = "{lake}"\n')
    (team / "defs" / "shop" / "defs.yaml").write_text("not: a connection\n")
    done = subprocess.run(
        [sys.executable, "-m", "elt_assets.lake.archive_maker"],
        cwd=team,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "java"), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the sync of a small project failed" in done.stderr
    assert "Spark cannot be started" in done.stderr
    assert not lake.exists()
