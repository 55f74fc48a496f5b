"""Processes of Spark that tests start from the installed package, on loopback, and their Python."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyspark

from tests.conftest import SHORT_LIVED


@contextmanager
def daemon(
    work: Path, name: str, *arguments: str, hidden: Path | None = None, **environment: str
) -> Iterator[int]:
    """Run one of Spark's processes and yield its id; it is ended with the block, and what it started with it.

    Args:
        hidden: a folder that is empty for the process, and for what it starts; this needs the rights of root.
    """
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    if hidden is not None:
        mounted = 'mount -t tmpfs none "$0" && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", mounted, str(hidden), *command]
    own = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    }
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with (work / f"{name}.log").open("a") as log:
        process = subprocess.Popen(
            [*command, f"org.apache.spark.deploy.{name}", *arguments],
            env={**inherited, **own, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def run_connect_server(work: Path, python: str, path: str = "") -> Iterator[str]:
    """Run a server of Spark Connect with two cores; yield its URL.

    Args:
        python: of its workers; `path`: their PYTHONPATH.
    """
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    server = ["--master", "local[2]", *options, *main]
    with daemon(work, "SparkSubmit", *server, PYSPARK_PYTHON=python, PYTHONPATH=path):
        wait(lambda: _answers(port), "the server to listen", seconds=180)
        yield f"sc://127.0.0.1:{port}"


def _answers(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def python_of_executors(folder: Path) -> Path:
    """One with pyarrow, numpy and msgspec and nothing else: neither pandas nor this project."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = Path(pa.__file__).parent.parent
    for name in ("pyarrow", "numpy", "msgspec"):
        for package in installed.glob(f"{name}*"):
            (packages / package.name).symlink_to(package)
    return folder / "bin" / "python"


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for socket_ in sockets:
            socket_.bind(("127.0.0.1", 0))
        return [socket_.getsockname()[1] for socket_ in sockets]


def wait(condition: Callable[[], bool], label: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except OSError:  # no process listens yet
            pass
        time.sleep(0.2)
    raise TimeoutError(f"waited for {label}")
