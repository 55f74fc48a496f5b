"""`elt new`: creates a connection with every stream of a source."""

from __future__ import annotations

import copy
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from elt_assets import paths
from elt_assets.cli.lookup import parse_json, refuse_installed
from elt_assets.cli.options import subcommand
from elt_assets.cli.output import OK, Output
from elt_assets.connection import (
    CATALOG_FILE,
    DEFINITION_FILE,
    parse_connection,
    plain_name,
    save_catalog,
)
from elt_assets.connection.template import document, stream_attributes
from elt_assets.errors import ConfigError
from elt_assets.lake.write.write_spec import check_columns
from elt_assets.orchestration.assets.build import build_connection_assets
from elt_assets.protocol.airbyte.catalog import Catalog, stream_names
from elt_assets.protocol.schema_places import Place
from elt_assets.protocol.specification import unknown_fields
from elt_assets.runner.config.credentials import RESERVED
from elt_assets.runner.config.secrets import resolve_environment
from elt_assets.runner.config.validation import validate
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds.builtin import built_in
from elt_assets.runner.kinds.registry import open_connector, to_install
from elt_assets.runner.package_index import newest_version

_PACKAGE = re.compile(r"[A-Za-z0-9._-]*(?:^|-)(?:source|tap)-[A-Za-z0-9._-]+")
"""Pattern of the names of connectors' packages, such as `airbyte-source-x` or `meltanolabs-tap-x`."""
_TAP = re.compile(r"(?:^|-)tap-")
"""Pattern of the names of Singer taps (`tap-x`) and of their packages (`tap-x`, `somebody-tap-x`)."""


@subcommand(
    "new",
    "elt new shop --source faker --config '{\"count\": 500}'",
    "elt new crm --source airbyte-source-hubspot --config @hubspot.json",
    "elt new erp --source tap-postgres==0.10.0 --config @postgres.json",
)
@click.argument("name")
@click.option(
    "--source",
    required=True,
    help="A built-in connector, a package (PACKAGE==VERSION, or PACKAGE for its newest version), or a "
    'command as "PROGRAM ARGUMENT ...".',
)
@click.option("--config", metavar="JSON", help="Config of the source: JSON, or @FILE.")
def command(out: Output, name: str, source: str, config: str | None) -> int:
    """Create the connection NAME with every stream that its source has.

    NAME consists of letters, digits and underscores. Secrets in the config are replaced by references to
    environment variables; the command prints the environment variables to set.
    """
    folder = _new_folder(name)
    kind, value = _source(source, out)
    given = {} if config is None else parse_json(config, "--config")
    if not isinstance(given, dict):
        raise ConfigError(
            "--config must be a JSON object", guidance="for example '{\"count\": 10}'"
        )
    out.announce_installation(to_install(kind, value, paths.packages()))
    connector = open_connector(
        kind, value, given, paths.staging(), paths.packages(), on_log=out.log
    )
    out.note(f"starting {connector.name}")
    _check_config(connector, given)
    schema = connector.specification.connectionSpecification
    for warning in unknown_fields(given, schema):
        out.warn(warning)
    secrets = validate(given, schema, connector.name).secrets
    kept, variables = _without_secrets(given, secrets, name)
    catalog = connector.discover()
    streams, left_out = _configured(catalog, connector.name)
    _write(folder, document(name, {kind: value, "config": kept}, list(streams.values())), catalog)
    modes = ("sync_mode", "destination_sync_mode")
    out.table(
        ["stream", *modes],
        [(stream, *(settings[mode] for mode in modes)) for stream, settings in streams.items()],
    )
    for stream in left_out:
        out.warn(
            f"{stream} is left out: its schema lacks the key or cursor that the source defines"
        )
    out.line(f"wrote {folder / DEFINITION_FILE} and {CATALOG_FILE}")
    for variable, field in variables.items():
        out.line(
            f"set {variable} where Dagster runs: {field} is a secret and is not written to the file"
        )
    out.line(f"next: elt sync {name}")
    out.document(
        {
            "connection": name,
            "folder": str(folder),
            "source": {kind: value},
            "streams": list(streams.values()),
            "left_out": left_out,
            "environment": variables,
        }
    )
    return OK


