"""The commands of an Airbyte source, and those that this project adds to them.

Spec: Airbyte Specification, Source; Airbyte Protocol, Actor Interface.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec import Raw

from connectors.sdk.airbyte.output import AirbyteStreamOutput, SourceOutput
from connectors.sdk.airbyte.state_file import SavedStates, load_states
from connectors.sdk.comparison import find_request
from connectors.sdk.encoding import encode
from connectors.sdk.named_partitions import list_separate
from connectors.sdk.reports import listen_to_config, listen_to_warnings
from connectors.sdk.saved_config import begin_config, hold_config
from connectors.sdk.source import Source
from connectors.sdk.state.partitions import distinct, partition_name
from connectors.sdk.stream import Stream
from connectors.sdk.sync import read_streams
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol import message_output
from elt_assets.protocol import messages as wire
from elt_assets.protocol.catalog import Catalog, ConfiguredStream, load_catalog, load_config
from elt_assets.protocol.messages import Message
from elt_assets.protocol.specification import secret_values

Job = tuple["Stream | None", ConfiguredStream, "dict[str, Any] | None"]
"""A stream of the source, None if it has no such stream; how it is configured; its state."""


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands and their arguments to a parser."""
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, files, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        for file in files:
            command.add_argument(f"--{file}", required=True, metavar="FILE")
        if "catalog" in files:
            command.add_argument("--state", metavar="FILE", help="the states of the last read")


def run_command(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> int:
    """Run one command and return the number of streams that failed; each failure has been reported.

    Raises:
        Exception: the command failed.
    """
    run, _, _ = COMMANDS[arguments.command]

    def report(config: Mapping[str, Any]) -> None:
        output.mask.add(secret_values(config, source.specification()))
        output.config_update(config)

    warn = partial(output.log, "WARN")
    with listen_to_config(report), listen_to_warnings(warn), hold_config(), closing(source):
        return run(source, arguments, output) or 0


def _spec(source: Source, _: argparse.Namespace, output: SourceOutput) -> None:
    auth = source.advanced_auth
    body = wire.Specification(
        connectionSpecification=source.specification(),
        documentationUrl=source.documentation_url,
        protocol_version=message_output.PROTOCOL_VERSION,
        advanced_auth=None if auth is None else Raw(encode(auth)),
    )
    output.send([Message(type="SPEC", spec=body)])


def _check(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> None:
    try:
        config = _config(source, arguments, output)
        _log_warnings(source, output)
        source.check(source.parse(config))
    except EltError as error:
        output.connection(succeeded=False, text=str(error))
    else:
        output.connection(succeeded=True)


def _discover(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> None:
    config = _config(source, arguments, output)
    _log_warnings(source, output)
    streams = source.open(config)
    catalog = Catalog(streams=[stream.describe() for stream in streams])
    output.send([Message(type="CATALOG", catalog=catalog)])


def _log_warnings(source: Source, output: SourceOutput) -> None:
    for text in source.warnings:
        output.log("WARN", text)


def _read(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> int:
    states = load_states(arguments.state)
    jobs = []
    for stream, configured, state in _jobs(source, arguments, output, states):
        if stream is None:
            # Spec: Schema Mismatches: never a failure.
            output.log("WARN", f"skipped stream {configured.id}: the source does not have it")
        else:
            jobs.append((stream, configured, state))
    outputs = partial(AirbyteStreamOutput, output)
    return read_streams(jobs, outputs, states.shared, states.sharing)


def _probe(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> None:
    """Send one NEWS message. New data is unknown for a stream that the source does not have, or that cannot
    be asked.

    Raises:
        Exception: no stream can be asked.
    """
    news: list[wire.StreamNews] = []
    errors: list[tuple[Exception, str]] = []
    for stream, configured, state in _jobs(source, arguments, output, load_states(arguments.state)):
        has_news = None
        try:
            has_news = stream.has_new_data(configured, state) if stream else None
        except Exception as error:  # noqa: BLE001 - the other streams can still be asked
            errors.append((error, f"stream {configured.id} cannot be asked for new data: {error}"))
        descriptor = configured.id.descriptor
        news.append(wire.StreamNews(stream_descriptor=descriptor, has_news=has_news))
    if errors and len(errors) == len(news):
        raise errors[0][0]
    for _, text in errors:
        output.log("WARN", text)
    output.send([Message(type="NEWS", news=wire.News(streams=news))])


def _partitions(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> None:
    """Send a PARTITION message for each partition of each stream.

    Raises:
        ConfigError: a stream has no partitions that can be read alone.
    """
    for stream, configured, _ in _jobs(source, arguments, output, load_states(arguments.state)):
        for context in distinct(list_separate(_require(stream, configured))):
            name, encoded = partition_name(context), Raw(encode(context))
            descriptor = configured.id.descriptor
            output.partition(
                wire.Partition(stream_descriptor=descriptor, key=name, context=encoded)
            )


def _compare(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> None:
    """Send a COMPARISON and the RANGE messages of each stream.

    Raises:
        ConfigError: a stream cannot be compared.
    """
    for stream, configured, state in _jobs(source, arguments, output, load_states(arguments.state)):
        answer = _require(stream, configured).compare(configured, state, find_request(configured))
        for part in answer:
            output.comparison(configured.id.descriptor, part)


def _require(stream: Stream | None, configured: ConfiguredStream) -> Stream:
    if stream is None:
        raise ConfigError(
            f"the source has no stream {str(configured.id)!r}",
            guidance="run `discover` to see which streams it has",
        )
    return stream


def _release(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> None:
    source.release(source.parse(_config(source, arguments, output)))


Command = Callable[[Source, argparse.Namespace, SourceOutput], "int | None"]

COMMANDS: Mapping[str, tuple[Command, tuple[str, ...], str]] = MappingProxyType(
    {
        "spec": (_spec, (), "print the specification of the config"),
        "check": (_check, ("config",), "check that the source can be reached with this config"),
        "discover": (_discover, ("config",), "print the catalog of streams"),
        "read": (_read, ("config", "catalog"), "print the records of the configured streams"),
        "probe": (_probe, ("config", "catalog"), "print which streams have new data"),
        "partitions": (_partitions, ("config", "catalog"), "print the partitions of the streams"),
        "compare": (_compare, ("config", "catalog"), "print sums of the rows by ranges of keys"),
        "release": (_release, ("config",), "give up what the source keeps on its server"),
    }
)
"""The commands: function, required files, help."""


def _jobs(
    source: Source, arguments: argparse.Namespace, output: SourceOutput, states: SavedStates
) -> Iterator[Job]:
    config = _config(source, arguments, output)
    catalog = load_catalog(arguments.catalog)
    source.selected = [configured.stream.name for configured in catalog.streams]
    streams = {stream.id: stream for stream in source.open(config)}
    if states.shared is not None and all(stream.group is None for stream in streams.values()):
        raise ConfigError(
            "the state file contains a state of type GLOBAL, and no stream of this config shares a state",
            guidance="reset the state: each stream has one of its own now",
        )
    for configured in catalog.streams:
        stream = streams.get(configured.id) or source.make_refused_stream(configured.stream.name)
        yield stream, configured, states.get(configured.id)


def _config(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> dict[str, Any]:
    """Return the config as it is written; from now on its secrets are masked."""
    config = load_config(arguments.config)
    output.mask.add(secret_values(config, source.specification()))
    begin_config(config)
    return config
