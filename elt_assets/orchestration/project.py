"""`definitions_for`: the Definitions of a project, with all that its connections need to run well.

Projects call it in their own code, and `definitions` does for `workspace.yaml`.

First the components of its folder, loaded by Dagster's own tree. Components of other packages are as
`dagster.load_from_defs_folder` has them. Only the files of connections are read before, and refused if
Dagster must not read them (`find_refused_files`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
from dagster.components.core.decl import (
    DefsFolderDecl,
    build_filesystem_component_decl_from_context,
)
from dagster.components.core.defs_module import ComponentPath
from dagster_shared.utils.config import discover_config_file

from elt_assets.connection import (
    check_names,
    check_overlays,
    definition_file,
    find_overlay_problems,
    find_refused_files,
    list_places_in,
)
from elt_assets.errors import ConfigError
from elt_assets.orchestration.alert_sensor import alert_sensors
from elt_assets.orchestration.alerts import failure_sensors
from elt_assets.orchestration.build import check_dead_letters, check_shared_tables, specs_of
from elt_assets.orchestration.collector import pause_collector
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.failures import broken_definitions, skips_broken
from elt_assets.orchestration.io_manager import resources
from elt_assets.orchestration.resources import refuse_other_resource
from elt_assets.orchestration.runs.executor import add_executor
from elt_assets.orchestration.table_jobs import maintenance_job, maintenance_schedule, replay_job
from elt_assets.settings import project, use_project

_MODULE = "elt_defs"
"""Name of the module that stands for a folder that is not the folder of definitions of a `dg` project."""
_SUPPRESSED = (dg.BetaWarning, dg.PreviewWarning, dg.SupersessionWarning, DeprecationWarning)
"""Warnings that Dagster's own function ignores, since it calls preview features itself."""


def load_folder(folder: Path) -> tuple[dg.Definitions, Sequence[ConnectionComponent]]:
    """Return the definitions of all components of a folder, and those components that are connections.

    Raises:
        ConfigError: a connection cannot be loaded, and `on_broken_connection` is not `skip`; or two have the
            same name.
    """
    refused = dict(find_refused_files(folder))
    if not skips_broken():
        for error in refused.values():
            raise error.with_traceback(None)
        check_overlays(folder)
    with warnings.catch_warnings():
        for category in _SUPPRESSED:
            warnings.simplefilter("ignore", category)
        tree = _make_tree(folder, PartialTree if skips_broken() else dg.ComponentTree)
        if isinstance(tree, PartialTree):
            tree.left_out.update(refused)
        loaded = _build(tree)
        components = tree.get_all_components(ConnectionComponent)
    check_names([component.place for component in components if component.place is not None])
    if skips_broken():
        errors = {_name(folder, inner): error for inner, error in refused.items()}
        for path, error in find_overlay_problems(folder):
            if path.parent not in refused:  # an overlay of what cannot be read may be valid
                errors[f"{_name(folder, path.parent)}_{path.stem}"] = error
        broken = [broken_definitions(name, error) for name, error in errors.items()]
        loaded = dg.Definitions.merge(loaded, *broken)
    return loaded, components


class PartialTree(dg.ComponentTree):
    """Dagster's tree without the folders whose files are refused."""

    @cached_property
    def left_out(self) -> dict[Path, ConfigError]:
        """The folders that the tree does not have, and why."""
        return {}

    def _get_filesystem_decl(self) -> Any:
        loc = ComponentPath.from_path(self.defs_module_path)
        if self.state_tracker.get_cache_data(loc).component_decl is None:
            context = self.decl_load_context.for_component_loc(loc)
            decl = self._declare(context) or _declare_folder(context, {})
            self.state_tracker.set_cache_data(loc, component_decl=decl)
        return super()._get_filesystem_decl()

    def _declare(self, context: Any) -> Any:
        """Return the declaration of a file or folder, as Dagster's function of this purpose."""
        if context.path in self.left_out:
            return None
        if definition_file(context.path) is not None or not context.path.is_dir():
            return build_filesystem_component_decl_from_context(context)
        children = {
            path: decl
            for path in sorted(context.path.iterdir())
            if not path.name.startswith(".")
            and path.name != "__pycache__"
            and (decl := self._declare(context.for_component_loc(ComponentPath.from_path(path))))
        }
        return _declare_folder(context, children) if children else None


def _declare_folder(context: Any, children: dict[Path, Any]) -> DefsFolderDecl:
    return DefsFolderDecl(
        context=context,
        loc=ComponentPath.from_path(context.path),
        children=children,
        source_tree=None,
        component_file_model=None,
    )


def _make_tree(folder: Path, kind: type[dg.ComponentTree]) -> dg.ComponentTree:
    """Return Dagster's tree of a folder: that of its `dg` project, if this is its folder of definitions."""
    if discover_config_file(folder) is not None:
        tree = kind.for_project(folder)
        if tree.defs_module_path.resolve() == folder:
            return tree
    module = ModuleType(_MODULE)
    module.__path__ = [str(folder)]
    module.__file__ = str(folder / "__init__.py")  # Dagster asks for its parent
    sys.modules[module.__name__] = module
    return kind(defs_module=module, project_root=project() or folder.parent)


def _build(tree: dg.ComponentTree) -> dg.Definitions:
    """Return the definitions of a tree.

    Raises:
        ConfigError: a connection cannot be loaded. It is raised without the errors that Dagster wraps it
            in, so that the cause is in the last lines that a user sees.
    """
    try:
        return tree.build_defs()
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ConfigError):
            refuse_other_resource(cause)
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause.with_traceback(None) from None


def _name(root: Path, folder: Path) -> str:
    return "_".join(folder.relative_to(root).parts)


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
    streams = [asset for component in components for asset in component.built]
    maintenance = maintenance_job(specs, streams)
    check_dead_letters(specs, streams)
    merged = dg.Definitions.merge(
        loaded,
        dg.Definitions(
            jobs=[maintenance, replay_job(streams)],
            schedules=[maintenance_schedule(maintenance)],
            sensors=[*failure_sensors(), *alert_sensors(streams)],
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
