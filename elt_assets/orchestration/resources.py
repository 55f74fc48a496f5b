"""What every sync needs: the lake's place and the Spark session."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field
from pyspark import SparkContext
from pyspark.sql import SparkSession

from elt_assets import paths
from elt_assets.lake.spark.session import SparkProvider, settings, start
from elt_assets.storage.directories import check_writable
from elt_assets.storage.location import Location

SPARK_KEY, LAKE_KEY, IO_MANAGER_KEY = "elt_spark", "elt_lake", "elt_io_manager"
"""What the assets of connections ask Dagster for."""


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy session, with the settings that the lake needs, startable in advance.

    Spark's settings come from the user's file (`paths.spark_settings_file`), read when a session is
    first asked for, and from `spark_config`, which wins. Either may point it at a cluster
    (`spark.master`) or at a Spark Connect server (`spark.remote`). The session is the process's own
    and ends with it, so that all assets of a run share one JVM.
    """

    spark_config: dict[str, Any] = Field(
        default={},
        description="Spark's settings, nested or with dots, as {spark: {sql: {shuffle: {partitions: 8}}}}. "
        "They win over those of the settings file (docs/spark.md).",
    )

    @cached_property
    def provider(self) -> SparkProvider:
        """Raises:
        ConfigError: the settings are wrong (see `lake.spark.settings`).
        """
        given = dict(flatten_dict(self.spark_config))  # type: ignore[no-untyped-call]
        wanted = settings(given, paths.spark_settings_file())
        return SparkProvider(lambda: start(wanted))

    @property
    def spark_session(self) -> SparkSession:
        return self.provider.get()

    @property
    def spark_context(self) -> SparkContext:
        """Of the same session; a remote one has none."""
        return self.spark_session.sparkContext


class LakeResource(dg.ConfigurableResource[Any]):
    """Where tables and staged segments are. `root` and `staging` default to the environment's."""

    root: str | None = Field(
        default=None,
        description="The tables' root, a path or URI; default $ELT_LAKE, or $DAGSTER_HOME/lake.",
    )
    staging: str | None = Field(
        default=None,
        description="The folder of records on their way; default $ELT_STAGING, or $DAGSTER_HOME/staging.",
    )

    @property
    def uri(self) -> str:
        return paths.location(self.root) if self.root else paths.lake()

    @property
    def staging_path(self) -> Path:
        return Path(paths.location(self.staging)) if self.staging else paths.staging()

    def check_writable(self) -> None:
        """Refuse a place that cannot be written to, before a source is read.

        Raises:
            ConfigError: names the setting and the path.
        """
        root, staging = self.root, self.staging
        check_writable(self.uri, "the lake", "`root` of elt_lake" if root else _setting("ELT_LAKE"))
        setting = "`staging` of elt_lake" if staging else _setting("ELT_STAGING")
        check_writable(str(self.staging_path), "the staging folder", setting)

    def table_uri(self, path: list[str]) -> str:
        return Location.of(self.uri).child(*path).uri


def _setting(variable: str) -> str:
    """Return the variable that a default place comes from."""
    return variable if os.environ.get(variable) else f"DAGSTER_HOME (or {variable})"