def _configured(catalog: Catalog, connector: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the settings of each stream by its name, and the names of streams that cannot be configured.

    A stream cannot be configured if its schema lacks the key or cursor that the source defines, or if no
    table can be made from its schema.

    Raises:
        ConfigError: no stream can be configured.
    """
    names = stream_names([stream.id for stream in catalog.streams])
    found = {
        names[stream.id]: stream_attributes(stream, check_columns) for stream in catalog.streams
    }
    streams = {stream: settings for stream, settings in found.items() if settings is not None}
    left_out = sorted(set(found) - set(streams))
    if not catalog.streams:
        raise ConfigError(
            f"{connector} has no streams",
            guidance="check that its config gives access to any data",
        )
    if not streams:
        raise ConfigError(
            f"none of the streams of {connector} can be configured: they lack the key or the cursor that the "
            "source defines, or no table can be made from their schemas",
            guidance="report it to the maintainer of the connector, or write defs.yaml yourself; the streams "
            f"of its catalog: {', '.join(left_out)}",
        )
    return streams, left_out


def _new_folder(name: str) -> Path:
    """Return the folder of a new connection.

    Raises:
        ConfigError: the name is not valid, or the folder exists.
    """
    try:
        plain_name(name)
    except ValueError as error:
        raise ConfigError(
            f"{name!r} is not a valid name of a connection", guidance=str(error)
        ) from None
    folder = paths.connections() / name
    refuse_installed(folder)
    if folder.exists():
        raise ConfigError(
            f"{folder} already exists", guidance="choose a different name, or remove it"
        )
    return folder


def _source(written: str, out: Output) -> tuple[str, str | list[str]]:
    """Return the kind and the value of `--source`. A package without a version gets its newest version.

    Raises:
        ConfigError: there is no such connector, package or program.
        TransientError: the package index, which names the newest version of a package, cannot be reached.
    """
    if written in built_in():
        return "connector", written
    try:
        words = shlex.split(written)
    except ValueError as error:
        raise ConfigError(
            f"--source {written!r}: {error}",
            guidance='correct the quotes; a command is written as "PROGRAM ARGUMENT …"',
        ) from None
    if len(words) == 1 and "==" in written:
        return "tap" if _TAP.search(written) else "package", words[0]
    if words and shutil.which(words[0]):
        return "tap" if _TAP.match(Path(words[0]).name) else "command", words
    if len(words) == 1 and _PACKAGE.fullmatch(written):
        pinned = f"{written}=={newest_version(written)}"
        out.note(f"the newest version is {pinned}")
        return _source(pinned, out)
    raise ConfigError(
        f"--source: there is no connector and no program {words[0] if words else written!r}",
        guidance=f"built in: {', '.join(built_in())}; write a package as PACKAGE==VERSION, "
        'or as its name alone (airbyte-source-x, tap-x), and a command as "PROGRAM ARGUMENT …"',
    )


def _check_config(connector: Connector, config: Mapping[str, Any]) -> None:
    """Check a config against the specification of its connector.

    Raises:
        ConfigError: required config is missing, an environment variable is not set, or a value is not valid.
    """
    schema = connector.specification.connectionSpecification
    known = schema.get("properties") or {}
    missing = [name for name in schema.get("required") or [] if name not in config]
    if missing:
        lines = "\n".join(f"  - {name}{_about(known.get(name))}" for name in missing)
        raise ConfigError(
            f"{connector.name} needs config that is not given:\n{lines}",
            guidance="add it with --config JSON or --config @FILE; write a secret as "
            '{"env": "NAME"}, the name of an environment variable',
        )
    resolve_environment(config)
    try:
        _ = connector.config
    except ConfigError as error:
        error.guidance = "correct --config"
        raise


def _about(schema: Any) -> str:
    """Return the type and the title of a field from its specification."""
    if not isinstance(schema, Mapping):
        return ""
    words = [str(schema["type"])] if isinstance(schema.get("type"), str) else []
    words += ["secret"] if schema.get("airbyte_secret") else []
    kind = f" ({', '.join(words)})" if words else ""
    title = schema.get("title") or schema.get("description")
    return f"{kind}: {title}" if title else kind


def _without_secrets(
    config: Mapping[str, Any], secrets: Iterable[tuple[Place, Any]], name: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the config with each secret value replaced by a reference to an environment variable.

    Returns:
        The config, and for each environment variable the field of the config that it replaces.

    Raises:
        ConfigError: a secret is not text.
    """
    kept = copy.deepcopy(dict(config))
    variables: dict[str, str] = {}
    for place, value in secrets:
        if value is None or isinstance(value, bool) or value == "":
            continue
        parent: Any = kept
        for step in place[:-1]:
            parent = parent[step]
        dotted = ".".join(map(str, place))
        if isinstance(parent, dict) and set(parent) == {"env"}:
            continue  # already a reference to an environment variable
        if not isinstance(value, str):
            raise ConfigError(
                f"config.{dotted} is a secret but not text: an environment variable can only hold text",
                guidance="write the connection by hand",
            )
        # A secret that several forms of the schema list is replaced only once.
        if parent[place[-1]] == value:
            variable = _variable([name, *map(str, place)], variables)
            parent[place[-1]] = {"env": variable}
            variables[variable] = f"config.{dotted}"
    return kept, variables


def _variable(words: list[str], taken: Mapping[str, str]) -> str:
    """Return a name for an environment variable, made of the words, that is not among the taken names."""
    first = name = re.sub(r"\W", "_", "_".join(words), flags=re.ASCII).upper()
    if RESERVED.fullmatch(first):
        first = name = f"SOURCE_{first}"
    number = 1
    while name in taken:
        number += 1
        name = f"{first}_{number}"
    return name


def _write(folder: Path, written: Mapping[str, Any], catalog: Catalog) -> None:
    """Write `defs.yaml` and `catalog.json` of a connection, or neither.

    Raises:
        ConfigError: the files cannot be written, or the connection cannot be loaded; nothing is written.
    """
    path = folder / DEFINITION_FILE
    build_connection_assets(parse_connection(written["attributes"], path), catalog=catalog)
    text = yaml.safe_dump(dict(written), sort_keys=False, allow_unicode=True)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be created: {error.strerror}",
            guidance="make its parent folder writable, or set ELT_DEFS to a different folder",
        ) from error
    try:
        path.write_text(text, encoding="utf-8")
        save_catalog(folder, catalog)
    except BaseException as error:
        shutil.rmtree(folder)
        if isinstance(error, OSError):
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}",
                guidance="make room on the disk and check the permissions, then run `elt new` again; "
                "no file of the connection was kept",
            ) from error
        raise
