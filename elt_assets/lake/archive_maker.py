"""The program that makes the class archive: it syncs a small project of its own in a temporary folder.

`python -m elt_assets.lake.archive_maker` takes about a minute on two cores and writes 180 MB. A process
with an embedded session starts it in the background (`class_archive.make_later`). The project of that process
is not used: its connections, its settings and its lake are not read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from elt_assets.errors import SystemFailure
from elt_assets.lake import class_archive
from elt_assets.storage.folders import scratch

PROJECT = "[tool.elt]\n"
CONNECTION = """
type: elt_assets.ConnectionComponent
attributes:
  name: shop
  source: {connector: faker, config: {count: 1000}}
  streams:
    - {name: users, sync_mode: incremental, destination_sync_mode: append_dedup}
    - {name: products, sync_mode: full_refresh, destination_sync_mode: overwrite}
    - {name: orders, sync_mode: incremental, destination_sync_mode: append}
"""
DISCOVER = ["-m", "elt_assets.cli", "discover", "shop"]
SYNC = [
    *("-m", "dagster", "asset", "materialize"),
    *("-m", "elt_assets.definitions", "--select", "group:shop"),
]
IF_MISSING = "--if-missing"
OPTIONS = "spark.driver.defaultJavaOptions"
QUICK = "-XX:TieredStopAtLevel=1"
"""JVM option that switches the optimising compiler off, which would take most of the time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the archive, and return the exit code. With `IF_MISSING` a present archive stays."""
    words = sys.argv[1:] if arguments is None else arguments
    if class_archive.IN_BACKGROUND in words:
        os.nice(19)
        sys.stdin.read()
        if class_archive.java_options():
            return 0
        try:
            make()
        except Exception as error:  # noqa: BLE001 - no caller waits for this process
            class_archive.failure_log().write_text(f"{error}\n", encoding="utf-8")
            return 1
        return 0
    if IF_MISSING in words and class_archive.java_options():
        return 0
    sys.stderr.write("Making an archive of Spark's classes; this takes about a minute.\n")
    try:
        made = make()
    except SystemFailure as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write("Another process is making it.\n" if made is None else f"Made {made}\n")
    return 0


def make() -> Path | None:
    """Make the archive, check that a JVM accepts it, and return its path.

    Returns:
        None if another process is making it.

    Raises:
        SystemFailure: a sync of the small project failed.
    """
    folder = class_archive.folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _try_lock(folder) as is_free:
        if not is_free:
            return None
        with scratch(folder, "draft") as work:
            draft = work / "classes.jsa"
            connection = work / "defs" / "shop"
            connection.mkdir(parents=True)
            (work / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
            (connection / "defs.yaml").write_text(CONNECTION, encoding="utf-8")
            _run(work, DISCOVER)
            _sync(work, f'"-XX:ArchiveClassesAtExit={draft}" {QUICK}')
            use = f'"-XX:SharedArchiveFile={draft}" -Xshare:auto -XX:+VerifySharedSpaces'
            _sync(work, f"{use} {QUICK}")
            class_archive.failure_log().unlink(missing_ok=True)
            return class_archive.keep(draft)


@contextlib.contextmanager
def _try_lock(folder: Path) -> Iterator[bool]:
    """Lock the folder for this process; yield whether it was free."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _sync(folder: Path, options: str) -> None:
    """Sync with options for the JVM; return when the JVM has ended, which writes the archive.

    The JVM ends after its run, and holds the pipe until then.
    """
    (folder / "spark-defaults.conf").write_text(f"{OPTIONS} {options}\n", encoding="utf-8")
    _run(folder, SYNC)


def _run(folder: Path, arguments: Sequence[str]) -> None:
    """Run a program of this Python in the small project."""
    own = {
        "DAGSTER_HOME": str(folder),
        "ELT_PROJECT": str(folder),
        "ELT_DEFS": str(folder / "defs"),
        "ELT_SPARK_ARCHIVE": "off",
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ELT_")}
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**inherited, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if process.returncode:
        raise SystemFailure(
            "the archive of Spark's classes cannot be made: the sync of a small project failed",
            guidance="runs work without the archive, and start more slowly; correct what the output "
            "below says, then run `python -m elt_assets.lake.archive_maker`",
            detail=process.stdout,
        )


if __name__ == "__main__":
    sys.exit(main())
