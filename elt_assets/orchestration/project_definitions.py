"""`definitions_for`: the Definitions of a project, with all that its connections need to run well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import dagster as dg

from elt_assets.connection import check_names, list_places_in
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import (
    check_dead_letters,
    check_shared_tables,
    specs_of,
)
from elt_assets.orchestration.automation.alerts import failure_sensors
from elt_assets.orchestration.broken import broken_definitions, skips_broken
from elt_assets.orchestration.collector import pause_collector
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.io_manager import resources
from elt_assets.orchestration.jobs.maintenance import maintenance_job, maintenance_schedule
from elt_assets.orchestration.jobs.replay import replay_job
from elt_assets.orchestration.runs.executor import add_executor
from elt_assets.orchestration.tree import load_folder
from elt_assets.settings import use_project


@pause_collector()
def definitions_for(connections: Path | str | Iterable[Path | str]) -> dg.Definitions:
    """Return the definitions of connections, with all that a project needs once.

    These are the jobs `elt_maintenance` and `elt_replay`, the schedule of the first, the sensor of alerts,
    and the resources of the project (see `elt_assets.resources`). Merge other definitions with them by
    `dg.Definitions.merge`, with `executor=elt_assets.executor` unless you choose another executor. Dagster's
    default IO manager stays as it is.

    Args:
        connections: the folder of definitions, in which Dagster finds all components; or the folders of
            connections, each with a `defs.yaml`, all of whose connections are loaded.

    Raises:
        ConfigError: a connection cannot be loaded, and `on_broken_connection` is not `skip`; or two
            connections have the same name or write to the same table; or an asset depends on a dead letter
            that is no asset.
    """
    if isinstance(connections, Path | str):
        folder = Path(connections).resolve()
        use_project(folder)
        loaded, components = load_folder(folder)
    else:
        folders = [Path(folder).resolve() for folder in connections]
        for folder in folders[:1]:
            use_project(folder)
        loaded, components = _load_connections(folders)
    specs = specs_of(loaded)
    check_shared_tables(specs)
    maintenance = maintenance_job(specs)
    streams = [asset for component in components for asset in component.built]
    check_dead_letters(specs, streams)
    merged = dg.Definitions.merge(
        loaded,
        dg.Definitions(
            jobs=[maintenance, replay_job(streams)],
            schedules=[maintenance_schedule(maintenance)],
            sensors=failure_sensors(),
            resources=resources(),
        ),
    )
    return add_executor(merged)


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
