"""`register`: the tables of the project as a data source of a Spark session.

A notebook calls it once. Spark's workers have no project, so they get the place of its lake from here, and
the paths of tables that do not follow from the keys of their assets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import dagster as dg

from elt_assets.lake.read.lake_reference import ENVIRONMENT, TEXT, LakeReference
from elt_assets.lake.read.spark_source import register_source
from elt_assets.lake.session import SparkSession
from elt_assets.orchestration.io_manager import project_lake, resources
from elt_assets.orchestration.resources import LAKE_KEY, LakeResource
from elt_assets.pipeline.table_names import list_special_paths
from elt_assets.storage.location import Location, store_of


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("elt").load("shop/users")` read the tables of this project.

    Call it again after a connection was added or changed. A stream that is added without settings of its
    table, namespace or prefix is found without that.

    Raises:
        ConfigError: the project's lake cannot be found.
    """
    lake = project_lake()
    streams, namespaces = list_special_paths()
    reference = LakeReference.describe(lake, _find_credentials(lake))
    register_source(spark, replace(reference, streams=streams, namespaces=namespaces))


def _find_credentials(lake: Location) -> Mapping[str, tuple[str, str]]:
    """Return where the credentials are that the resource of the lake has."""
    resource: LakeResource = resources()[LAKE_KEY]
    if not lake.options:
        return {}
    store = store_of(lake.uri)
    return {
        store.bare(name): (ENVIRONMENT, value.env_var_name)
        if isinstance(value, dg.EnvVar)
        else (TEXT, f"`storage_options` of {LAKE_KEY}")
        for name, value in resource.storage_options.items()
    }
