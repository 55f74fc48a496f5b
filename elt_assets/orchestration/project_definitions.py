"""`definitions_for`: the Definitions of a project, with all that its connections need to run well."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import dagster as dg
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.resolved.errors import ResolutionException

from elt_assets import paths
from elt_assets.connection import check_names, list_places_in
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import check_shared_tables, specs_of
from elt_assets.orchestration.automation.alerts import failure_sensors
from elt_assets.orchestration.broken import broken_definitions, skips_broken
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.io_manager import resources
from elt_assets.orchestration.jobs.maintenance import maintenance_job, maintenance_schedule
from elt_assets.orchestration.jobs.replay import replay_job
from elt_assets.orchestration.resources import IO_MANAGER_KEY
from elt_assets.orchestration.runs.executor import add_executor
from elt_assets.orchestration.templates import TEMPLATE_GUIDANCE
from elt_assets.orchestration.tree import SafeTree
from elt_assets.settings import dg_defs, project, use_project

# Dagster's own modules call preview and beta features when they load components and resolve selections.
# Only the warnings about these calls are ignored, not those about calls from our or the user's modules.
for _category in (dg.BetaWarning, dg.PreviewWarning):
    warnings.filterwarnings("ignore", category=_category, module=r"dagster\.")


@contextlib.contextmanager
def _pause_collector() -> Iterator[None]:
    """Stop Python's collector of unused objects, and leave out what is loaded of its later searches.

    What is loaded stays, and to search all of it again and again is a quarter of the time of loading. Only
    the first call of a process leaves objects out, since those of a later one may replace it.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
            gc.enable()


@_pause_collector()
def definitions_for(connections: Path | str | Iterable[Path | str]) -> dg.Definitions:
    """Return the definitions of connections, with all that a project needs once.

    These are the jobs `elt_maintenance` and `elt_replay`, the schedule of the first, the sensor of alerts,
    and the resources of the project (see `elt_assets.resources`). Merge other definitions with them by
    `dg.Definitions.merge`, with `executor=elt_assets.executor` unless you choose another executor.

    Args:
        connections: the folder of definitions, in which Dagster finds all components; or the folders of
            connections, each with a `defs.yaml`, all of whose connections are loaded.

    Raises:
        ConfigError: a connection cannot be loaded, and `on_broken_connection` is not `skip`; or two
            connections have the same name or write to the same table.
    """
    if isinstance(connections, Path | str):
        folder = Path(connections).resolve()
        use_project(folder)
        loaded, components = _load_folder(folder)
    else:
        folders = [Path(folder).resolve() for folder in connections]
        for folder in folders[:1]:
            use_project(folder)
        loaded, components = _load_connections(folders)
    specs = specs_of(loaded)
    check_shared_tables(specs)
    maintenance = maintenance_job(specs)
    streams = [asset for component in components for asset in component.built]
    shared = resources()
    merged = dg.Definitions.merge(
        loaded,
        dg.Definitions(
            jobs=[maintenance, replay_job(streams)],
            schedules=[maintenance_schedule(maintenance)],
            sensors=failure_sensors(),
            # Downstream assets refer to the IO manager by Dagster's default name.
            resources={"io_manager": shared[IO_MANAGER_KEY], **shared},
        ),
    )
    return add_executor(merged)


def _load_folder(folder: Path) -> tuple[dg.Definitions, Sequence[ConnectionComponent]]:
    tree = SafeTree.from_folder(_module(folder), folder)
    loaded = _load(tree)
    components = tree.get_all_components(ConnectionComponent)
    check_names([component.place for component in components if component.place is not None])
    return loaded, components


def _load_connections(
    folders: Sequence[Path],
) -> tuple[dg.Definitions, Sequence[ConnectionComponent]]:
    places = [place for folder in folders for place in list_places_in(folder)]
    check_names(places)
    components: list[ConnectionComponent] = []
    loaded: list[dg.Definitions] = []
    for place in places:
        try:
            component = ConnectionComponent.load_at(place)
            loaded.append(component.definitions())
            components.append(component)
        except ConfigError as error:  # noqa: PERF203 - each connection may fail
            if not skips_broken():
                raise
            loaded.append(broken_definitions(place.name, error))
    return dg.Definitions.merge(*loaded), components


def _module(folder: Path) -> ModuleType:
    """Return the folder of connections as a module, from which Dagster loads components."""
    root = project() or paths.repository()
    package = dg_defs(root) if root is not None else None
    if package is not None and folder == package[1].resolve():
        return importlib.import_module(package[0])
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
