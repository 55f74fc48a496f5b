"""What many commands need, and what needs no Dagster: streams by name, the connector, JSON and files.

`assets` has its counterpart with Dagster, and uses it too.
"""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.cli.output import Output
from elt_assets.connection import Connection, Stream, resolve_streams
from elt_assets.errors import ConfigError
from elt_assets.pipeline.connectors import make_source, package_to_install
from elt_assets.pipeline.stream import ConnectionStream, default_key
from elt_assets.protocol.catalog import Catalog, StreamId, stream_names
from elt_assets.runner.connector import Connector
from elt_assets.runner.references import keep_file_field, resolve_paths
from elt_assets.settings import settings
from elt_assets.storage.location import Location


def find_stream(connection: str, streams: Collection[StreamId], name: str) -> StreamId:
    """Return the stream with a name as written on the command line.

    Raises:
        ConfigError: no stream has this name, or several streams have it.
    """
    matches = [stream for stream in streams if name == stream.quoted]
    matches = matches or [stream for stream in streams if name == str(stream)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(
            f"{connection} has {len(matches)} streams {name!r}",
            guidance=f"write {' or '.join(repr(match.quoted) for match in matches)}",
        )
    known_names = sorted(stream_names(streams).values())
    near = difflib.get_close_matches(name, known_names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its streams: {', '.join(known_names)}"
    raise ConfigError(f"{connection} has no stream {name!r}", guidance=hint)


def catalog_stream(connection: Connection, catalog: Catalog, name: str) -> ConnectionStream:
    """Return a stream of the catalog, for a connection that configures no other stream.

    The stream has the settings that the connection has for it, or else the default settings.

    Raises:
        ConfigError: the catalog has no such stream, or the stream cannot be synced with its settings.
    """
    catalog_streams = {stream.id: stream for stream in catalog.streams}
    stream_id = find_stream(connection.name, catalog_streams, name)
    default = Stream(name=stream_id.name, namespace=stream_id.namespace)
    settings = next(
        (settings for settings in connection.streams if settings.id == stream_id), default
    )
    fields = {name: getattr(connection, name) for name in Connection.model_fields}
    # Not `model_copy`: it would copy `settings_by_stream` too.
    only = Connection.model_construct(**{**fields, "streams": [settings]})
    (stream,) = resolve_streams(only, catalog)
    return ConnectionStream(only, stream, default_key(only, stream))


def start_connector(connection: Connection, out: Output) -> Connector:
    """Return the connector of a connection's source, after saying that it is started, or installed first."""
    out.announce_installation(package_to_install(connection))
    connector = make_source(connection, paths.staging(), on_log=out.log)
    out.note(f"starting {connector.name}")
    return connector


def parse_config(argument: str | None) -> dict[str, Any]:
    """Parse the option `--config`: JSON, or `@FILE`; empty if it is missing.

    The path in a reference `{"file": PATH}` starts at the working directory.

    Raises:
        ConfigError: it is not a JSON object, or the file cannot be read.
    """
    config = {} if argument is None else parse_json(argument, "--config")
    if not isinstance(config, dict):
        raise ConfigError(
            "--config must be a JSON object", guidance="for example '{\"count\": 10}'"
        )
    return dict(resolve_paths(keep_file_field(config), Path.cwd()))


def parse_json(argument: str, label: str) -> Any:
    """Parse JSON, or the JSON of a file, which is written `@FILE`.

    Raises:
        ConfigError: the text is not JSON, or the file cannot be read. The text is not quoted, since it may
            contain a secret.
    """
    text = argument
    if argument.startswith("@"):
        hint = "correct the path after @, or make the file readable UTF-8 text"
        text = read_text(Path(argument[1:]).expanduser(), f"{label}: {argument[1:]}", hint)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = (
            f"{error.msg} at line {error.lineno}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else str(error)
        )
        raise ConfigError(
            f"{label} is not JSON: {where}",
            guidance=f'write {label} as \'{{"name": "value"}}\', or as @FILE to read it from a file',
        ) from None


def read_text(path: Path, label: str, guidance: str) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8 text. The error names it by the label.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{label} cannot be read: {reason}", guidance=guidance) from None


def find_lake() -> Location:
    """Return the root of the tables of the project, as `project_lake`; without Dagster, if no resource of the
    project says where it is.

    Raises:
        ConfigError: see `project_lake`.
    """
    if settings().resources is None:
        return Location.parse(paths.lake())
    lake: Location = importlib.import_module("elt_assets.orchestration.io_manager").project_lake()
    return lake
