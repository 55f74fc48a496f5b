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
    # Docker, compose and Kubernetes accept it.
    name = re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")[:40].strip("-") or "elt"
    values = {"name": name, "definitions": definitions}
    texts = {file: render(f"deployment/{file}", values) for file in FILES}
    # the project's instance, whose first paragraph is about its SQLite files
    _, _, instance = render(INSTANCE, {}).partition("\n\n")
    texts[INSTANCE] = render("deployment/storage.yaml", {}) + "\n" + instance
    paths = {root / FOLDER / file: text for file, text in texts.items()}
    return [path for path, text in paths.items() if write_new(path, text)]
