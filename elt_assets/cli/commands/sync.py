"""`elt sync`: syncs streams of a connection in this process, with live progress bars."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import click
from pydantic import ValidationError

from elt_assets.cli.assets import select_streams
from elt_assets.cli.live import LiveProgress
from elt_assets.cli.output import (
    CHECKS_FAILED,
    FAILED,
    INTERRUPTED,
    OK,
    REFUSED,
    Output,
    connection_argument,
    partition_option,
    subcommand,
)
from elt_assets.cli.sync_report import SyncReport
from elt_assets.connection import find_place
from elt_assets.connection.automation import Follow
from elt_assets.errors import ConfigError
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.materialize import SyncResult, materialize
from elt_assets.orchestration.planning import Refresh
from elt_assets.orchestration.resources import open_instance


@subcommand(
    "sync",
    "elt sync shop",
    "elt sync shop users orders",
    "elt sync weather readings --partition 2026-01-05",
    "elt sync shop users --refresh truncate",
    "elt sync shop --follow --for 8h",
)
@connection_argument()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@partition_option("Partition key, for streams with partitions.")
@click.option(
    "--refresh",
    type=click.Choice([Refresh.retain.name, Refresh.truncate.name]),
    help="Read everything again; `truncate` replaces the rows of the table at the end, `retain` keeps them.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Follow the log of the source: commit what changes, again and again, until the time is over.",
)
@click.option(
    "--for",
    "duration",
    metavar="TIME",
    help="With --follow: how long, such as 30m or 8h; default: as the connection says, or 55m.",
)
@click.option(
    "--every",
    metavar="TIME",
    help="With --follow: time between two looks at the log; default: as the connection says, or 5s.",
)
@click.option(
    "--allow-failed-checks",
    is_flag=True,
    help="End with exit code 0, and not 3, if the sync is complete and only checks failed.",
)
def command(
    out: Output,
    connection: str,
    streams: Sequence[str],
    partition: str | None,
    refresh: str | None,
    follow: bool,
    duration: str | None,
    every: str | None,
    allow_failed_checks: bool,
) -> int:
    """Sync all streams of a connection, or the named ones.

    This is a Dagster run in this process, or one for each kind of `partitions`: the UI shows its events, and
    the next sync continues from its state. On a terminal, progress bars show what each read is doing. The
    exit code is 1 or 2 if a stream failed; the other streams are still synced. It is 3 if the sync is
    complete, and a check of severity ERROR failed.
    """
    times = {"for": duration, "every": every}
    component = ConnectionComponent.load_at(find_place(connection))
    if follow:
        _refuse_with_follow({"--partition": partition, "--refresh": refresh})
        component.follow = _make_follow(component.follow, times)
    elif any(times.values()):
        raise ConfigError(
            "--for and --every say how a log is followed",
            guidance="add --follow, or leave them out",
        )
    config: dict[str, Any] = {} if refresh is None else {"refresh": refresh}
    if component.follow is not None and refresh is None:
        config["follow"] = follow
    selected = select_streams(connection, component.stream_assets(), streams)
    with open_instance() as instance, LiveProgress(is_enabled=out.shows_progress) as live:
        result = materialize(
            component,
            list(selected.values()),
            instance,
            partition=partition,
            config=config,
            log=lambda level, text: _log(level, text, out, live),
            watch=live.watch,
            shows_details=out.is_verbose,
        )
    report = SyncReport(result, selected)
    report.print(out)
    out.document(report.document())
    return _exit_code(result, allow_failed_checks=allow_failed_checks)


def _refuse_with_follow(options: Mapping[str, object]) -> None:
    """Refuse options that do not go with --follow.

    Raises:
        ConfigError: one is set.
    """
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"--follow and {name} cannot be combined",
                guidance=f"run `elt sync` with {name} first, and then with --follow",
            )


def _make_follow(configured: Follow | None, times: Mapping[str, str | None]) -> Follow:
    """Return how the log is followed: as the connection says, but for the times that are given.

    Raises:
        ConfigError: one is not valid.
    """
    before = {} if configured is None else configured.model_dump(by_alias=True)
    try:
        return Follow.model_validate({**before, **{k: v for k, v in times.items() if v}})
    except ValidationError as error:
        reasons = (
            f"--{part['loc'][0]}: {part['msg']}" if part["loc"] else part["msg"]
            for part in error.errors()
        )
        raise ConfigError(
            f"the log cannot be followed like this: {'; '.join(reasons)}",
            guidance="write for example: --for 30m --every 5s",
        ) from None


def _log(level: int, text: str, out: Output, live: LiveProgress) -> None:
    """Show a line of the run's log: warnings and errors always, other lines only if there are no bars."""
    if live.is_shown:
        if level >= logging.WARNING:
            live.line(f"warning: {text}")
    elif level >= logging.WARNING:
        out.warn(text)
    elif level >= logging.INFO:
        out.note(text)


def _exit_code(result: SyncResult, *, allow_failed_checks: bool) -> int:
    """Return the exit code: what kept the sync from being complete comes before what checks found."""
    if result.is_interrupted:
        return INTERRUPTED
    if result.errors:
        is_config = any(isinstance(error, ConfigError) for error in result.errors)
        return REFUSED if is_config else FAILED
    return CHECKS_FAILED if result.has_failed_checks and not allow_failed_checks else OK
