"""Spark's settings: the user's file as Spark itself reads it, and what wins over what."""

from __future__ import annotations

import os
import shlex
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.errors import utils as pyspark_errors
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from elt_assets.errors import ConfigError
from elt_assets.lake.session import DEFAULTS, REQUIRED, SESSION_DEFAULTS, read_settings, settings
from tests.support.documents import code_blocks
from tests.support.project import REPOSITORY


def _file(folder: Path, text: str) -> Path:
    path = folder / "spark-defaults.conf"
    path.write_bytes(text.encode())
    return path


KEYS = st.from_regex(r"spark\.[a-zA-Z0-9._]{1,8}", fullmatch=True)
SEPARATORS = st.sampled_from([" ", "=", " = ", "\t", ":", "  \t ", " ="])
VALUES = st.text("az09 \t=:#!'\"\\/-é", min_size=1).filter(lambda value: value.strip(" \t\\"))
"""Texts that are not only backslashes: one that joins nothing leaves no value, which is an error here."""
ENTRIES = st.builds(
    lambda indent, key, separator, value: indent + key + separator + value.lstrip(),
    st.sampled_from(["", "  ", "\t"]),
    KEYS,
    SEPARATORS,
    VALUES,
)
OTHERS = st.sampled_from(["", "   ", "# spark.a b", "  ! spark.a b", "# goes not on \\"])
FILES = st.lists(ENTRIES | OTHERS, max_size=6)


@given(FILES, st.sampled_from(["\n", "\r\n"]), st.booleans())
@hypothesis_settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_file_is_read_as_spark_reads_it(
    spark: SparkSession, tmp_path: Path, lines: list[str], end: str, ends: bool
) -> None:
    text = end.join(lines) + (end if ends else "")
    assert read_settings(_file(tmp_path, text)) == _properties(spark, text)


def _properties(spark: SparkSession, text: str) -> dict[str, str]:
    """Spark reads the file by Java's `Properties`, and trims the values."""
    java: Any = spark._jvm
    found = java.java.util.Properties()
    found.load(java.java.io.StringReader(text))
    return {str(key): str(value).strip() for key, value in dict(found).items()}


def test_a_value_may_be_escaped_quoted_and_continued(tmp_path: Path) -> None:
    text = 'spark.a  -Dx="1 2" \\\n    -Dy=\\u00e9\\\\z\nspark.b=\nspark.a.b : c # d\n'
    assert read_settings(_file(tmp_path, text)) == {
        "spark.a": '-Dx="1 2" -Dy=é\\z',
        "spark.b": "",
        "spark.a.b": "c # d",
    }


@pytest.mark.parametrize(
    "line", ["spark.master", "park.master local", "= local", "spark.master\\ local", "[spark]"]
)
def test_a_malformed_line_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    path = _file(tmp_path, f"# ours\n\nspark.app.name a \\\n b\n{line}\n")
    with pytest.raises(ConfigError, match=r"spark-defaults\.conf, line 5: "):
        read_settings(path)


def test_an_error_of_a_malformed_line_does_not_show_its_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_settings(_file(tmp_path, "fs.s3a.secret.key=hunter2\n"))
    assert "hunter2" not in str(raised.value)


