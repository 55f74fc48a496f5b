"""The files that `elt init` and `elt new-connector` write from templates of this package."""

from __future__ import annotations

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
