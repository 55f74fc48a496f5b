"""The class archive: Spark's classes in one file, which the JVM maps at its start (class-data sharing).

Without it the JVM reads thousands of class files. `make archive` creates it. An embedded session uses it if
it exists, is complete, and was made with the present Java and PySpark. The JVM itself ignores an archive
that does not match its class path, but a truncated one would crash it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark


def folder() -> Path:
    """Return the directory of the archive, in the environment of this Python."""
    return Path(sys.prefix) / "share" / "elt-assets"


def java_options() -> str:
    """Return the JVM options that use the archive; empty if there is no archive for this Java and PySpark."""
    for path in folder().glob(f"{_stem()}-*.jsa"):
        if path.stem.rpartition("-")[2] == str(path.stat().st_size):
            return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:cds*=off'
    return ""


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


def _stem() -> str:
    """Return a file name that identifies PySpark and the Java that Spark's scripts start."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    java = Path(command or "java").resolve()
    modified = java.stat().st_mtime_ns if java.is_file() else 0
    text = "\n".join([str(java), str(modified), pyspark.__version__, pyspark.__path__[0]])
    return f"spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
