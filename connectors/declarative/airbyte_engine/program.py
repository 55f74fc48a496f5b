"""The program that runs a manifest on Airbyte's engine, as `source-declarative-manifest` does.

It runs in an environment that has airbyte-cdk, and lacks this project: it imports nothing of it. The manifest
is given to the engine beside the config, as that of an image of Airbyte is, so that no config that the engine
validates, reports or saves contains it.

Only classes of trusted modules are imported, whatever the manifest, the config or an API names: the factory
of the engine gets each class from here.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from airbyte_cdk.entrypoint import AirbyteEntrypoint, launch
from airbyte_cdk.exception_handler import init_uncaught_exception_handler
from airbyte_cdk.logger import init_logger
from airbyte_cdk.models import FailureType
from airbyte_cdk.sources.declarative.concurrent_declarative_source import (
    ConcurrentDeclarativeSource,
)
from airbyte_cdk.sources.declarative.parsers.model_to_component_factory import (
    ModelToComponentFactory,
)
from airbyte_cdk.utils.traced_exception import AirbyteTracedException
from airbyte_cdk.utils.yaml_loader import safe_load_yaml

COMPONENTS = "components"
PACKAGE = "source_declarative_manifest"
"""The package that the folder of a manifest is in Airbyte's images."""
_FOLDER_OF_FILE = re.compile(r"""\bfile_path["']?\s*:\s*["']?(?:\./)?(\w+)/""")
"""Matches the first folder in the path of a JSON schema."""
_MAX_REASON = 500
"""Number of characters that are shown of the reason for which the engine refuses a manifest."""
_CLASS = re.compile(r"""\bclass_name["']?\s*:\s*["']?(\w+)\.""")
"""Matches the first part of the name of a class."""


def main(argv: Sequence[str]) -> None:
    """Run a command of the source that a manifest describes."""
    init_uncaught_exception_handler(init_logger("airbyte"))
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--trust", action="append", default=[])
    parser.add_argument("--path", action="append", default=[])
    settings, words = parser.parse_known_args(argv)
    arguments = AirbyteEntrypoint.parse_args(words)
    text = settings.manifest.read_text(encoding="utf-8")
    folder = settings.manifest.resolve().parent
    # At the end: the packages of the engine's own environment come first.
    sys.path += [str(folder), *settings.path] if settings.trust else []
    for name in _packages(text):
        register_package(name, folder)
    find_class = ClassFinder(settings.trust)
    ModelToComponentFactory._get_class_from_fully_qualified_class_name = find_class  # noqa: SLF001
    launch(_source(text, folder, arguments, is_trusted=bool(settings.trust)), words)


def _source(
    text: str, folder: Path, arguments: argparse.Namespace, *, is_trusted: bool
) -> ConcurrentDeclarativeSource:
    """Return the source that a manifest describes.

    Raises:
        AirbyteTracedException: the engine refuses the manifest.
    """
    manifest = safe_load_yaml(text)
    manifest.setdefault("spec", read_specification(folder))
    engine = ConcurrentDeclarativeSource
    config = _read(engine.read_config, arguments, "config")
    catalog = _read(engine.read_catalog, arguments, "catalog")
    state = _read(engine.read_state, arguments, "state")
    try:
        return engine(
            config=config,
            catalog=catalog,
            state=state,
            source_config=manifest,
            config_path=getattr(arguments, "config", None),
            custom_components_trusted=is_trusted,
        )
    except AirbyteTracedException:
        raise
    except Exception as error:  # noqa: BLE001 - the engine may raise anything
        reason = error.__cause__ or error
        place = getattr(reason, "json_path", "").removeprefix("$.")
        message = getattr(reason, "message", None) or f"{type(reason).__name__}: {reason}"
        where = f"{place}: " if place else ""
        _refuse(f"Airbyte's engine refuses the manifest: {where}{message[:_MAX_REASON]}", error)


def _read(read: Any, arguments: argparse.Namespace, name: str) -> Any:
    path = getattr(arguments, name, None)
    return None if path is None else read(path)


