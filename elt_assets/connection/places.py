"""Where the connections of a project are defined, and which files Dagster must not read.

The commands of `elt`, `pipeline.stream` and `orchestration` find connections with it; `files` and `overlays`
find their files, and `orchestration.project` refuses files.

They are found as Dagster finds components: in the file `defs.yaml` of a folder, which may hold several YAML
documents, or else in the folders below it. A connection is a document whose `type` is `ConnectionComponent`
or a subclass of it. It is known by its name, wherever its folder is.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.connection.connection import Connection
from elt_assets.connection.templates import check_post_processing
from elt_assets.connection.yaml_files import (
    COMPONENT_FILES,
    check_components,
    describe_unreadable,
    read_documents,
)
from elt_assets.errors import ConfigError
from elt_assets.settings import dg_defs, load_object, project

CATALOG_FILE = "catalog.json"
COMPONENT = "elt_assets.ConnectionComponent"
"""The value of `type` in `defs.yaml`."""
_TYPES = frozenset({COMPONENT, "elt_assets.orchestration.component.ConnectionComponent"})
_FOLDER_TYPE = "DefsFolderComponent"
"""The component of Dagster that continues with the folders below its own."""
_TYPE_LINE = re.compile(r"""^type:[ \t]*["']?([A-Za-z_.][\w.]*)""", re.MULTILINE)
"""The `type` of a document in a file that is not YAML: it tells whose file it is."""


@dataclass(frozen=True)
class ConnectionPlace:
    """Where a connection is defined."""

    file: Path
    name: str
    """The name of the connection; that of its folder if the file cannot be read or has no name."""
    document: int = 0  # position among the YAML documents of the file
    kind: str = COMPONENT  # the `type` of the component, as the file has it
    is_alone: bool = True  # whether the file defines no other connection

    @property
    def folder(self) -> Path:
        """The folder from which relative paths of the connection start."""
        return self.file.parent

    @property
    def catalog(self) -> Path:
        """The file of its catalog: `catalog.json`, or `catalog.<name>.json` if its folder has several."""
        return self.folder / (CATALOG_FILE if self.is_alone else f"catalog.{self.name}.json")

    def load_model(self) -> type[Connection]:
        """Return the model of its attributes: `Connection`, or the subclass that its type names.

        Raises:
            ConfigError: the type cannot be imported, or is none of a connection.
        """
        if self.kind in _TYPES:
            return Connection
        try:
            model = _import_type(self.kind, self.folder)
            reason = f"{self.kind} is not a subclass of {COMPONENT}"
        except ConfigError as error:
            model, reason = None, error.message
        if isinstance(model, type) and issubclass(model, Connection):
            return model
        raise ConfigError(
            f"{self.file} is not a connection: {reason}",
            guidance=f"begin the file with `type: {COMPONENT}`, or the name of a subclass of it",
        )


def list_places() -> list[ConnectionPlace]:
    """Return the places of all connections of the project, sorted by name."""
    return sorted(_search(paths.connections()), key=lambda place: (place.name, str(place.file)))


def list_places_in(folder: Path) -> list[ConnectionPlace]:
    """Return the places of the connections that the file of a folder defines.

    Raises:
        ConfigError: there is none.
    """
    return _places_of(folder) or [place_in(folder)]


def find_place(text: str) -> ConnectionPlace:
    """Return the place of a connection, given its name, or the path of its folder.

    Raises:
        ConfigError: there is no such connection, or there are several.
    """
    folder = paths.connections() / text
    if "/" in text:
        return place_in(Path(text) if Path(text).exists() else folder)
    first = [place for place in _places_of(folder) if place.name == text]
    matches = first or [place for place in list_places() if place.name == text]
    matches = matches or [place for place in list_places() if place.folder.name == text]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _describe_several(f"{text!r} is not one connection", matches)
    reason = f"no {paths.DEFINITION_FILE} below {folder.parent} has this name"
    raise _describe_missing(text, folder.parent, reason)


