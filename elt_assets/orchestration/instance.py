"""The Dagster instance of the home directory, whose databases are in the home or in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import yaml

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.storage.folders import lock, make_private

LOCK = "instance.lock"
"""File in the home that is locked while a process opens Dagster's databases."""
_VALUES = re.compile(r'( Expected: | Value "| of original value ).*?(?= failed:\n|\Z)', re.DOTALL)
"""The parts of an error of Dagster's config that quote values or a long schema."""
_TRACE = re.compile(r"\n\s*Stack Trace:.*", re.DOTALL)
_POSTGRES = re.compile(r"\b(dagster_postgres|psycopg2?)\b")


def open_instance() -> dg.DagsterInstance:
    """Return the Dagster instance of the home directory; `DAGSTER_HOME` need not be set.

    Dagster creates its databases in the first process that opens them; a second one that opens them meanwhile
    would fail. So only one process at a time opens them.

    Raises:
        ConfigError: `dagster.yaml` is not valid, or it needs a package that is not installed. The error
            quotes no value of the file.
    """
    home = paths.home()
    make_private(home)
    with lock(home / LOCK), _config_errors(home / "dagster.yaml"):
        return dg.DagsterInstance.from_config(str(home))


@contextmanager
def _config_errors(path: Path) -> Iterator[None]:
    """Raise the errors of an instance's file as errors of its author."""
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path} is not valid YAML{place}", guidance="correct it") from None
    except dg.DagsterInvalidConfigError as error:
        reasons = [_TRACE.sub("", _VALUES.sub("", item.message)) for item in error.errors]
        raise ConfigError(
            f"{path} is not valid: " + "; ".join(reasons),
            guidance="docs.dagster.io describes the file; docs/deployment.md has one with PostgreSQL",
        ) from None
    except Exception as error:
        # Dagster's error for a class that cannot be imported has no public name.
        if not isinstance(error, ImportError) and "Failure condition: Couldn't" not in str(error):
            raise
        raise ConfigError(
            f"{path} needs what cannot be loaded: {error}",
            guidance="install it: pip install 'elt-assets[postgres]'"
            if _POSTGRES.search(str(error))
            else "correct the name, or install its package",
        ) from error
