"""What every sync needs: the lake's place and the Spark session."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, cast

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from dagster_pyspark.resources import spark_session_from_config
from pyspark.sql import SparkSession

from elt_assets import home
from elt_assets.lake.spark import SparkProvider, settings


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy session, with the settings that the lake needs, startable in advance.

    `spark_config` takes any Spark setting: `spark.master` points it at a cluster, `spark.remote` at
    a Spark Connect server. The session is the process's own and ends with it, so that all assets
    of a run share one JVM.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it

    @cached_property
    def provider(self) -> SparkProvider:
        return SparkProvider(self._start)

    def _start(self) -> SparkSession:
        session = spark_session_from_config(settings(self.spark_config))  # type: ignore[no-untyped-call]
        return cast(SparkSession, session)

    @property
    def spark_session(self) -> SparkSession:
        return self.provider.get()


class LakeResource(dg.ConfigurableResource[Any]):
    """Where tables and staged segments are. `root` and `staging` default to the environment's."""

    root: str | None = None
    staging: str | None = None

    @property
    def uri(self) -> str:
        return (self.root or home.lake()).rstrip("/")

    @property
    def staging_path(self) -> Path:
        return Path(self.staging) if self.staging else home.staging()

    def table_uri(self, path: list[str]) -> str:
        return "/".join([self.uri, *path])
