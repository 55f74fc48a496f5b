"""The files that `elt init` and `elt new-connector` write: of a project, its deployment, a connector.

They are made from templates of this package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from elt_assets.errors import ConfigError
from elt_assets.storage.folders import replace_text

_FOLDER = Path(__file__).parent / "project_template"


def render(name: str, values: Mapping[str, str]) -> str:
    """Return the text of a template, with `$name` replaced by its value."""
    text = (_FOLDER / f"{name}.template").read_text(encoding="utf-8")
    return Template(text).substitute(values)


def write_new(path: Path, text: str) -> bool:
    """Write a file, unless it exists; return whether it was written.

    Raises:
        ConfigError: the file cannot be written.
    """
    if path.exists():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path.parent} cannot be created: {error.strerror}",
            guidance="make the directory writable, and make room on the disk",
        ) from error
    replace_text(path, text)
    return True


FOLDER = "deploy"
FILES = (
    "Dockerfile",
    "Dockerfile.dockerignore",
    "compose.yaml",
    "workspace.yaml",
    "helm-values.yaml",
)
INSTANCE = "dagster.yaml"


def write_deployment_files(root: Path, definitions: str) -> list[Path]:
    """Write the files that are missing in the folder `deploy` of a project; return their paths.

    Args:
        root: the folder of the project.
        definitions: the module with the definitions of the project.
    """
    # Docker, compose and Kubernetes accept it.
    name = re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")[:40].strip("-") or "elt"
    values = {"name": name, "definitions": definitions}
    texts = {file: render(f"deployment/{file}", values) for file in FILES}
    # the project's instance, whose first paragraph is about its SQLite files
    _, _, instance = render(INSTANCE, {}).partition("\n\n")
    texts[INSTANCE] = render("deployment/storage.yaml", {}) + "\n" + instance
    paths = {root / FOLDER / file: text for file, text in texts.items()}
    return [path for path, text in paths.items() if write_new(path, text)]
