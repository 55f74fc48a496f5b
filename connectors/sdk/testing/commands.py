"""Observations of the commands other than `read`: each process is started when a rule first needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from connectors.sdk.testing.bad_configs import BadConfig, bad_configs
from connectors.sdk.testing.connector import ANY, FAILURE, SUCCESS, Connector, Run
from connectors.sdk.testing.findings import Blocked
from connectors.sdk.testing.scopes import names_of
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import AirbyteStream, Catalog
from elt_assets.protocol.airbyte.messages import Specification
from elt_assets.protocol.singer.catalog import attach_all_entries


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


class Commands:
    """Observations of `spec`, `check` and `discover`, and the streams that the last one has listed.

    Args:
        connector: the connector.
        settings: what is observed.
    """

    def __init__(self, connector: Connector, settings: Settings):
        self.connector = connector
        self.protocol = connector.protocol
        self.settings = settings

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
        offered = self.spec.transcript.specifications
        if not offered:
            raise Blocked(f"{self.spec.purpose} printed no specification (see spec-is-valid)")
        return offered[0]

    @cached_property
    def check(self) -> Run:
        """The check of the config."""
        return self._mark_secrets().run("check", "`check`").run

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
        connector = self._mark_secrets()
        return connector.run("discover", purpose, expected_end=FAILURE, without_file=True).run

    @cached_property
    def discover(self) -> Run:
        """The discovery of the streams."""
        return self._mark_secrets().run("discover", "`discover`").run

    @cached_property
    def second_discovery(self) -> Run:
        """Another discovery with the same config."""
        return self._mark_secrets().run("discover", "a second `discover`").run

    @cached_property
    def offered(self) -> list[AirbyteStream]:
        """All streams that were discovered; those of a tap with the entries of all of them, as in a sync.

        Raises:
            Blocked: no streams were discovered.
        """
        catalogs = self.discover.transcript.catalogs
        unique = {stream.id: stream for catalog in catalogs for stream in catalog.streams}
        if not unique:
            raise Blocked("`discover` returned no streams (see discover-lists-streams)")
        return attach_all_entries(Catalog(streams=list(unique.values()))).streams

    @cached_property
    def streams(self) -> list[AirbyteStream]:
        """The streams to read.

        Raises:
            Blocked: no streams were discovered.
            ConfigError: there is no stream of a given name.
        """
        selected = {name for stream in self.offered for name in names_of(stream)}
        unknown = [n for n in (*self.settings.streams, *self.settings.cursors) if n not in selected]
        if unknown:
            raise ConfigError(
                f"there is no stream {unknown[0]!r}",
                guidance=f"its streams: {', '.join(str(stream.id) for stream in self.offered)}",
            )
        selected = set(self.settings.streams)
        return [stream for stream in self.offered if not selected or selected & names_of(stream)]

    def _cursor(self, stream: AirbyteStream) -> Sequence[str]:
        """Return the cursor that the user has chosen for a stream; empty if there is none."""
        cursors = self.settings.cursors
        return next((cursors[name] for name in names_of(stream) if name in cursors), ())

    def _mark_secrets(self) -> Connector:
        """Return the connector; its specification is known then, so that secrets in its output are found."""
        self.spec  # noqa: B018 - starts the process
        return self.connector
