"""A Hive Metastore of the tests, from the jars that PySpark ships, with its database in a folder."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

_OPENED = ("java.lang", "java.net", "java.util")
"""Packages of Java whose members the metastore reads by reflection."""
_LIGHT = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_SECONDS = 120


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Start a metastore whose database and warehouse are in an empty folder; yield its URI (`thrift://…`)."""
    with metastore_process(folder) as (uri, _):
        yield uri


@contextmanager
def metastore_process(
    folder: Path, port: int | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a metastore as `hive_metastore` does; yield its URI and its process.

    A folder that has a database already is used with it: a metastore can be ended and started again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hive-site.xml").write_text(_site(folder))
    jars = Path(pyspark.__file__).parent / "jars"
    port = port or _free_port()
    command = [
        str(Path(os.environ["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in os.environ else "java",
        *_LIGHT,
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        f"-Dderby.stream.error.file={folder / 'derby.log'}",
        *("-cp", f"{folder}:{jars}/*"),
        *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)),
    ]
    log = folder / "metastore.log"
    with log.open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=folder)
    try:
        _wait(port, process, log)
        yield f"thrift://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(timeout=30)


def _site(folder: Path) -> str:
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'database'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "hive.async.log.enabled": "false",  # PySpark ships no disruptor
    }
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>{properties}</configuration>"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the metastore has ended: {log.read_text()[-2000:]}"
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError("waited for the metastore")