def read_specification(folder: Path) -> dict[str, Any]:
    """Return the `spec` of a manifest that has none: that in the file beside it, if there is one."""
    specification: dict[str, Any] = {}
    for file in (folder / "spec.yaml", folder / "spec.json"):
        if file.is_file():
            specification = safe_load_yaml(file.read_text(encoding="utf-8"))
    authorization = specification.get("advanced_auth")
    return {
        "type": "Spec",
        "connection_specification": specification.get("connectionSpecification", {}),
        "documentation_url": specification.get("documentationUrl", ""),
        **({"advanced_auth": _remove_nulls(authorization)} if authorization else {}),
    }


def _remove_nulls(specification: Any) -> Any:
    """Return a value without the nulls in its mappings, which a manifest cannot have."""
    if not isinstance(specification, dict):
        return specification
    return {
        name: _remove_nulls(value) for name, value in specification.items() if value is not None
    }


def _packages(text: str) -> Iterable[str]:
    """Return the names of the packages that may be the folder of the manifest."""
    return dict.fromkeys([PACKAGE, *_CLASS.findall(text), *_FOLDER_OF_FILE.findall(text)])


def register_package(name: str, folder: Path) -> None:
    """Make a folder, or the folder of the name in it, a package, unless there is a module of this name.

    Modules are imported from it, and the engine reads the files of JSON schemas in it.
    """
    if name == COMPONENTS or (importlib.util.find_spec(name) is not None and name != "schemas"):
        return
    inner = folder / name
    place = inner if inner.is_dir() else folder
    spec = importlib.util.spec_from_file_location(
        name, place / "__init__.py", submodule_search_locations=[str(place)]
    )
    assert spec is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)


class ClassFinder:
    """Returns the classes that components name, if their modules are trusted.

    Args:
        trusted: the modules, and the packages whose modules, are trusted.
    """

    def __init__(self, trusted: Sequence[str]):
        self._trusted = trusted

    def __call__(self, name: str) -> Any:
        """Return a class by its name with its module.

        Raises:
            AirbyteTracedException: the module is not trusted, cannot be imported, or has no such class.
        """
        module, _, last = name.rpartition(".")
        if not any(f"{module}.".startswith(f"{trusted}.") for trusted in self._trusted):
            _refuse(f"the class {name!r} is Python; it runs only if its module is trusted")
        # The file beside the manifest has two names, and is one module.
        path = f"{PACKAGE}.{COMPONENTS}" if module == COMPONENTS else module
        try:
            target = _attribute(importlib.import_module(path), last)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if f"{path}.".startswith(f"{missing}."):
                _refuse(
                    f"there is no module {module!r}, and no file {COMPONENTS}.py beside the manifest: put "
                    f"the file there, or install the package that has the module {module!r}",
                    error,
                )
            top = missing.partition(".")[0]
            reason = (
                "which is not installed: name its package in `install.packages` beside `manifest`"
            )
            if top in sys.modules:
                reason = (
                    f"which the installed {top} does not have: it was written for another version"
                )
            _refuse(f"the module {module!r} needs the module {missing!r}, {reason}", error)
        except Exception as error:  # noqa: BLE001 - a module may raise anything
            _refuse(
                f"the module {module!r} cannot be imported: {type(error).__name__}: {error}", error
            )
        if not callable(target):
            _refuse(f"the module {module!r} has no class {last!r}")
        return target


def _attribute(module: Any, name: str) -> Any:
    """Return an attribute of a module, None if it has none. A package of `register_package` is imported whole
    only for its own attributes: its other modules are of no use here, and may need another engine."""
    if not hasattr(module, name) and Path(getattr(module, "__file__", None) or "").is_file():
        module.__spec__.loader.exec_module(module)
    return getattr(module, name, None)


def _refuse(text: str, cause: Exception | None = None) -> NoReturn:
    raise AirbyteTracedException(
        message=text, internal_message=text, failure_type=FailureType.config_error, exception=cause
    ) from cause


if __name__ == "__main__":
    main(sys.argv[1:])
