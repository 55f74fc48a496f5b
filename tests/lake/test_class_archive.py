from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elt_assets.lake.spark import class_archive
from elt_assets.lake.spark.session import settings
from tests.project import BIN, REPOSITORY

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


@pytest.mark.long
def test_a_new_archive_is_used_without_log_output() -> None:
    subprocess.run([REPOSITORY / "scripts" / "archive-spark.sh", BIN], check=True)
    code = """if True:
        from elt_assets import SparkResource
        spark = SparkResource().spark_session
        runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
        print(*runtime.getInputArguments())
        print(spark._jvm.java.lang.management.ManagementFactory.getClassLoadingMXBean()
              .getTotalLoadedClassCount())
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ELT_SPARK": ""},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    arguments, count = done.stdout.splitlines()
    assert f"-XX:SharedArchiveFile={class_archive.folder()}" in arguments
    assert int(count) > 1000
