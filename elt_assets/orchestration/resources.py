"""The Dagster instance of the home, for `elt`; and what syncs and jobs need, the lake and Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg
import yaml
from dagster_pyspark import LazyPySparkResource, PySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field
from pyspark import SparkContext
from pyspark.sql import SparkSession

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.lake.session import SparkProvider, check_required, open_session, settings, start
from elt_assets.storage.folders import check_writable, lock, make_private
from elt_assets.storage.location import Location
from elt_assets.storage.staging import Staging

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


SPARK_KEY, LAKE_KEY, IO_MANAGER_KEY = "elt_spark", "elt_lake", "elt_io_manager"
"""Keys of the Dagster resources that the assets of connections require."""


def refuse_other_resource(error: BaseException) -> None:
    """Say what to do if Dagster could not merge two resources, and one of them is that of a connection.

    Raises:
        ConfigError: `error` is Dagster's, for another resource with one of the keys above.
    """
    keys = (SPARK_KEY, LAKE_KEY, IO_MANAGER_KEY)
    key = next((key for key in keys if f"with same key '{key}'" in str(error)), None)
    if key is not None and isinstance(error, dg.DagsterInvariantViolationError):
        raise ConfigError(
            f"the resource {key} is defined beside the connections, which have one of this key",
            guidance="name your resources in the setting `resources` of the project, so that commands of "
            "`elt` use them too (docs/projects.md); other definitions take `elt_assets.resources()`",
        ) from None


class SparkResource(LazyPySparkResource):
    """Lazy Spark session of dagster-pyspark, with the settings that the lake needs; can be started early.

    The Spark settings come from the user's file (`paths.spark_settings`) and from `spark_config`, which
    takes precedence. The file is read at the first use of a session. Both can select a cluster
    (`spark.master`) or a Spark Connect server (`spark.remote`). The session lives as long as the process,
    so all assets of a run share one JVM.
    """

    spark_config: dict[str, Any] = Field(
        default={},
        description="Spark settings, nested or with dots: {spark: {sql: {shuffle: {partitions: 8}}}}. "
        "They take precedence over the settings file (docs/spark.md).",
    )

    @cached_property
    def provider(self) -> SparkProvider:
        """The provider of the Spark session.

        Raises:
            ConfigError: the settings are not valid (see `lake.session.settings`).
        """
        configured = dict(flatten_dict(self.spark_config))  # type: ignore[no-untyped-call]
        spark_settings = settings(configured, paths.spark_settings())
        return SparkProvider(lambda: start(spark_settings))

    @property
    def spark_session(self) -> SparkSession:
        return self.provider.get()

    @property
    def spark_context(self) -> SparkContext:
        """The context of the session. A Spark Connect session has no context."""
        return self.spark_session.sparkContext


AnySparkResource: TypeAlias = PySparkResource | LazyPySparkResource
"""The resources of dagster-pyspark, of which `SparkResource` is one."""


_PROVIDERS: dict[int, tuple[AnySparkResource, SparkProvider]] = {}
"""The providers of other resources than `SparkResource`, by identity: each starts one session. Each run has a
resource of its own, so only those of the last runs of this process are kept."""
_MAX_PROVIDERS = 8


def spark_provider(resource: AnySparkResource) -> SparkProvider:
    """Return the provider of the session of any Spark resource.

    The lake works in a session of its own in the Spark of the resource, whose session stays as it is.

    Raises:
        ConfigError: the resource sets one of them to another value.
    """
    if isinstance(resource, SparkResource):
        return resource.provider
    if id(resource) not in _PROVIDERS:
        configured = dict(flatten_dict(resource.spark_config))  # type: ignore[no-untyped-call]
        check_required(configured, f"the resource `{SPARK_KEY}`")
        provider = SparkProvider(lambda: open_session(resource.spark_session, configured))
        _PROVIDERS[id(resource)] = resource, provider
    provider = _PROVIDERS[id(resource)][1]
    if len(_PROVIDERS) > _MAX_PROVIDERS:
        del _PROVIDERS[next(iter(_PROVIDERS))]
    return provider


class LakeResource(dg.ConfigurableResource[Any]):
    """Locations of the tables and of the staged segments; by default from the environment variables."""

    root: str | None = Field(
        default=None,
        description="Root of the tables, a path or URI; default $ELT_LAKE, or $DAGSTER_HOME/lake.",
    )
    storage_options: dict[str, str] = Field(
        default={},
        description="Options of the object store of the tables (docs/storage.md). They take precedence over "
        "those of the environment and of the file that ELT_STORAGE_OPTIONS names. Write a secret as "
        "EnvVar(...).",
    )
    staging: str | None = Field(
        default=None,
        description="Staging of uncommitted records, a path or the URI of an object store, which has the "
        "options of `storage_options`; default $ELT_STAGING, or $DAGSTER_HOME/staging.",
    )

    @property
    def uri(self) -> str:
        return paths.own_place("root` of `elt_lake", self.root) if self.root else paths.lake()

    @property
    def staging_path(self) -> Path:
        """The staging directory of this machine."""
        return paths.staging(self.staging)

    @property
    def sync_staging(self) -> Staging:
        """The places in which syncs stage their records.

        Raises:
            ConfigError: the store, or an option of it, is not supported.
        """
        return paths.staging_of_syncs(self.staging, self.storage_options)

    def check_writable(self) -> None:
        """Check that the lake and the staging folder are writable; called before a source is read.

        Raises:
            ConfigError: one of them is not writable; the error names the setting and the path.
        """
        root, staging = self.root, self.staging
        check_writable(
            self.uri, "the lake", "`root` of elt_lake" if root else _name_setting("ELT_LAKE")
        )
        setting = "`staging` of elt_lake" if staging else _name_setting("ELT_STAGING")
        check_writable(str(self.staging_path), "the staging folder", setting)

    @property
    def location(self) -> Location:
        """The root of the tables, with the options of its store.

        Raises:
            ConfigError: the store, or an option of it, is not supported.
        """
        return Location.parse(self.uri, self.storage_options)


def _name_setting(variable: str) -> str:
    """Return what a user sets to change a default location: the variable, or DAGSTER_HOME if it is unset."""
    return variable if os.environ.get(variable) else f"DAGSTER_HOME (or {variable})"
