"""The files with which a project is deployed: an image, a compose file, values for Dagster's Helm chart."""

from __future__ import annotations

import re
from pathlib import Path

from elt_assets.cli.templates import render, write_new

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
    values = {"name": _image_name(root.name), "definitions": definitions}
    texts = {name: render(f"deployment/{name}", values) for name in FILES}
    # the project's instance, whose first paragraph is about its SQLite files
    _, _, instance = render(INSTANCE, {}).partition("\n\n")
    texts[INSTANCE] = render("deployment/storage.yaml", {}) + "\n" + instance
    paths = {root / FOLDER / name: text for name, text in texts.items()}
    return [path for path, text in paths.items() if write_new(path, text)]


def _image_name(project: str) -> str:
    """Return a name that Docker, compose and Kubernetes accept."""
    return re.sub(r"[^a-z0-9]+", "-", project.lower()).strip("-")[:40].strip("-") or "elt"
