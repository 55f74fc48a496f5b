"""The Definitions object of the project, assembled from its connections."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType

import dagster as dg
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.resolved.errors import ResolutionException

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import check_shared_tables, specs_of
from elt_assets.orchestration.automation.alerts import failure_sensors
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.io_manager import resources
from elt_assets.orchestration.jobs.maintenance import maintenance_job, maintenance_schedule
from elt_assets.orchestration.jobs.replay import replay_job
from elt_assets.orchestration.resources import IO_MANAGER_KEY
from elt_assets.orchestration.runs.executor import in_process_executor
from elt_assets.orchestration.templates import TEMPLATE_GUIDANCE, SafeTree

# Dagster's own modules call preview and beta features when they load components and resolve selections.
# Only the warnings about these calls are ignored, not those about calls from our or the user's modules.
for _category in (dg.BetaWarning, dg.PreviewWarning):
    warnings.filterwarnings("ignore", category=_category, module=r"dagster\.")


def _module(folder: Path) -> ModuleType:
    """Return the folder of connections as a module, from which Dagster loads components."""
    if folder == Path(__file__).parent / "defs":
        return importlib.import_module("elt_assets.defs")
    module = ModuleType("elt_defs")
    module.__path__ = [str(folder)]
    module.__file__ = str(folder / "__init__.py")  # Dagster asks for its parent
    sys.modules[module.__name__] = module
    return module


def _load(tree: SafeTree) -> dg.Definitions:
    """Load the components of a tree.

    Raises:
        ConfigError: a connection cannot be loaded. It is raised without the errors that Dagster wraps it
            in, so that the cause is in the last lines that a user sees.
    """
    try:
        return tree.load()
    except ComponentTreeException as error:
        cause = error.__cause__
        while cause is not None and not isinstance(cause, ConfigError | ResolutionException):
            cause = cause.__cause__
        if cause is None:
            raise
        if isinstance(cause, ResolutionException):
            raise ConfigError(str(cause), guidance=TEMPLATE_GUIDANCE) from None
        raise cause.with_traceback(None) from None


def build() -> dg.Definitions:
    """Return the definitions of every connection, with the resources that they need.

    Raises:
        ConfigError: a connection cannot be loaded, or two connections write to the same table.
    """
    folder = paths.connections().resolve()
    tree = SafeTree.from_folder(_module(folder), folder)
    connections = _load(tree)
    specs = specs_of(connections)
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
            # Downstream assets refer to the IO manager by Dagster's default name.
            resources={**resources(), "io_manager": resources()[IO_MANAGER_KEY]},
            executor=in_process_executor,
        ),
    )


defs = build()
