"""The commands of a Singer tap.

Spec: Singer, config and state; the options of taps on the SDK of Meltano.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from connectors.sdk.items import Item, Page
from connectors.sdk.reports import listen_to_config, listen_to_warnings
from connectors.sdk.saved_config import begin_config, hold_config
from connectors.sdk.singer.catalog import SelectedStream, catalog_entry, select_streams
from connectors.sdk.singer.output import TapOutput, TapStreamOutput
from connectors.sdk.singer.state import TapState, load_state_file, require_standard_format
from connectors.sdk.source import Source
from connectors.sdk.sync import read_streams
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import (
    FULL_REFRESH,
    ConfiguredStream,
    StreamId,
    decode_json,
    load_config,
    read_file,
)
from elt_assets.protocol.singer_catalog import Entry
from elt_assets.protocol.specification import secret_values

_CAPABILITIES = ("catalog", "discover", "state", "about", "activate-version")


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of a tap to a parser, and return it."""
    parser.add_argument(
        *("--config", "-c"),
        action="append",
        default=[],
        metavar="FILE",
        help="the config; of several files, the later ones replace fields of the earlier ones",
    )
    parser.add_argument("--catalog", "--properties", metavar="FILE", help="the selected streams")
    parser.add_argument("--state", metavar="FILE", help="the value of the last STATE")
    for name, text in (
        ("discover", "print the catalog"),
        ("test", "check the config, and read one record of each stream"),
        ("about", "print the settings and capabilities"),
        ("version", "print the version"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of --about")
    return parser


def run_tap(source: Source, arguments: argparse.Namespace, output: TapOutput) -> int:
    """Run a tap with its options, and return the number of streams that failed.

    Raises:
        Exception: the command failed.
    """
    command = next((run for name, run in _COMMANDS.items() if getattr(arguments, name)), _sync)
    save = partial(_save_config, source, arguments.config, output)
    warn = partial(output.log, "WARNING")
    with listen_to_config(save), listen_to_warnings(warn), hold_config(), closing(source):
        return command(source, arguments, output) or 0


def _save_config(
    source: Source, paths: list[str], output: TapOutput, config: Mapping[str, Any]
) -> None:
    """Write a config that has changed to the file that it was read from, as taps do."""
    output.mask.add(secret_values(config, source.specification()))
    if len(paths) == 1:
        path = Path(paths[0])
        changed = path.with_name(f"{path.name}.new")
        changed.touch(mode=0o600)
        changed.write_text(json.dumps(config), encoding="utf-8")
        changed.replace(path)
    else:
        output.log("WARNING", "the config has changed, and is not saved: it is in several files")


def _version(source: Source, _: argparse.Namespace, output: TapOutput) -> None:
    output.line(f"{source.name} {source.version or ''}".strip().encode())


def _about(source: Source, arguments: argparse.Namespace, output: TapOutput) -> None:
    settings = _mark_secrets(source.specification())
    if arguments.format == "json":
        about = {
            "name": source.name,
            "version": source.version,
            "documentation": source.documentation_url,
            "capabilities": list(_CAPABILITIES),
            "settings": settings,
        }
        output.line(json.dumps(about, ensure_ascii=False).encode())
        return
    _version(source, arguments, output)
    required = settings.get("required") or []
    for name, rules in (settings.get("properties") or {}).items():
        text = rules.get("description") or rules.get("title") or ""
        output.line(f"  {name}{'*' * (name in required)}: {text}".rstrip().encode())


def _mark_secrets(schema: Any) -> Any:
    """Return a specification in which secrets are marked as taps mark them, too."""
    if isinstance(schema, list):
        return [_mark_secrets(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    marked = {name: _mark_secrets(part) for name, part in schema.items()}
    return {**marked, "secret": True, "writeOnly": True} if marked.get("airbyte_secret") else marked


def _discover(source: Source, arguments: argparse.Namespace, output: TapOutput) -> None:
    _log_warnings(source, output)
    streams = source.open(_config(source, arguments, output))
    catalog = {"streams": [catalog_entry(stream) for stream in streams]}
    output.line(json.dumps(catalog, ensure_ascii=False, indent=2).encode())


def _log_warnings(source: Source, output: TapOutput) -> None:
    for text in source.warnings:
        output.log("WARNING", text)


def _test(source: Source, arguments: argparse.Namespace, output: TapOutput) -> None:
    """Check the config, and read the first record of each selected stream."""
    source.check(source.parse(_config(source, arguments, output)))
    config = _config(source, arguments, output)  # the check may have changed it
    for selected in _selection(source, config, arguments, output):
        items = selected.stream.read(selected.configured, None)
        has_records = any(map(_has_record, items))
        output.log("INFO", f"stream {selected.name}: {'a record' if has_records else 'no record'}")


def _has_record(item: Item) -> bool:
    return bool(item.records) if isinstance(item, Page) else isinstance(item, dict)


def _sync(source: Source, arguments: argparse.Namespace, output: TapOutput) -> int:
    config = _config(source, arguments, output)
    start = load_state_file(arguments.state)
    loaded = source.load_state(start) if start else {}
    require_standard_format(loaded)
    state = TapState(loaded)
    selection = {
        selection.configured.id: selection
        for selection in _selection(source, config, arguments, output)
    }
    jobs = [(s.stream, s.configured, _save(s, state)) for s in selection.values()]
    failures = read_streams(
        jobs, partial(_stream_output, output, state, selection), state.saved_shared
    )
    if state.is_pending:
        output.state(state)
    return failures


def _save(selected: SelectedStream, state: TapState) -> dict[str, Any] | None:
    """Return the bookmark that a stream is read from; a full table is read as a whole."""
    is_full = selected.configured.sync_mode == FULL_REFRESH
    return None if is_full else state.saved.get(selected.name)


def _stream_output(
    output: TapOutput,
    state: TapState,
    selection: dict[StreamId, SelectedStream],
    configured: ConfiguredStream,
) -> TapStreamOutput:
    return TapStreamOutput(output, selection[configured.id], state)


def _selection(
    source: Source, config: dict[str, Any], arguments: argparse.Namespace, output: TapOutput
) -> Iterator[SelectedStream]:
    """Yield the streams to read: those that the catalog selects, or all streams without a catalog.

    Raises:
        ConfigError: the catalog is not readable, or requests what a stream does not support.
    """
    _log_warnings(source, output)
    streams = source.open(config)
    entries = [catalog_entry(stream) for stream in streams]
    if arguments.catalog:
        entries = _entries(arguments.catalog)
    for selected in select_streams(entries, streams):
        if isinstance(selected, SelectedStream):
            yield selected
        elif (stream := source.make_refused_stream(selected)) is not None:
            yield SelectedStream(stream, ConfiguredStream(stream.describe(), FULL_REFRESH), {})
        else:
            output.log("WARNING", f"skipped stream {selected}: the source does not have it")


def _entries(path: str) -> list[Entry]:
    catalog = decode_json(read_file(path, "catalog"), dict[str, Any], "catalog")
    entries = catalog.get("streams")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(
            f"the catalog file {path} is not a Singer catalog: it has no list `streams`",
            guidance="write the output of --discover into the file, and select streams in it",
        )
    return entries


def _config(source: Source, arguments: argparse.Namespace, output: TapOutput) -> dict[str, Any]:
    """Return the merged config as it is written; from now on its secrets are masked."""
    merged: dict[str, Any] = {}
    for path in arguments.config:
        merged |= load_config(path)
    output.mask.add(secret_values(merged, source.specification()))
    begin_config(merged)
    return merged


Command = Callable[[Source, argparse.Namespace, TapOutput], "int | None"]

_COMMANDS: dict[str, Command] = {
    "version": _version,
    "about": _about,
    "discover": _discover,
    "test": _test,
}
"""The commands by their options; without one of these, the tap reads."""
