"""`defs.<ENV>.yaml`: what differs from `defs.yaml` in the environment that `ELT_ENV` names.

`files` merges it into a connection that it loads; `orchestration.project` and `elt validate` check them all.

The overlay has the form of `defs.yaml`, with only what differs. It is merged before anything is checked:

- mappings by key, streams by their name and namespace; a stream that `defs.yaml` does not have is added;
- any other value, a list too, replaces the one of `defs.yaml`. So does a reference as `{env: NAME}`, which is
  one value, and the kind of a connector, of which there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elt_assets.branches import environment
from elt_assets.connection.connector import Destination, Source
from elt_assets.connection.places import definition_file, has_connections, walk
from elt_assets.connection.yaml_files import COMPONENT_FILES, read_documents
from elt_assets.errors import ConfigError
from elt_assets.runner.references import LITERAL, Reference, keep_file_field

Json = Mapping[str, Any]
_CONNECTORS = {"source": Source, "destination": Destination}
_WITH_REFERENCES = ("config", "environment")
"""Keys of a connector whose values may be references."""


def overlay_file(definition: Path) -> Path | None:
    """Return the overlay of a definition file in this process's environment; None if it has none."""
    name = environment()
    if not name or "/" in name:
        return None
    path = definition.with_name(f"{definition.stem}.{name}{definition.suffix}")
    return path if path.is_file() else None


def apply_overlay(attributes: Json, definition: Path) -> Json:
    """Return the attributes of a connection with those of its overlay merged into them.

    Raises:
        ConfigError: the overlay cannot be read, or has another form.
    """
    path = overlay_file(definition)
    if path is None:
        return attributes
    name = attributes.get("name")
    for overlay in read_overlay(path):
        if overlay.get("name", name) == name:
            attributes = _merge_attributes(attributes, overlay, path)
    return attributes


def read_overlay(path: Path) -> list[Json]:
    """Return the attributes of each document of an overlay.

    Raises:
        ConfigError: the overlay cannot be read, or has another form.
    """
    overlays: list[Json] = []
    for document in read_documents(path):
        content = document if isinstance(document, Mapping) else {}
        attributes = content.get("attributes")
        if not isinstance(attributes, Mapping) or set(content) - {"type", "attributes"}:
            raise ConfigError(
                f"{path} is not an overlay of a connection",
                guidance="write `attributes` with what differs in this environment, and nothing else; "
                "docs/projects.md describes it",
            )
        overlays.append(attributes)
    return overlays


def check_overlays(folder: Path) -> None:
    """Check that each overlay below a folder belongs to a connection.

    Raises:
        ConfigError: an overlay cannot be read, or there is no such connection.
    """
    for _, error in find_overlay_problems(folder):
        raise error


def find_overlay_problems(folder: Path) -> Iterator[tuple[Path, ConfigError]]:
    """Yield each overlay below a folder that cannot be read or belongs to no connection, and the error.

    Files of other components with such a name are none: those beside the definition of another component,
    and those without a definition that do not have the form of an overlay.
    """
    for inner in walk(folder):
        if definition_file(inner) is not None and not has_connections(inner):
            continue
        for name in COMPONENT_FILES:
            stem, suffix = Path(name).stem, Path(name).suffix
            for path in sorted(inner.glob(f"{stem}.*{suffix}")):
                try:
                    _check_overlay(path, path.with_name(name))
                except ConfigError as error:  # noqa: PERF203 - overlays are few
                    yield path, error


def _check_overlay(path: Path, definition: Path) -> None:
    try:
        documents = read_documents(definition)
    except FileNotFoundError:
        if not _is_overlay(path):
            return
        raise ConfigError(
            f"{path} is the overlay of a connection that does not exist: there is no {definition}",
            guidance=f"create {definition.name} beside it, or remove the overlay",
        ) from None
    contents = [document for document in documents if isinstance(document, Mapping)]
    bodies = [content.get("attributes") for content in contents]
    names = [body.get("name") for body in bodies if isinstance(body, Mapping)]
    for overlay in read_overlay(path):
        name = overlay.get("name")
        if name is None and len(names) != 1:
            raise ConfigError(
                f"{path}: `attributes.name` is missing, and {definition.name} has {len(names)} connections",
                guidance=f"write which one it is for: {', '.join(map(str, names))}",
            )
        if name is not None and name not in names:
            raise ConfigError(
                f"{path} is for the connection {name!r}, which {definition} does not define",
                guidance=f"its connections are {', '.join(map(str, names))}; a name cannot be overridden",
            )


def _is_overlay(path: Path) -> bool:
    try:
        return bool(read_overlay(path))
    except ConfigError:
        return False


def _merge_attributes(base: Json, overlay: Json, path: Path) -> Json:
    merged = dict(_merge(base, {key: value for key, value in overlay.items() if key != "streams"}))
    for key in _CONNECTORS:
        if isinstance(overlay.get(key), Mapping):
            merged[key] = _merge_connector(key, base.get(key), overlay[key])
    if "streams" in overlay:
        merged["streams"] = _merge_streams(base.get("streams"), overlay["streams"], path)
    return merged


def _merge_connector(key: str, base: Any, overlay: Json) -> Json:
    """Return a connector with that of the overlay merged into it: one kind, and a config with references."""
    if not isinstance(base, Mapping):
        return overlay
    kinds = {kind.key for kind in _CONNECTORS[key].kinds}
    replaced = kinds - set(overlay) if kinds & set(overlay) else set()
    merged = {name: value for name, value in base.items() if name not in replaced}
    for name, value in overlay.items():
        merge = _merge_values if name in _WITH_REFERENCES else _merge
        merged[name] = merge(base.get(name), value)
    return merged


def _merge_streams(base: Any, overlay: Any, path: Path) -> Any:
    if not isinstance(base, Sequence) or not isinstance(overlay, Sequence):
        return overlay
    streams = list(base)
    for stream in overlay:
        if not isinstance(stream, Mapping) or "name" not in stream:
            raise ConfigError(
                f"{path}: a stream without a name", guidance="write the `name` of the stream"
            )
        same = [i for i, other in enumerate(streams) if _stream_id(other) == _stream_id(stream)]
        for i in same:
            streams[i] = _merge(streams[i], stream)
        if not same:
            streams.append(stream)
    return streams


def _stream_id(stream: Any) -> tuple[str, str]:
    names = stream if isinstance(stream, Mapping) else {}
    return str(names.get("namespace")), str(names.get("name"))


def _merge(base: Any, overlay: Any) -> Any:
    if not isinstance(base, Mapping) or not isinstance(overlay, Mapping):
        return overlay
    return {**base, **{key: _merge(base.get(key), value) for key, value in overlay.items()}}


def _merge_values(base: Any, overlay: Any, *, is_whole: bool = True) -> Any:
    """Return merged values of which each may be a reference, that is one value.

    Args:
        is_whole: whether they are whole configs, whose lone field `file` is no reference.
    """
    if not isinstance(base, Mapping) or not isinstance(overlay, Mapping):
        return overlay
    if any(_is_one_value(value, is_whole=is_whole) for value in (base, overlay)):
        return overlay
    merged = {
        key: _merge_values(base.get(key), value, is_whole=False) for key, value in overlay.items()
    }
    return {**base, **merged}


def _is_one_value(value: Json, *, is_whole: bool) -> bool:
    is_file_field = is_whole and keep_file_field(value) is not value
    return set(value) == {LITERAL} or (Reference.parse(value) is not None and not is_file_field)
