"""The one Definitions object: assembles, decides nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import dagster as dg
from dagster.components.core.component_tree import ComponentTree

from elt_assets import home
from elt_assets.orchestration.alerts import failure_sensors
from elt_assets.orchestration.assets import check_shared_tables
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.io_manager import resources
from elt_assets.orchestration.resources import IO_MANAGER_KEY
from elt_assets.orchestration.upkeep import maintenance_job, maintenance_schedule, replay_job


def _module(folder: Path) -> ModuleType:
    """The folder of connections as the module that Dagster loads components from."""
    if folder == Path(__file__).parent / "defs":
        return importlib.import_module("elt_assets.defs")
    module = ModuleType("elt_defs")
    module.__path__ = [str(folder)]
    module.__file__ = str(folder / "__init__.py")  # Dagster asks for its parent
    sys.modules[module.__name__] = module
    return module


def _specs(asset: object) -> Iterable[dg.AssetSpec]:
    if isinstance(asset, dg.AssetSpec):
        return [asset]
    return asset.specs if isinstance(asset, dg.AssetsDefinition) else []


def build() -> dg.Definitions:
    """Every connection under the folder of connections, with the resources they need."""
    folder = home.connections().resolve()
    tree = ComponentTree.from_module(_module(folder), folder.parent)
    connections = tree.build_defs()
    specs = [spec for asset in connections.assets or [] for spec in _specs(asset)]
    check_shared_tables(specs)
    maintenance = maintenance_job(specs)
    components = tree.get_all_components(ConnectionComponent)
    streams = [asset for component in components for asset in component.built]
    return dg.Definitions.merge(
        connections,
        dg.Definitions(
            jobs=[maintenance, replay_job(streams)],
            schedules=[maintenance_schedule(maintenance)],
            sensors=failure_sensors(),
            # Assets downstream name the IO manager as Dagster does.
            resources={**resources(), "io_manager": resources()[IO_MANAGER_KEY]},
            executor=dg.in_process_executor,
        ),
    )


defs = build()
