"""`elt upgrade`: takes another version of a connection's package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import click

from elt_assets import paths
from elt_assets.cli.assets import assets_of, find_load_error
from elt_assets.cli.environments import list_other_users
from elt_assets.cli.lookup import start_connector
from elt_assets.cli.output import OK, Output, connection_argument, subcommand
from elt_assets.connection import (
    Connection,
    ConnectionPlace,
    find_place,
    load_catalog,
    load_connection,
    save_catalog,
)
from elt_assets.connection.catalog_diff import Change, changes
from elt_assets.connection.files import replace_package
from elt_assets.errors import ConfigError
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.protocol.catalog import Catalog, StreamId, stream_names
from elt_assets.protocol.specification import ConfigChange, compare_specifications
from elt_assets.runner.kinds import KINDS
from elt_assets.runner.packages import (
    Installation,
    environment_folder,
    newest_version,
    package_name,
    remove_environment,
)
from elt_assets.storage.folders import replace_text


@dataclass(frozen=True)
class _Comparison:
    """What is different with another version. `states`: what becomes of each stream's state."""

    config: list[ConfigChange]
    catalog: Catalog
    changes: list[Change]
    states: Mapping[str, str]
    problem: str | None


@subcommand("upgrade", "elt upgrade crm", "elt upgrade crm 2.1.0", "elt upgrade crm 2.1.0 --yes")
@connection_argument()
@click.argument("version", required=False)
@click.option(
    "--yes", is_flag=True, help="Take the version; without it, only show what would change."
)
def command(out: Output, connection: str, version: str | None, yes: bool) -> int:
    """Show what another version of the connection's package changes, and take it.

    The version is installed beside the present one, and asked for its specification and its streams.
    VERSION is the newest one by default.
    """
    place = find_place(connection)
    present = load_connection(place)
    old, new = _packages(present, version)
    source = present.source.model_copy(update={present.source.kind: new})
    upgraded = present.model_copy(update={"source": source})
    text = replace_package(place, present.source.kind, old, new)
    comparison = _compare(place, present, upgraded, out)
    _print(comparison, old, new, out)
    removed = False
    if not yes:
        out.line(
            f"nothing was changed; take it with `elt upgrade {connection} {new.split('==')[1]} --yes`"
        )
    elif comparison.problem is not None:
        raise ConfigError(
            f"{new} is not taken: with its streams the connection cannot be loaded: {comparison.problem}",
            guidance=f"change the streams in {place.file} for both versions, or choose another version",
        )
    else:
        save_catalog(place, comparison.catalog)
        replace_text(place.file, text)
        out.line(f"wrote {place.file} and {place.catalog.name}")
        removed = _remove_old(place, present, old, out)
    names = _names(comparison)
    out.document(
        {
            "connection": present.name,
            "before": old,
            "after": new,
            "taken": yes,
            "removed": removed,
            "config": [asdict(change) for change in comparison.config],
            "changes": [
                {**asdict(change), "stream": names[change.stream]} for change in comparison.changes
            ],
            "states": comparison.states,
            "problem": comparison.problem,
        }
    )
    return OK


def _packages(connection: Connection, version: str | None) -> tuple[str, str]:
    """Return the present package of the source, and the one to take.

    Raises:
        ConfigError: the source is no package, or it has this version.
    """
    source = connection.source
    old = KINDS[source.kind].package(source.value)
    if old is None or old != source.value:
        raise ConfigError(
            f"the source of {connection.name} is no package of an exact version: it is a `{source.kind}`",
            guidance="only `package` and `tap: NAME==VERSION` can be upgraded; change others in defs.yaml",
        )
    name = package_name(old)
    new = f"{name}=={version or newest_version(name)}"
    package_name(new)
    if new == old:
        raise ConfigError(
            f"{connection.name} has {old} already" + ("" if version else ", the newest version"),
            guidance="name another version to go back or forward to it",
        )
    return old, new


def _compare(
    place: ConnectionPlace, present: Connection, upgraded: Connection, out: Output
) -> _Comparison:
    """Ask both versions for their specification, and the new one for its streams.

    Raises:
        EltError: the new version cannot be installed, refuses the config, or cannot list its streams.
    """
    connectors = [start_connector(connection, out) for connection in (present, upgraded)]
    old, new = (connector.specification.connectionSpecification for connector in connectors)
    catalog = connectors[1].discover()
    previous = load_catalog(place) if place.catalog.exists() else Catalog(streams=[])
    differences = changes(previous, catalog)
    error, states = find_load_error(upgraded, catalog), dict(_states(place, differences))
    problem = None if error is None else error.message
    return _Comparison(compare_specifications(old, new), catalog, differences, states, problem)


def _states(place: ConnectionPlace, differences: list[Change]) -> Iterator[tuple[str, str]]:
    """Yield what becomes of the state of each stream that has one, as far as the catalogs show it."""
    try:
        assets = assets_of(place)
    except ConfigError:  # without a catalog there was no sync
        return
    lake = project_lake()
    for asset in assets:
        table = asset.tables(lake).main if asset.partitions is None else None
        if table is not None and (not table.exists or table.metadata.state is None):
            continue
        own = [change for change in differences if change.stream == asset.stream.id]
        yield asset.name, _fate(own)


def _fate(own: list[Change]) -> str:
    if any(change.kind == "stream" for change in own):
        return "stays in the table; the source no longer has the stream"
    cursor = next((change for change in own if change.kind == "cursor_field"), None)
    if cursor is not None:
        return f"does not fit: the {cursor.description}; `elt state reset` reads from the beginning"
    if any(change.kind == "sync_modes" for change in own):
        return "may not fit: the stream has other sync modes"
    return "is continued: its cursor is the same"


def _names(comparison: _Comparison) -> Mapping[StreamId, str]:
    streams = {stream.id for stream in comparison.catalog.streams}
    return stream_names(streams | {change.stream for change in comparison.changes})


def _print(comparison: _Comparison, old: str, new: str, out: Output) -> None:
    names = _names(comparison)
    if not comparison.config:
        out.line(f"the config of {new} is that of {old}")
    else:
        out.table(["config", "change"], [(c.field, c.change) for c in comparison.config])
    if not comparison.changes:
        out.line("the streams are those of the catalog")
    else:
        out.table(
            ["stream", "change", "field", "before", "after"],
            [(names[c.stream], c.kind, c.field, c.before, c.after) for c in comparison.changes],
        )
    if comparison.states:
        out.table(["stream", "its state"], list(comparison.states.items()))
    if comparison.problem is not None:
        out.warn(f"with these streams the connection cannot be loaded:\n{comparison.problem}")


def _remove_old(place: ConnectionPlace, present: Connection, old: str, out: Output) -> bool:
    """Remove the environment of the former version if no connection uses it; return whether it is gone."""
    options = present.source.installation or Installation()
    environment = environment_folder(old, paths.packages(), options)
    users = list_other_users(place, environment)
    if users:
        out.line(f"the environment of {old} stays: {', '.join(users)} may use it")
        return False
    gone = remove_environment(old, paths.packages(), options)
    out.line(
        f"removed the environment of {old}"
        if gone
        else f"the environment of {old} stays: a process uses it; maintenance removes it later"
    )
    return gone
