"""Change the version of a package in a definition file, and nothing else of its text."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from elt_assets.connection.overlays import overlay_file, read_overlay
from elt_assets.connection.places import ConnectionPlace
from elt_assets.connection.problems import children_of
from elt_assets.errors import ConfigError


def replace_package(place: ConnectionPlace, kind: str, old: str, new: str) -> str:
    """Return the text of the definition file with another value of `source.<kind>`; comments stay.

    Raises:
        ConfigError: the value is not in this file, or not only: an overlay or a template names it.
    """
    overlay = overlay_file(place.file)
    contents = [] if overlay is None else read_overlay(overlay)
    sources = [
        content.get("source")
        for content in contents
        if content.get("name", place.name) == place.name
    ]
    if any(isinstance(source, Mapping) and kind in source for source in sources):
        raise ConfigError(
            f"{overlay} names the `{kind}` of this environment, so a change of {place.file} has no effect",
            guidance="change the version in the overlay, then run `elt discover`",
        )
    with place.file.open(encoding="utf-8", newline="") as file:  # its line breaks stay
        text = file.read()
    documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    node: yaml.Node | None = documents[place.document]
    for key in ("attributes", "source", kind):
        _, node = children_of(node).get(key, (None, None))
    if not isinstance(node, yaml.ScalarNode) or node.value != old:
        raise ConfigError(
            f"{place.file} does not have `{kind}: {old}` in its `source`",
            guidance="change the version where it is written: in an overlay, an anchor or a template",
        )
    start, end = node.start_mark.index, node.end_mark.index
    return text[:start] + text[start:end].replace(old, new) + text[end:]
