"""The folder for what Spark writes beside tables: shuffled, spilled and cached rows.

Spark's own default is the folder for temporary files, in directories that every user of the machine can read.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elt_assets.storage.scratch import scratch

LOCAL_DIR = "spark.local.dir"
_VARIABLE = "SPARK_LOCAL_DIRS"


def choose_local_dir(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the setting of a private folder for a session on this machine; nothing if the user has set one.

    The executors of a cluster, and a Connect server, have folders of their own, on other machines.
    """
    is_here = str(config.get("spark.master", "")).startswith("local")
    if not is_here or LOCAL_DIR in config or os.environ.get(_VARIABLE):
        return {}
    return {LOCAL_DIR: str(_make_folder(os.getpid()))}


@functools.cache
def _make_folder(_process: int) -> Path:
    """Create the folder of this process, which is removed when it ends; after a kill, by the next process."""
    stack = contextlib.ExitStack()
    folder = stack.enter_context(scratch(Path(tempfile.gettempdir()), "spark"))
    atexit.register(stack.close)
    return folder
