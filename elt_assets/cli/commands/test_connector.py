"""`elt test-connector`: checks that the source of a connection follows the rules of its protocol.

The rules are in another package, which is run as a process: it gets the command of the connector, and the
config in a private file. Of an image, it gets the commands that start and remove a container. The container
sees the folder of the config, where the process writes its private files too.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

import click

from elt_assets import paths
from elt_assets.cli.lookup import parse_config
from elt_assets.cli.output import FAILED, Output, connection_argument, subcommand
from elt_assets.connection import Connection, find_place, load_connection
from elt_assets.connection.connector import Source
from elt_assets.errors import ConfigError, EltError
from elt_assets.module_start import module_command
from elt_assets.pipeline.connectors import make_source, package_to_install
from elt_assets.protocol.messages import printable
from elt_assets.runner.connector import Connector
from elt_assets.runner.container import Image
from elt_assets.runner.kinds import KINDS
from elt_assets.runner.references import is_reference, resolve_references
from elt_assets.runner.source_kind import private_files

_KIT = "connectors.testing"
_CONTAINER = "{container}"
"""Stands for the name of a container in the commands that the process gets: it gives each a name."""
_SEVERAL: dict[str, Any] = {"multiple": True, "metavar": "NAME"}


@subcommand(
    "test-connector",
    "elt test-connector shop",
    "elt test-connector shop --stream users --cuts 3",
    "elt test-connector shop --config '{\"days\": 1}' --skip estimates-are-plausible",
    "elt test-connector --image airbyte/source-faker:6.2.0 --config '{\"count\": 9}'",
)
@connection_argument(required=False)
@click.option("--image", metavar="IMAGE", help="Image to test, instead of a connection's source.")
@click.option("--config", metavar="JSON", help="Fields that replace those of the config; or @FILE.")
@click.option("--stream", **_SEVERAL, help="Stream to read; default: those of the connection.")
@click.option("--rule", **_SEVERAL, help="Rule to check; default: all.")
@click.option("--skip", **_SEVERAL, help="Rule to leave out.")
@click.option("--ignore", **_SEVERAL, help="Field of records that differs in each read.")
@click.option("--cuts", type=click.IntRange(min=1), help="Resume from at most so many states.")
@click.option("--timeout", type=float, help="Time limit of each process in seconds; default: 600.")
def command(
    out: Output, connection: str | None, image: str | None, config: str | None, **options: Any
) -> int:
    """Check that the source of a connection, or in an image, follows the rules of its protocol.

    The source is read several times, and again from each state that it sends; nothing is stored. The exit
    code is 1 if it does not follow a rule.
    """
    loaded = _load(connection, image)
    config_values = {**loaded.source.config, **parse_config(config)}
    out.announce_installation(package_to_install(loaded))
    connector = make_source(loaded, paths.staging(), config_values, on_log=out.log)
    out.note(f"testing {connector.name}")
    resolved = _config(connector, config_values, out)
    with private_files(paths.staging(), {"config": resolved}) as files:
        words = [*files, *_words(loaded, options), *_secrets(config_values), *_flags()]
        code = _run(connector, words, Path(files[1]).parent)
    return FAILED if code < 0 else code


def _load(connection: str | None, image: str | None) -> Connection:
    """Return the connection to test, or one for an image; it reads all streams."""
    if connection is not None and image is None:
        return load_connection(find_place(connection))
    if connection is not None or image is None:
        raise ConfigError(
            "write either a connection or --image",
            guidance="for example `elt test-connector --image airbyte/source-faker:6.2.0`",
        )
    Image(image)
    source = Source.model_validate({"image": image})
    # No connection can have this name, so there are no stored changes of its config.
    return Connection.model_construct(name="--image", source=source, streams=[])


def _config(connector: Connector, config: Mapping[str, Any], out: Output) -> dict[str, Any]:
    """Return the config with its secrets. It is not validated if the connector prints no specification."""
    try:
        return connector.config
    except ConfigError:
        raise
    except EltError as error:
        out.warn(f"the config is not validated: {error.message}")
        resolved, secrets = resolve_references(dict(config))
        connector.mask.add(secrets)
        return dict(resolved)


def _words(connection: Connection, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of the process."""
    flags = {name: value for name, value in options.items() if value not in (None, ())}
    flags.setdefault("stream", [stream.id.quoted for stream in connection.streams])
    flags["cursor"] = [
        f"{stream.id.quoted}={'.'.join(stream.cursor_field)}"
        for stream in connection.streams
        if stream.cursor_field
    ]
    for name, value in flags.items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            yield f"--{name}={item}"
    if KINDS[connection.source.kind].is_tap:
        yield "--tap"


def _secrets(config: Any, place: Sequence[str] = ()) -> Iterator[str]:
    """Yield the arguments for the fields of a config whose values are in environment variables."""
    if is_reference(config):
        yield f"--secret={'.'.join(place)}"
    elif isinstance(config, Mapping) and set(config) != {"literal"}:
        for name, value in config.items():
            yield from _secrets(value, (*place, str(name)))


def _flags() -> Iterator[str]:
    """Yield `--json` and `--verbose`, if the command has them."""
    context = click.get_current_context()
    machine, verbose = context.obj
    if machine or context.params["machine"]:
        yield "--json"
    if verbose or context.params["verbose"]:
        yield "--verbose"


def _command(connector: Connector, folder: Path) -> list[str]:
    """Return the arguments of the process that name the command of the connector.

    Args:
        folder: the folder that a container sees.
    """
    spec = connector.spec
    if spec.image is None:
        return ["--", *spec.kind.command(spec)]
    container = spec.image.container(folder, spec.variables.names, _CONTAINER)
    return [f"--removal={shlex.join(container.removal)}", "--", *container.command]


def _run(connector: Connector, words: Sequence[str], folder: Path) -> int:
    """Run the process with the environment of the connector, print what it prints as `_copy` does, and return
    its exit code.

    Args:
        folder: the folder of the config; the process writes its own private files there too.
    """
    variables, secrets = connector.spec.variables.variables()
    connector.mask.add(secrets)
    with subprocess.Popen(
        [*module_command(_KIT), *words, *_command(connector, folder)],
        env={**variables, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = Thread(target=_copy, args=(process.stderr, sys.stderr, connector.mask))
        errors.start()
        _copy(process.stdout, sys.stdout, connector.mask)
        errors.join()
        return process.wait()


def _copy(lines: Iterable[str], stream: TextIO, mask: Callable[[str], str]) -> None:
    """Print lines with secrets masked, and with what controls a terminal escaped."""
    for line in lines:
        stream.write(printable(mask(line)))
        stream.flush()
