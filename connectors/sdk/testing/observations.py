"""Observations of a connector: each process is started when a rule first needs it, and only once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from connectors.sdk.testing.bad_configs import BadConfig, bad_configs
from connectors.sdk.testing.comparison import difference, evenly_spread
from connectors.sdk.testing.connector import ANY, FAILURE, SUCCESS, Connector, Read, Run
from connectors.sdk.testing.findings import Blocked
from connectors.sdk.testing.scopes import Cut, Scope, configured, names_of, own_scope, shared_scope
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, AirbyteStream
from elt_assets.protocol.airbyte.messages import Specification
from elt_assets.protocol.airbyte.states import STREAM, kind_of

SPEC, CHECK, BAD_CHECKS, DISCOVER, NO_FILE = "spec", "check", "bad checks", "discover", "no file"
READ, REFRESH, REFRESH_WITH_STATES = "read", "refresh", "refresh with states"
CUTS, REFRESH_CUTS, FINAL = "cuts", "refresh cuts", "final"
"""The stages: groups of processes that rules need."""


@dataclass(frozen=True)
class Settings:
    """The settings of the observations.

    Args:
        streams: the names of the streams to read; empty for all.
        bad_configs: configs that `check` must refuse, besides those made from the specification.
        ignored: top-level fields that are not compared.
        cuts: maximum number of states of a stream that a read is resumed from; None for all.
        cursors: the cursor field of streams whose cursor the user chooses, by their names.
    """

    streams: Sequence[str] = ()
    bad_configs: Sequence[BadConfig] = ()
    ignored: Sequence[str] = ()
    cuts: int | None = None
    cursors: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Observations:
    """Observations of one connector.

    Args:
        connector: the connector.
        settings: what is observed.
        stages: the stages that the selected rules need.
    """

    def __init__(self, connector: Connector, settings: Settings, stages: Collection[str]):
        self.connector = connector
        self.protocol = connector.protocol
        self.settings = settings
        self._stages = stages
        self._finals: dict[int, Read] = {}

    def runs(self) -> Sequence[Run]:
        """Return all processes that the selected rules need."""
        checks: Mapping[str, Callable[[], object]] = {
            CHECK: lambda: self.check,
            BAD_CHECKS: lambda: self.bad_checks,
        }
        actions: Mapping[str, Callable[[], object]] = {
            SPEC: lambda: self.spec,
            **(checks if self.protocol.has_check else {}),
            NO_FILE: lambda: self.without_config_file,
            DISCOVER: lambda: self.discover,
            READ: lambda: self.first_read,
            REFRESH: lambda: self.refresh,
            REFRESH_WITH_STATES: lambda: self.refresh_with_states,
            CUTS: lambda: self.cuts,
            REFRESH_CUTS: lambda: self.refresh_cuts,
            FINAL: lambda: [self.final(scope) for scope in self.incremental_scopes],
        }
        for stage, action in actions.items():
            if stage in self._stages:
                with contextlib.suppress(Blocked):
                    action()
        return self.connector.runs

    @cached_property
    def spec(self) -> Run:
        """The process that prints the specification; of a tap, `--about`, which it need not support."""
        end = SUCCESS if self.protocol.has_spec else ANY
        purpose = "`spec`" if self.protocol.has_spec else "`--about`"
        run = self.connector.run("spec", purpose, expected_end=end).run
        if run.transcript.specifications:
            self.connector.learn_secrets(run.transcript.specifications[0].connectionSpecification)
        elif self.protocol.has_help:
            self.connector.run("help", "`--help`", expected_end=ANY)
        return run

    @property
    def specification(self) -> Specification:
        """The specification.

        Raises:
            Blocked: there is none.
        """
        found = self.spec.transcript.specifications
        if not found:
            raise Blocked(f"{self.spec.purpose} printed no specification (see spec-is-valid)")
        return found[0]

    @cached_property
    def check(self) -> Run:
        """The check of the config."""
        return self._with_secrets().run("check", "`check`").run

    @cached_property
    def bad_checks(self) -> list[Run]:
        """The checks of configs that are not valid.

        Raises:
            Blocked: there is no specification.
        """
        schema = self.specification.connectionSpecification
        made = bad_configs(self.connector.config, schema)
        return [self._bad_check(bad) for bad in (*made, *self.settings.bad_configs)]

    def _bad_check(self, bad: BadConfig) -> Run:
        purpose = f"`check` of a config {bad.description}"
        return self.connector.run("check", purpose, config=bad.config, expected_end=ANY).run

    @cached_property
    def without_config_file(self) -> Run:
        """A discovery whose config file does not exist."""
        purpose = "`discover` with a config file that does not exist"
        connector = self._with_secrets()
        return connector.run("discover", purpose, expected_end=FAILURE, without_file=True).run

    @cached_property
    def discover(self) -> Run:
        """The discovery of the streams."""
        return self._with_secrets().run("discover", "`discover`").run

    @cached_property
    def streams(self) -> list[AirbyteStream]:
        """The streams to read.

        Raises:
            Blocked: no streams were discovered.
            ConfigError: there is no stream of a given name.
        """
        catalogs = self.discover.transcript.catalogs
        unique = {stream.id: stream for catalog in catalogs for stream in catalog.streams}
        offered = list(unique.values())
        if not offered:
            raise Blocked("`discover` returned no streams (see discover-lists-streams)")
        known = {name for stream in offered for name in names_of(stream)}
        unknown = [n for n in (*self.settings.streams, *self.settings.cursors) if n not in known]
        if unknown:
            raise ConfigError(
                f"there is no stream {unknown[0]!r}",
                guidance=f"its streams: {', '.join(str(stream.id) for stream in offered)}",
            )
        wanted = set(self.settings.streams)
        return [stream for stream in offered if not wanted or wanted & names_of(stream)]

    @cached_property
    def first_read(self) -> Read:
        """A read of all streams from nothing: incremental where that is possible."""
        streams = [configured(each, INCREMENTAL, self._cursor(each)) for each in self.streams]
        return self._with_secrets().run("read", "`read` of all streams", streams=streams)

    @cached_property
    def refresh(self) -> Read:
        """A full refresh of all streams from nothing."""
        streams = [configured(stream, FULL_REFRESH) for stream in self.streams]
        purpose = "`read` of all streams in full"
        return self._with_secrets().run("read", purpose, streams=streams)

    @cached_property
    def incremental_scopes(self) -> list[Scope]:
        """The streams that were read incrementally: each one alone, unless they share their states.

        Raises:
            Blocked: the read failed.
        """
        read = _successful(self.first_read)
        incremental = [s for s in read.run.streams if s.sync_mode == INCREMENTAL]
        states = read.run.transcript.states
        if incremental and any(kind_of(state) != STREAM for state, _ in states):
            return [shared_scope(read)]
        return [own_scope(read, stream) for stream in incremental]

    @cached_property
    def resumable_scopes(self) -> list[Scope]:
        """The streams whose full refresh can be resumed.

        Raises:
            Blocked: the full refresh failed.
        """
        read = _successful(self.refresh)
        resumable = [stream for stream in read.run.streams if stream.stream.is_resumable]
        return [own_scope(read, stream) for stream in resumable]

    @cached_property
    def refresh_with_states(self) -> Read | None:
        """A full refresh that gets the last states of the incremental read; None if there are none.

        Raises:
            Blocked: the incremental read or the full refresh failed.
        """
        _successful(self.refresh)
        scopes = [scope for scope in self.incremental_scopes if scope.states]
        streams = [
            configured(stream.stream, FULL_REFRESH)
            for scope in scopes
            for stream in scope.streams
            if not stream.stream.is_resumable
        ]
        if not streams:
            return None
        states = [state for scope in scopes for state in scope.states[-1].states]
        purpose = "`read` in full, with a state"
        return self.connector.run("read", purpose, streams=streams, states=states)

    @cached_property
    def cuts(self) -> list[Cut]:
        """The incremental reads, cut at their states and resumed."""
        return [cut for scope in self.incremental_scopes for cut in self._cut(scope)]

    @cached_property
    def refresh_cuts(self) -> list[Cut]:
        """The full refreshes that can be resumed, cut at their states and resumed."""
        return [cut for scope in self.resumable_scopes for cut in self._cut(scope)]

    def final(self, scope: Scope) -> Read | None:
        """Return a read from the last state of a scope; None if it has no state."""
        if not scope.states:
            return None
        if id(scope) not in self._finals:
            self._finals[id(scope)] = self._resumed(scope, len(scope.states))
        return self._finals[id(scope)]

    def is_limited(self, scope: Scope) -> bool:
        """Return whether the reads of a scope are cut at some of its states only."""
        return self.settings.cuts is not None and len(scope.states) > self.settings.cuts

    def _cursor(self, stream: AirbyteStream) -> Sequence[str]:
        """Return the cursor that the user has chosen for a stream; empty if there is none."""
        cursors = self.settings.cursors
        return next((cursors[name] for name in names_of(stream) if name in cursors), ())

    def _cut(self, scope: Scope) -> Iterator[Cut]:
        identity = scope.identity(self.settings.ignored)
        whole = [identity(record) for record in scope.records]
        for index in evenly_spread(len(scope.states), self.settings.cuts):
            state, number = scope.states[index], index + 1
            is_last = number == len(scope.states)
            read = self.final(scope) if is_last else self._resumed(scope, number)
            assert read is not None
            ids = {stream.id for stream in scope.streams}
            resumed = [identity(record) for record in read.records if record.stream in ids]
            found = difference(whole, whole[: state.records_before], resumed)
            yield Cut(scope, number, state.line, read.run, found)

    def _resumed(self, scope: Scope, number: int) -> Read:
        is_refresh = all(stream.sync_mode == FULL_REFRESH for stream in scope.streams)
        what = f"{scope.name}{' in full' if is_refresh else ''}"
        purpose = f"`read` of {what} from state {number} of {len(scope.states)}"
        states = scope.states[number - 1].states
        return self.connector.run("read", purpose, streams=scope.streams, states=states)

    def _with_secrets(self) -> Connector:
        """Return the connector; its specification is known then, so that secrets in its output are found."""
        self.spec  # noqa: B018 - starts the process
        return self.connector


def _successful(read: Read) -> Read:
    """Return a read.

    Raises:
        Blocked: it failed.
    """
    if not read.run.succeeded:
        raise Blocked(f"{read.run.purpose} {read.run.ended.text} (see exit-codes)")
    return read