def test_an_unreadable_settings_file_is_reported_with_its_path(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.conf", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            settings({}, path)
    latin = tmp_path / "latin.conf"
    latin.write_bytes("spark.app.name é".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.conf cannot be read: 'utf-8'"):
        settings({}, latin)


def test_given_settings_take_precedence_over_the_file_and_the_defaults(tmp_path: Path) -> None:
    path = _file(tmp_path, "spark.driver.memory 3g\nspark.app.name file\nspark.x 1\n")
    found = settings({"spark.app.name": "given"}, path)
    assert found["spark.master"] == DEFAULTS["spark.master"]
    assert found["spark.driver.memory"] == "3g"
    assert found["spark.app.name"] == "given"
    assert found["spark.x"] == "1"
    assert found.items() >= REQUIRED.items()


def test_required_settings_cannot_be_changed(tmp_path: Path) -> None:
    path = _file(tmp_path, "spark.sql.session.timeZone Europe/Paris\n")
    with pytest.raises(ConfigError, match=r"spark-defaults\.conf sets spark.sql.session.timeZone"):
        settings({}, path)
    with pytest.raises(
        ConfigError, match=r"SparkResource\(.*sets spark.sql.ansi.enabled to 'True'"
    ):
        settings({"spark.sql.ansi.enabled": True})
    for lenient in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        with pytest.raises(ConfigError, match=lenient):
            settings({f"spark.sql.files.{lenient}": "true"})
    same = {"spark.sql.ansi.enabled": False, "spark.sql.session.timeZone": "utc"}
    assert settings(same).items() >= REQUIRED.items()


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_an_embedded_session_listens_only_on_loopback(master: str) -> None:
    found = settings({"spark.master": master})
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"


def test_the_driver_logs_errors_locally_and_warnings_on_a_cluster() -> None:
    for master, level in {"local[2]": "error", "spark://host:7077": "warn"}.items():
        options = shlex.split(settings({"spark.master": master})["spark.driver.defaultJavaOptions"])
        assert f"-Delt.log.level={level}" in options
        (file,) = (each for each in options if each.startswith("-Dlog4j2.configurationFile=file:"))
        assert Path(unquote(urlsplit(file.partition("=")[2]).path)).is_file()


def test_the_ports_of_an_embedded_session_require_its_secret(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    own_port = gateway.gateway_parameters.port
    ports = {
        connection.laddr.port
        for connection in psutil.Process(gateway.proc.pid).net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port != own_port
    }
    assert ports
    for port in ports:
        assert b"Expected SaslMessage" in _answer(port), port


@pytest.mark.parametrize("master", ["local-cluster[1,1,512]", "spark://host:7077"])
def test_a_cluster_has_the_secret_that_its_user_sets(master: str) -> None:
    assert "spark.authenticate" not in settings({"spark.master": master})


def _answer(port: int) -> bytes:
    """Return what a port of Spark answers to a request without credentials, in Spark's frames."""
    request, body = 3, b"hello"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(struct.pack(">QBQI", 21 + len(body), request, 1, len(body)) + body)
        return connection.recv(4096)


def test_the_driver_of_a_cluster_is_not_bound_to_loopback(tmp_path: Path) -> None:
    found = settings({}, _file(tmp_path, "spark.master spark://host:7077\n"))
    assert "spark.driver.host" not in found and "spark.driver.bindAddress" not in found
    # Its own, as the job's warnings are ("has not accepted any resources").
    assert not {"spark.sql.shuffle.partitions", "spark.pyspark.python", "spark.log.level"} & set(
        found
    )
    assert found["fs.file.impl"] == DEFAULTS["fs.file.impl"]


def test_expressions_are_built_without_a_search_of_the_jar_files(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    view: Any = type(spark._jvm)
    look_up = view.__getattr__

    def checked(jvm: Any, name: str) -> Any:
        assert "." in name, f"{name} is looked up by its short name"
        return look_up(jvm, name)

    monkeypatch.setattr(view, "__getattr__", checked)
    F.coalesce(F.col("a"), F.lit(1)).cast("string").isNull()
    F.struct(F.col("a").alias("b"), F.from_json(F.col("a"), "x int"))


def test_expressions_are_built_without_their_place_in_the_code(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would ask the JVM for settings with each method of an expression."""
    captured: list[int] = []
    monkeypatch.setattr(pyspark_errors, "_capture_call_site", captured.append)
    (F.col("a") == 1) & F.col("b").isNull()
    assert not captured


def test_tasks_of_both_kinds_share_their_workers(spark: SparkSession) -> None:
    def name_parent(items: Iterable[object]) -> Iterator[int]:
        list(items)
        yield os.getppid()

    def name_parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"parent": list(name_parent(batches))})

    of_numbers = spark.sparkContext.parallelize(range(1), 1).mapPartitions(name_parent).collect()
    (of_batches,) = spark.range(0, 1, 1, 1).mapInArrow(name_parents, "parent long").collect()
    assert of_numbers == [of_batches.parent]


def test_a_remote_session_gets_only_settings_that_it_supports(tmp_path: Path) -> None:
    found = settings({}, _file(tmp_path, "spark.remote sc://host\n"))
    assert found == {"spark.remote": "sc://host", **SESSION_DEFAULTS, **REQUIRED}


DOCS = (REPOSITORY / "docs" / "spark.md").read_text()


@pytest.mark.parametrize("block", code_blocks(DOCS, "properties"))
def test_the_settings_files_in_the_docs_are_valid(tmp_path: Path, block: str) -> None:
    found = settings({}, _file(tmp_path, block))
    lines = [line for line in block.splitlines() if line and not line.startswith("#")]
    assert [str(found[line.split()[0]]) for line in lines] == [line.split()[1] for line in lines]


@pytest.mark.spark
def test_another_jvm_starts_after_the_first_one_was_killed() -> None:
    """The retry of a step, in the same process, must not meet the session of the dead one."""
    script = (
        "import os, signal, sys\n"
        "from pyspark import SparkContext\n"
        "from elt_assets.lake.session import SparkProvider, settings, start\n"
        "from elt_assets.machine_faults import translate\n"
        "provider = SparkProvider(lambda: start(settings({})))\n"
        "assert provider.get().range(3).count() == 3\n"
        "jvm = SparkContext._gateway.proc\n"
        "os.kill(jvm.pid, signal.SIGKILL)\n"
        "try:\n"
        "    provider._future.result().range(3).count()\n"
        "except Exception as error:\n"
        "    print(type(translate(error)).__name__)\n"
        "jvm.wait()\n"
        "print(provider.get().range(4).count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["TransientError", "4"], done.stderr


@pytest.mark.spark
def test_a_jvm_that_cannot_open_its_files_is_a_fault_of_the_machine() -> None:
    """The JVM itself reports a missing class: with 64 files it cannot open all JARs of Spark."""
    script = (
        "import resource\n"
        "from elt_assets.errors import ConfigError\n"
        "from elt_assets.lake.session import settings, start\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "try:\n"
        "    start(settings({}))\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )
    assert "too many files are open, while Spark was started at local[" in done.stdout, done.stderr
    assert "the limit of open files is 64" in done.stdout
