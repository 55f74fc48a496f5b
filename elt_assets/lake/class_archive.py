"""The class archive: Spark's classes in one file, which the JVM maps at its start (class-data sharing).

Without it the JVM reads thousands of class files. `archive_maker` creates it, once, after the first run with
an embedded session. An embedded session (`session`) uses it if it exists, is complete, and was made with the
present Java and PySpark. The JVM itself ignores an archive that does not match its class path, but a
truncated one would crash it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from elt_assets import paths
from elt_assets.module_start import module_command

MAKER = "elt_assets.lake.archive_maker"
IN_BACKGROUND = "--in-background"


def folder() -> Path:
    """Return the directory for a new archive.

    It is in the environment of this Python; or, if this user cannot write there, in the user's cache.
    """
    own, cached = _folders()
    ancestor = next(path for path in (own, *own.parents) if path.exists())
    return own if os.access(ancestor, os.W_OK) else cached


def java_options() -> str:
    """Return the JVM options that use the archive; empty if there is no archive for this Java and PySpark."""
    archives = (path for folder_ in _folders() for path in folder_.glob(f"{_stem()}-*.jsa"))
    for path in archives:
        if path.stem.rpartition("-")[2] == str(path.stat().st_size):
            return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:cds*=off'
    return ""


def failure_log() -> Path:
    """Return the path of the log of a failed attempt to make the archive for this Java and PySpark."""
    return folder() / f"{_stem()}.log"


@functools.cache
def make_later() -> None:
    """Make the archive when this process has ended, in another process of the lowest priority.

    Nothing happens if there is an archive, if an attempt has failed, or if the user has switched it off. The
    other process waits for the end of a pipe that only this process holds.
    """
    if not paths.makes_archive() or java_options() or failure_log().exists():
        return
    end, _held = os.pipe()
    subprocess.Popen(
        [*module_command(MAKER), IN_BACKGROUND],
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(end)


def keep(draft: Path) -> Path:
    """Move a finished archive to its final path, atomically, and remove the archives before it.

    The name contains the size, so that a truncated archive is recognised. A JVM that has mapped an archive
    can use it after its removal.

    Args:
        draft: the finished archive, on the same file system.
    """
    final = folder() / f"{_stem()}-{draft.stat().st_size}.jsa"
    former = set(folder().glob("spark-*.jsa")) - {final}
    draft.replace(final)
    for path in former:
        path.unlink(missing_ok=True)
    return final


def _folders() -> tuple[Path, Path]:
    """Return the directories that may hold an archive: in the environment, and in the user's cache."""
    name = hashlib.sha256(sys.prefix.encode()).hexdigest()[:16]
    return Path(sys.prefix) / "share" / "elt-assets", paths.cache() / name


def _stem() -> str:
    """Return a file name that identifies PySpark and the Java that Spark's scripts start."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    java = Path(command or "java").resolve()
    modified = java.stat().st_mtime_ns if java.is_file() else 0
    text = "\n".join([str(java), str(modified), pyspark.__version__, pyspark.__path__[0]])
    return f"spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
