"""`elt new`: creates a connection with every stream of a source."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from elt_assets import paths
from elt_assets.cli.commands.new.chosen_source import ChosenSource, choose_manifest, choose_source
from elt_assets.cli.commands.new.given_config import check_config, replace_secrets, variable_name
from elt_assets.cli.commands.new.required_config import RequiredConfig, add_required_config
from elt_assets.cli.commands.new.written_connection import new_folder, write_connection
from elt_assets.cli.lookup import parse_config
from elt_assets.cli.options import subcommand
from elt_assets.cli.output import OK, Output
from elt_assets.connection import CATALOG_FILE, DEFINITION_FILE
from elt_assets.connection.default_attributes import stream_attributes
from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.write.sync_columns import check_columns
from elt_assets.protocol.catalog import Catalog, stream_names
from elt_assets.protocol.specification import Place, unknown_fields
from elt_assets.runner.config_validation import validate
from elt_assets.runner.kinds import to_install
from elt_assets.runner.manifests import AIRBYTE, OURS, Manifest

Json = dict[str, Any]


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
    secrets = validate(required.config, schema, connector.name).secrets
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
