"""`elt new`: creates a connection with every stream of a source.

`elt init` creates its example with `create_connection`; `elt import` takes `new_folder`.

First the files, `defs.yaml` with comments, `catalog.json` and those of its source; then the command.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from elt_assets import paths
from elt_assets.cli.commands.new.required_config import RequiredConfig, add_required_config
from elt_assets.cli.commands.new.source import (
    ChosenSource,
    check_config,
    choose_manifest,
    choose_source,
    replace_secrets,
    variable_name,
)
from elt_assets.cli.lookup import parse_config
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.connection import (
    CATALOG_FILE,
    DEFINITION_FILE,
    Connection,
    check_plain_name,
    list_places,
    parse_connection,
    save_catalog,
)
from elt_assets.connection.default_attributes import document, stream_attributes
from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.write.sync_columns import check_columns
from elt_assets.orchestration.build import build_connection_assets
from elt_assets.protocol.catalog import Catalog, stream_names
from elt_assets.protocol.specification import Place, unknown_fields
from elt_assets.runner.config_validation import validate
from elt_assets.runner.kinds import to_install
from elt_assets.runner.manifests import AIRBYTE, OURS, Manifest

Json = dict[str, Any]
_CONFIG = "config: null"
"""The line that is replaced by the config and its comments."""


def new_folder(name: str) -> Path:
    """Return the folder of a new connection.

    Raises:
        ConfigError: the name is not valid, a connection has it, or the folder exists.
    """
    try:
        check_plain_name(name)
    except ValueError as error:
        raise ConfigError(
            f"{name!r} is not a valid name of a connection", guidance=str(error)
        ) from None
    other = next((place for place in list_places() if place.name == name), None)
    if other is not None:
        raise ConfigError(
            f"the connection {name!r} already exists: {other.file}",
            guidance="choose a different name, or remove it",
        )
    folder = paths.connections() / name
    if folder.exists():
        raise ConfigError(
            f"{folder} already exists", guidance="choose a different name, or remove it"
        )
    return folder


def write_connection(
    folder: Path,
    source: ChosenSource,
    config: Json,
    notes: Mapping[Place, str],
    streams: Sequence[Json],
    catalog: Catalog,
) -> None:
    """Write the files of a connection, or none of them.

    Args:
        notes: the comment above each field of the config, by its path.

    Raises:
        ConfigError: the files cannot be written, or the connection cannot be loaded; nothing is written.
    """
    name, path = folder.name, folder / DEFINITION_FILE
    current = {**source.attributes, source.kind: source.current, "config": config}
    literal = document(name, current, streams)["attributes"]
    connection = parse_connection(literal, path, Connection)
    build_connection_assets(connection, catalog=catalog)
    text = _text(document(name, {**source.attributes, "config": None}, streams), config, notes)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be created: {error.strerror}",
            guidance="make its parent folder writable, or set ELT_DEFS to a different folder",
        ) from error
    try:
        if source.folder is not None:
            shutil.copytree(source.folder, folder, dirs_exist_ok=True)
        path.write_text(text, encoding="utf-8")
        save_catalog(folder, catalog)
    except BaseException as error:
        shutil.rmtree(folder)
        if isinstance(error, OSError):
            raise ConfigError(
                f"{path} cannot be written: {error.strerror or error}",
                guidance="make room on the disk and check the permissions, then run `elt new` again; "
                "no file of the connection was kept",
            ) from error
        raise


def _text(document: Json, config: Json, notes: Mapping[Place, str]) -> str:
    """Return the YAML of a connection, whose config is still null, with its config and the comments."""
    before, _, after = _dump(document).partition(_CONFIG)
    indent = before[before.rfind("\n") + 1 :]
    lines = textwrap.indent("\n".join(config_lines(config, notes)), f"{indent}  ")
    block = f"config:\n{lines}" if config else "config: {}"
    return f"{before}{block}{after}"


def config_lines(
    config: Mapping[str, Any], notes: Mapping[Place, str], place: Place = ()
) -> Iterator[str]:
    """Yield the lines of a config as YAML.

    Args:
        notes: the comment above each field, by its path.
        place: the path of the config.
    """
    for name, value in config.items():
        inner = (*place, name)
        if notes.get(inner):
            yield f"# {notes[inner]}"
        if isinstance(value, Mapping) and any(path[:-1][: len(inner)] == inner for path in notes):
            yield _dump({name: None}).partition(" null")[0]
            yield from (f"  {line}" for line in config_lines(value, notes, inner))
        else:
            yield from _dump({name: value}).splitlines()


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


@dataclass(frozen=True)
class _Answers:
    """The answers of the source of a new connection, and the config that is written."""

    connector: str  # the name of the connector
    config: Json  # the config that is written: its secrets are references to environment variables
    notes: Mapping[Place, str]  # the comment above each field of the config, by its path
    # The field of the config of each environment variable that has to be set.
    variables: Mapping[str, str]
    examples: Sequence[str]  # the fields of the config whose values are examples
    catalog: Catalog  # the catalog of the source


@subcommand(
    "new",
    "elt new shop --source faker --config '{\"count\": 500}'",
    "elt new crm --source airbyte-source-hubspot --config @hubspot.json",
    "elt new erp --source tap-postgres==0.10.0 --config @postgres.json",
    "elt new tickets --manifest manifest.yaml",
)
@click.argument("name")
@click.option(
    "--source",
    help="A built-in connector, a package (PACKAGE==VERSION, or PACKAGE for its newest version), or a "
    'command as "PROGRAM ARGUMENT ...".',
)
@click.option(
    "--manifest",
    metavar="FILE",
    help="An Airbyte low-code manifest, or PACKAGE:FILE for one in an installed package.",
)
@click.option(
    "--trust",
    multiple=True,
    metavar="MODULE",
    help="A Python module that the manifest may use. It can be repeated.",
)
@click.option(
    "--engine",
    type=click.Choice([AIRBYTE, OURS]),
    help="Engine that runs the manifest; default: the one that it needs.",
)
@click.option("--config", metavar="JSON", help="Config of the source: JSON, or @FILE.")
def command(
    out: Output,
    name: str,
    source: str | None,
    manifest: str | None,
    trust: Sequence[str],
    engine: str | None,
    config: str | None,
) -> int:
    """Create the connection NAME with every stream that its source has.

    NAME consists of letters, digits and underscores. Secrets in the config are replaced by references to
    environment variables; the command prints the environment variables to set. A manifest is copied into the
    folder of the connection, and config that it requires need not be given.
    """
    new_folder(name)  # before the source is installed
    config_given = parse_config(config)
    with tempfile.TemporaryDirectory() as temporary:
        if manifest is not None and source is None:
            chosen = choose_manifest(manifest, trust, engine, Path(temporary) / name)
        elif source is not None and manifest is None and not trust and engine is None:
            chosen = choose_source(source, out)
        else:
            raise ConfigError(
                "write one of --source and --manifest; --trust and --engine go with --manifest",
                guidance="for example `elt new shop --source faker`",
            )
        create_connection(name, chosen, config_given, out)
    return OK


def create_connection(name: str, source: ChosenSource, config: Json, out: Output) -> None:
    """Write a connection with every stream of a source, and print what is left to do.

    Raises:
        EltError: the config is not valid, the source fails, or the files cannot be written.
    """
    folder = new_folder(name)
    try:
        answers = _ask(source, config, name, out)
    except EltError as error:
        error.message = source.name_original(error.message)
        raise
    streams, left_out = _configure_streams(answers.catalog, answers.connector)
    settings = list(streams.values())
    write_connection(folder, source, answers.config, answers.notes, settings, answers.catalog)
    _print(folder, streams, left_out, answers, out)
    out.document(
        {
            "connection": name,
            "folder": str(folder),
            "source": source.attributes,
            "streams": settings,
            "left_out": sorted(left_out),
            "environment": answers.variables,
            "examples": answers.examples,
        }
    )


def _ask(source: ChosenSource, given_config: Json, name: str, out: Output) -> _Answers:
    """Start the source to get its specification and its catalog.

    Raises:
        EltError: the config is not valid, or the source fails.
    """
    out.announce_installation(
        to_install(source.kind, source.current, paths.packages(), engine=source.engine)
    )
    connector = source.open(given_config, out)
    out.note(f"starting {connector.name}")
    schema = connector.specification.connectionSpecification
    required, unset = RequiredConfig(given_config), []
    if source.kind == Manifest.key:
        required = add_required_config(
            given_config, schema, lambda words, taken: variable_name([name, *words], taken)
        )
        unset = [variable for variable in required.variables if variable not in os.environ]
        given_config = required.fill_examples(unset)
        connector = source.open(given_config, out)
    try:
        check_config(connector, given_config)
        for warning in unknown_fields(given_config, schema):
            out.warn(warning)
        catalog = connector.discover()
    except EltError as error:
        fields = ", ".join(_join(place) for place in required.examples)
        steps = [f"give {fields} with --config"] if fields else []
        steps += [f"set {', '.join(unset)}"] if unset else []
        if steps:
            hint = f"part of the config is an example; {' and '.join(steps)}, and try again"
            error.guidance = "; ".join(filter(None, (error.guidance, hint)))
        raise
    secrets = validate(required.config, schema, connector.spec.title).secrets
    config, replaced = replace_secrets(required.config, secrets, name, required.variables)
    added = {variable: _join(place) for variable, (place, _) in required.variables.items()}
    examples = [_join(place) for place in required.examples]
    variables = {**added, **replaced}
    return _Answers(connector.name, config, required.notes, variables, examples, catalog)


def _join(place: Place) -> str:
    return ".".join(["config", *map(str, place)])


def _configure_streams(catalog: Catalog, connector: str) -> tuple[dict[str, Json], dict[str, str]]:
    """Return the settings of each stream by its name, and the reason for each that cannot be configured.

    A stream cannot be configured if its schema lacks the key or cursor that the source defines, if no table
    can be made from its schema, or if another stream has its name.

    Raises:
        ConfigError: no stream can be configured.
    """
    names = stream_names({stream.id for stream in catalog.streams})
    ambiguous = catalog.repeated
    streams: dict[str, Json] = {}
    left_out: dict[str, str] = {}
    for stream in catalog.streams:
        settings = stream_attributes(stream, check_columns)
        if stream.id in ambiguous:
            left_out[names[stream.id]] = "the source has several streams of this name"
        elif settings is None:
            left_out[names[stream.id]] = (
                "its schema lacks the key or cursor that the source defines"
            )
        else:
            streams[names[stream.id]] = settings
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


def _print(
    folder: Path,
    streams: Mapping[str, Json],
    left_out: Mapping[str, str],
    answers: _Answers,
    out: Output,
) -> None:
    """Print what was written, and what is left to do."""
    modes = ("sync_mode", "destination_sync_mode")
    out.table(
        ["stream", *modes],
        [(stream, *(settings[mode] for mode in modes)) for stream, settings in streams.items()],
    )
    for stream, reason in left_out.items():
        out.warn(f"{stream} is left out: {reason}")
    out.line(f"wrote {folder / DEFINITION_FILE} and {CATALOG_FILE}")
    for field in answers.examples:
        out.line(f"replace {field} in {DEFINITION_FILE}: it is an example")
    for variable, field in answers.variables.items():
        out.line(
            f"set {variable} where Dagster runs: {field} is a secret and is not written to the file"
        )
    out.line(f"next: elt sync {folder.name}")
