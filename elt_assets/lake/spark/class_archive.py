"""Spark's classes in one file that its JVM maps when it starts, instead of reading thousands of them.

Java's class-data sharing. `make archive` makes the file; an embedded session takes it where it is
there, whole, and of the Java and PySpark at hand. The JVM itself leaves one aside that does not fit
its class path; one that was cut short would crash it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark


def folder() -> Path:
    """Beside the jars that it is of: in the environment of this Python."""
    return Path(sys.prefix) / "share" / "elt-assets"


def java_options() -> str:
    """What the JVM must be told to use the archive; empty where there is none for it."""
    for path in folder().glob(f"{_stem()}-*.jsa"):
        if path.stem.rpartition("-")[2] == str(path.stat().st_size):
            return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:cds*=off'
    return ""


def keep(draft: Path) -> Path:
    """Put a finished archive in its place in one step, its size in its name; a JVM that has mapped the
    former one goes on with that. `draft` must be on the same file system."""
    final = folder() / f"{_stem()}-{draft.stat().st_size}.jsa"
    former = set(folder().glob("spark-*.jsa")) - {final}
    draft.replace(final)
    for path in former:
        path.unlink(missing_ok=True)
    return final


def _stem() -> str:
    """Names the Java that Spark's scripts take, and PySpark."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    java = Path(found or "java").resolve()
    made = java.stat().st_mtime_ns if java.is_file() else 0
    text = "\n".join([str(java), str(made), pyspark.__version__, pyspark.__path__[0]])
    return f"spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
