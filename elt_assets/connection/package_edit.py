"""Change the version of a package in a definition file, and nothing else of its text."""

from __future__ import annotations

import secrets

import yaml

from elt_assets.connection.places import ConnectionPlace
from elt_assets.errors import ConfigError


def replace_package(place: ConnectionPlace, kind: str, old: str, new: str) -> str:
    """Return the text of the definition file with another value of `source.<kind>`; comments stay.

    Raises:
        ConfigError: the value is not in this file: an overlay or a template names it.
    """
    text = place.file.read_text(encoding="utf-8")
    documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    node: yaml.Node | None = documents[place.document]
    for key in ("attributes", "source", kind):
        node = _find_value(node, key)
    if not isinstance(node, yaml.ScalarNode) or node.value != old:
        raise ConfigError(
            f"{place.file} does not have `{kind}: {old}` in its `source`",
            guidance="change the version where it is written: in an overlay, an anchor or a template",
        )
    start, end = node.start_mark.index, node.end_mark.index
    return text[:start] + text[start:end].replace(old, new) + text[end:]


def write_definition(place: ConnectionPlace, text: str) -> None:
    """Replace the definition file atomically.

    Raises:
        ConfigError: it cannot be written.
    """
    draft = place.file.with_name(f".{place.file.name}.{secrets.token_hex(8)}")
    try:
        try:
            draft.write_text(text, encoding="utf-8")
            draft.chmod(place.file.stat().st_mode & 0o777)
            draft.replace(place.file)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{place.file} cannot be written: {error.strerror}",
            guidance=f"make the folder {place.folder} writable, and make room on the disk",
        ) from error


def _find_value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)
