"""ELT with Dagster assets as its units and Spark as its engine.

Public names are imported on first use, so that `import elt_assets.protocol` loads no large packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elt_assets.orchestration.build import build_connection_assets
    from elt_assets.orchestration.component import ConnectionComponent
    from elt_assets.orchestration.io_manager import SparkIOManager, resources
    from elt_assets.orchestration.project import definitions_for
    from elt_assets.orchestration.resources import LakeResource, SparkResource
    from elt_assets.orchestration.runs.executor import executor
    from elt_assets.orchestration.spark_source import register
    from elt_assets.orchestration.table_reading import changes, open_document, read_table
    from elt_assets.orchestration.translator import ConnectionTranslator

    __version__: str

__all__ = [
    "ConnectionComponent",
    "ConnectionTranslator",
    "LakeResource",
    "SparkIOManager",
    "SparkResource",
    "__version__",
    "build_connection_assets",
    "changes",
    "definitions_for",
    "executor",
    "open_document",
    "read_table",
    "register",
    "resources",
]

_MODULES = {
    "ConnectionComponent": "elt_assets.orchestration.component",
    "ConnectionTranslator": "elt_assets.orchestration.translator",
    "LakeResource": "elt_assets.orchestration.resources",
    "SparkIOManager": "elt_assets.orchestration.io_manager",
    "SparkResource": "elt_assets.orchestration.resources",
    "build_connection_assets": "elt_assets.orchestration.build",
    "changes": "elt_assets.orchestration.table_reading",
    "definitions_for": "elt_assets.orchestration.project",
    "executor": "elt_assets.orchestration.runs.executor",
    "open_document": "elt_assets.orchestration.table_reading",
    "read_table": "elt_assets.orchestration.table_reading",
    "register": "elt_assets.orchestration.spark_source",
    "resources": "elt_assets.orchestration.io_manager",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("elt-assets")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
