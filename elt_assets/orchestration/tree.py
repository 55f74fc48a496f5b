"""The tree of a project's components: found as Dagster finds them, with templates that run no code."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
from dagster._check import CheckError
from dagster.components.core.component_tree import ComponentTree
from dagster.components.core.context import ComponentDeclLoadContext
from dagster.components.core.decl import (
    ComponentDecl,
    DefsFolderDecl,
    build_filesystem_component_decl_from_context,
)
from dagster.components.core.defs_module import ComponentPath

from elt_assets.connection import (
    YAML_ERRORS,
    check_components,
    check_overlays,
    definition_file,
    find_overlay_problems,
    read_components,
)
from elt_assets.connection.yaml_limits import check_all_limits
from elt_assets.errors import ConfigError
from elt_assets.orchestration.broken import broken_definitions, skips_broken
from elt_assets.orchestration.templates import SafeContext


class SafeTree(ComponentTree):
    """A tree of components whose templates run no code, whatever their type."""

    @classmethod
    def from_folder(cls, module: ModuleType, folder: Path) -> SafeTree:
        """Return the tree of a folder, which is also a module.

        Raises:
            ConfigError: the YAML of a component exceeds a limit, or an overlay belongs to no connection.
        """
        if not skips_broken():
            check_all_limits(folder)
            check_overlays(folder)
        return cls(defs_module=module, project_root=folder.parent)

    def load(self) -> dg.Definitions:
        """Return the definitions of all components.

        Raises:
            ConfigError: a file is not YAML. Dagster's own error would quote its lines, and so a secret.
            ComponentTreeException: a component cannot be loaded.
        """
        try:
            loaded = self.build_defs()
        except (*YAML_ERRORS, CheckError):  # an empty file is the last one
            try:
                check_components(self.defs_module_path)
            except ConfigError as error:
                raise error from None
            raise
        if skips_broken():
            self._add_overlay_problems()
        broken = [broken_definitions(name, error) for name, error in self.unreadable.items()]
        return dg.Definitions.merge(loaded, *broken)

    def _add_overlay_problems(self) -> None:
        """Add the overlays that belong to no connection, or cannot be read.

        Those beside a definition that cannot be read itself are left out: they may be valid.
        """
        for path, error in find_overlay_problems(self.defs_module_path):
            if self._name(path.parent) not in self.unreadable:
                self.unreadable[f"{self._name(path.parent)}_{path.stem}"] = error

    def _name(self, folder: Path) -> str:
        return "_".join(folder.relative_to(self.defs_module_path).parts)

    @property
    def decl_load_context(self) -> ComponentDeclLoadContext:
        """The context from which Dagster makes those of all components."""
        context = super().decl_load_context
        object.__setattr__(
            context, "resolution_context", SafeContext.from_context(context.resolution_context)
        )
        return context

    @cached_property
    def unreadable(self) -> dict[str, ConfigError]:
        """The errors of the files that were skipped, by the path of their folder, or of the overlay."""
        return {}

    def _get_filesystem_decl(self) -> ComponentDecl[Any]:
        """Return the declarations of all components; with `on_broken_connection: skip`, without files that
        cannot be read."""
        loc = ComponentPath.from_path(self.defs_module_path)
        if skips_broken() and self.state_tracker.get_cache_data(loc).component_decl is None:
            decl = self._declare(self.decl_load_context.for_component_loc(loc))
            self.state_tracker.set_cache_data(loc, component_decl=decl)
        return super()._get_filesystem_decl()

    def _declare(self, context: ComponentDeclLoadContext) -> ComponentDecl[Any] | None:
        """Return the declaration of a file or folder, as Dagster's function of this purpose."""
        definition = definition_file(context.path)
        if definition is not None:
            try:
                read_components(definition)
            except ConfigError as error:
                self.unreadable[self._name(context.path)] = error
                return None
        if definition is not None or not context.path.is_dir():
            return build_filesystem_component_decl_from_context(context)
        children = {
            path: decl
            for path in sorted(context.path.iterdir())
            if not path.name.startswith((".", "__pycache__"))
            and (decl := self._declare(context.for_component_loc(ComponentPath.from_path(path))))
        }
        return DefsFolderDecl(
            context=context,
            loc=ComponentPath.from_path(context.path),
            children=children,
            source_tree=None,
            component_file_model=None,
        )
