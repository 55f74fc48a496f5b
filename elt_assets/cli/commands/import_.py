"""`elt import`: creates connections from the configuration of Airbyte or Meltano."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
import yaml

from elt_assets import paths
from elt_assets.cli.commands.importing.airbyte import import_airbyte
from elt_assets.cli.commands.importing.draft import ConnectionDraft, read_document, write_drafts
from elt_assets.cli.commands.importing.meltano import Selection, import_meltano
from elt_assets.cli.commands.new.source import choose_source
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.errors import ConfigError, EltError
from elt_assets.runner.kinds import KINDS, open_connector
from elt_assets.runner.source_kind import ConnectorSpec


@click.group("import")
def command() -> None:
    """Create connections from those of another program.

    Secrets are not written: references to environment variables stand in their place, and .env.example lists
    the variables. What cannot be translated is listed, also at the head of each defs.yaml.
    """


@subcommand(
    "airbyte",
    "elt import airbyte connection.json source.json",
    "elt import airbyte shop.json --source airbyte-source-shopify==3.0.5",
    group=command,
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option("--name", help="Name of the connection; default: its name at Airbyte.")
@click.option("--source", help="What runs in place of Airbyte's image, as for `elt new`.")
def airbyte(out: Output, files: tuple[Path, ...], name: str | None, source: str | None) -> int:
    """Create a connection from answers of Airbyte's API for a connection and for its source.

    FILE is one answer that holds both, or there is one FILE for each.
    """
    documents = [read_document(path, json.loads) for path in files]
    chosen = choose_source(source, out).attributes if source is not None else None
    draft = import_airbyte(documents, name, chosen)
    _write([draft], [], out)
    return OK


@subcommand("meltano", "elt import meltano meltano.yml", group=command)
@click.argument("file", type=click.Path(path_type=Path))
def meltano(out: Output, file: Path) -> int:
    """Create a connection for each extractor of a meltano.yml.

    If the names of its streams are not in the file, the tap is started, with the variables that its config
    refers to.
    """
    imported, left = import_meltano(read_document(file, yaml.safe_load))
    for draft, selection in imported:
        _configure(draft, selection, out)
    _write([draft for draft, _ in imported], left, out)
    return OK


def _configure(draft: ConnectionDraft, selection: Selection, out: Output) -> None:
    """Add the streams of a draft; its tap is started if it alone knows them."""
    if selection.needs_catalog:
        kind, value = next(iter(draft.source.items()))
        folders = paths.staging(), paths.packages()
        spec = ConnectorSpec(KINDS[kind], value, draft.config, *folders, on_log=out.log)
        connector = open_connector(spec)
        out.note(f"starting {connector.name}: the file does not name all streams of {draft.name}")
        try:
            draft.catalog = connector.discover()
        except EltError as error:
            error.message = f"the streams of {draft.name} cannot be listed: {error.message}"
            hint = (
                "set the variables of its config, or name its streams in `select`, and import again"
            )
            error.guidance = "; ".join(filter(None, (error.guidance, hint)))
            raise
    draft.streams = selection.configure(draft.catalog, draft.untranslated)
    if not draft.streams:
        raise ConfigError(
            f"meltano.yml selects no stream of {draft.name}", guidance="correct its `select`"
        )


def _write(drafts: Sequence[ConnectionDraft], left: Sequence[str], out: Output) -> None:
    """Write the connections, and print what was written, what was not translated, and what to do next."""
    variables = {name: place for draft in drafts for name, place in draft.variables.items()}
    listing = write_drafts(drafts)
    for draft in drafts:
        out.line(f"wrote the connection {draft.name} with {len(draft.streams)} streams")
    untranslated = [f"{draft.name}: {line}" for draft in drafts for line in draft.untranslated]
    for line in (*untranslated, *left):
        out.warn(f"not translated: {line}")
    for name, place in variables.items():
        out.line(f"set {name} where Dagster runs: {place}")
    if listing is not None:
        out.line(f"{listing} lists these variables")
    for draft in drafts:
        if draft.catalog is None:
            out.line(f"next: elt discover {draft.name}")
    out.document(
        {
            "connections": [draft.document()["attributes"] for draft in drafts],
            "environment": variables,
            "untranslated": [*untranslated, *left],
        }
    )
