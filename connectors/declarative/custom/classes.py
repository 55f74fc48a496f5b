"""The classes that components in Python name, and the modules that have them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from connectors.declarative.manifest.components import Custom
from elt_assets.errors import ConfigError

FILE = "components.py"
"""The file beside a manifest that may have the classes."""
_NAME = "components"
_ALWAYS_BESIDE = (_NAME, f"source_declarative_manifest.{_NAME}")
"""The names under which the file is meant, even if there is an installed module of such a name."""
_PACKAGES = {"airbyte_cdk": "airbyte-cdk"}
"""The packages to install for modules that are named otherwise."""

_lock = threading.RLock()
_files: dict[tuple[str, Path], ModuleType] = {}
"""The modules that were loaded from a file beside a manifest, by name and file."""


def find_class(component: Custom, folder: Path | None) -> Any:
    """Return the class that a component names.

    Args:
        component: a component whose module the user trusts; the loader of the manifest has checked that.
        folder: the folder of the manifest, for the module in its file components.py; None for none.

    Raises:
        ConfigError: there is no such module or class, or the module cannot be imported.
    """
    module, _, name = component.class_name.rpartition(".")
    with _lock:
        try:
            found = _module(module, folder)
        except ModuleNotFoundError as error:
            raise _missing(component, module, error) from error
        except Exception as error:
            raise ConfigError(
                f"{component.place}: the module {module!r} cannot be imported: "
                f"{type(error).__name__}: {error}",
                guidance="correct the module",
            ) from error
    cls = getattr(found, name, None)
    if not callable(cls):
        raise ConfigError(
            f"{component.place}: the module {module!r} has no class {name!r}",
            guidance="correct `class_name`, or install the version of the module that fits the manifest",
        )
    return cls


def _module(name: str, folder: Path | None) -> ModuleType:
    """Return a module: the file beside the manifest, or an importable one."""
    file = None
    if folder is not None and name.rpartition(".")[2] == _NAME:
        file = (folder / FILE).resolve()
        file = file if file.is_file() else None
    if file is not None and name in _ALWAYS_BESIDE:
        return _load(name, file)
    if sys.modules.get(name) in _files.values():
        del sys.modules[name]  # the file beside another manifest
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        is_itself = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if file is None or not is_itself:
            raise
    return _load(name, file)


def _load(name: str, file: Path) -> ModuleType:
    """Return the module in a file. It is imported once; its folder can be imported from meanwhile."""
    module = _files.get((name, file))
    if module is not None:
        sys.modules[name] = module
        return module
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, folder = sys.modules.get(name), str(file.parent)
    sys.modules[name] = module  # dataclasses look there for their module
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    finally:
        sys.path.remove(folder)
    _files[name, file] = module
    return module


def _missing(component: Custom, module: str, error: ModuleNotFoundError) -> ConfigError:
    missing = error.name or ""
    if f"{module}.".startswith(f"{missing}."):
        return ConfigError(
            f"{component.place}: there is no module {module!r}, and no file {FILE} beside the manifest",
            guidance=f"put the file there, or install the package that has the module {module!r}",
        )
    top = missing.partition(".")[0]
    package = _PACKAGES.get(top, top)
    guidance = f"install it in the environment of the connector: pip install {package}"
    if missing != top and sys.modules.get(top) is not None:
        guidance = f"install the version of {package} for which the module was written"
    return ConfigError(
        f"{component.place}: the module {module!r} needs the module {missing!r}, which is not installed",
        guidance=guidance,
    )