def place_in(folder: Path, name: str | None = None) -> ConnectionPlace:
    """Return the place of the connection in a folder.

    Args:
        name: the name of the connection; not needed if the folder has only one.

    Raises:
        ConfigError: the folder has no connection, none of this name, or several.
    """
    places = _places_of(folder)
    matches = [place for place in places if name in (None, place.name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _describe_several(f"{folder} has {len(matches)} connections", matches)
    definition = definition_file(folder)
    if definition is None:
        reason = f"{folder / paths.DEFINITION_FILE} does not exist"
        raise _describe_missing(folder.name, folder.parent, reason)
    raise ConfigError(
        f"{definition} is not a connection", guidance=f"begin the file with `type: {COMPONENT}`"
    )


def definition_file(folder: Path) -> Path | None:
    """Return the file from which Dagster loads the components of a folder; None if it has none."""
    return next((path for name in COMPONENT_FILES if (path := folder / name).exists()), None)


def check_names(places: list[ConnectionPlace]) -> None:
    """Check that the connections of a project have different names.

    Raises:
        ConfigError: two have the same name.
    """
    by_name: dict[str, ConnectionPlace] = {}
    for place in places:
        other = by_name.setdefault(place.name, place)
        if other is not place:
            raise ConfigError(
                f"{other.file} and {place.file} both define a connection {place.name!r}",
                guidance="give each connection a name of its own: it is in the keys of its assets",
            )


def walk(folder: Path) -> Iterator[Path]:
    """Yield the folders in which Dagster looks for components, in its order."""
    yield folder
    definition = definition_file(folder)
    if definition is not None:
        documents = _read(definition).documents
        if not any(document.kind.endswith(_FOLDER_TYPE) for document in documents):
            return
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:  # it is no folder, or not ours
        return
    for path in inner:
        if not path.name.startswith(".") and path.name != "__pycache__":
            yield from walk(path)


def has_connections(folder: Path) -> bool:
    """Return whether the file of a folder defines a connection, or may define one."""
    return bool(_places_of(folder))


def find_refused_files(root: Path) -> Iterator[tuple[Path, ConfigError]]:
    """Yield each folder below a root whose file of connections Dagster must not read, and the reason.

    Dagster would quote the lines of a file that is not YAML, which may contain secrets, would load a file of
    any size, and would run what is in the templates of `post_processing`. The files of other components are
    left to it: none of them is refused here, whatever is in it.
    """
    for folder in walk(root):
        for place in _places_of(folder):
            file = _read(place.file)
            if file.error is not None:
                yield folder, file.error
                break
            try:
                check_post_processing(file.documents[place.document].post_processing, place.file)
            except ConfigError as error:
                yield folder, error
                break


def _search(folder: Path) -> Iterator[ConnectionPlace]:
    """Yield the places below a folder, in Dagster's order."""
    for inner in walk(folder):
        yield from _places_of(inner)


def _places_of(folder: Path) -> list[ConnectionPlace]:
    """Return the places of the connections that the file of a folder defines."""
    definition = definition_file(folder)
    if definition is None:
        return []
    connections = [
        (number, document)
        for number, document in enumerate(_read(definition).documents)
        if _may_be_connection(document.kind, folder)
    ]
    return [
        ConnectionPlace(
            definition,
            document.name or folder.name,
            number,
            document.kind,
            is_alone=len(connections) == 1,
        )
        for number, document in connections
    ]


@dataclass(frozen=True)
class _Document:
    """A YAML document from which Dagster loads a component.

    One without a `type` is taken for a connection, so that loading it says what is missing.
    """

    name: str | None = None
    kind: str = COMPONENT
    post_processing: Any = None

    @classmethod
    def parse(cls, content: Any) -> _Document:
        if not isinstance(content, Mapping):
            return cls()
        attributes = content.get("attributes")
        name = attributes.get("name") if isinstance(attributes, Mapping) else None
        kind = str(content.get("type", COMPONENT))
        return cls(name if isinstance(name, str) else None, kind, content.get("post_processing"))


@dataclass(frozen=True)
class _DefinitionFile:
    """The documents of a file, and why Dagster could load no component from it; None if it could."""

    documents: tuple[_Document, ...]
    error: ConfigError | None = None


def _read(definition: Path) -> _DefinitionFile:
    try:
        return _read_version(definition, definition.stat().st_mtime_ns)
    except OSError as error:
        return _DefinitionFile((_Document(),), describe_unreadable(definition, error))


@functools.lru_cache(maxsize=4096)
def _read_version(definition: Path, modified: int) -> _DefinitionFile:  # noqa: ARG001 - the cache's
    try:
        contents = read_documents(definition)
    except ConfigError as error:
        kinds = _TYPE_LINE.findall(definition.read_text(encoding="utf-8", errors="replace"))
        documents = tuple(_Document(kind=kind) for kind in kinds)
        return _DefinitionFile(documents or (_Document(),), error)
    documents = tuple(map(_Document.parse, contents)) or (_Document(),)
    try:
        check_components(definition, contents)
    except ConfigError as error:
        return _DefinitionFile(documents, error)
    return _DefinitionFile(documents)


def _may_be_connection(kind: str, folder: Path) -> bool:
    """Return whether a type is that of a connection. One that cannot be imported may be one."""
    if kind in _TYPES:
        return True
    if kind.startswith("dagster.") or "." not in kind:
        return False
    try:
        model = _import_type(kind, folder)
    except ConfigError:
        return True
    return isinstance(model, type) and issubclass(model, Connection)


def _import_type(kind: str, folder: Path) -> object:
    """Import the class that `type` names; a name with a dot first is relative to the folder's module."""
    name, package = kind, None
    root = project()
    if kind.startswith(".") and root is not None:
        package = dg_defs(root)
    if package is not None:
        inner = os.path.relpath(folder, package[1])
        name = ".".join([package[0], *Path(inner).parts]) + kind
    module, _, attribute = name.rpartition(".")
    return load_object("type", f"{module}:{attribute}")


def _describe_several(message: str, places: list[ConnectionPlace]) -> ConfigError:
    listed = ", ".join(f"{place.name} ({place.file})" for place in places)
    return ConfigError(message, guidance=f"write the name of one: {listed}")


def _describe_missing(name: str, root: Path, reason: str) -> ConfigError:
    names = ", ".join(sorted(place.name for place in _search(root)))
    return ConfigError(
        f"there is no connection {name!r}: {reason}",
        guidance=f"known connections: {names}" if names else None,
    )
