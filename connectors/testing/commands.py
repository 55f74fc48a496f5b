"""Observations of the commands other than `read`: each process is started when a rule first needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from connectors.testing.connector import ANY, FAILURE, SUCCESS, Connector, Run
from connectors.testing.findings import Blocked
from connectors.testing.options import KitOptions
from connectors.testing.scopes import names_of
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import AirbyteStream, Catalog
from elt_assets.protocol.config_check import InvalidSpecification, violations
from elt_assets.protocol.messages import Specification
from elt_assets.protocol.singer_catalog import attach_all_entries
from elt_assets.protocol.specification import types_at

MAX_MISSING = 10
"""Maximum number of required fields that are left out, one in each config."""

_WRONG: Mapping[str, Any] = {"object": {"wrong": "type"}, "string": "wrong type", "array": []}
"""A value of each type; the first one is used that a field does not allow."""


@dataclass(frozen=True)
class BadConfig:
    """A config that violates the specification. `description`: how, without any value."""

    description: str
    config: dict[str, Any]


def bad_configs(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[BadConfig]:
    """Return configs that violate a specification: without a required field, or with a value of a wrong
    type. None does if it is not valid itself."""
    with contextlib.suppress(InvalidSpecification):
        return _list_bad_configs(config, schema)
    return []


def _list_bad_configs(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[BadConfig]:
    incomplete = (
        BadConfig(f"without the required field {'.'.join(place)!r}", rest)
        for place, rest in _incomplete(config)
        if violations(rest, schema)
    )
    mistyped = [bad for bad in _change_type(config, schema) if violations(bad.config, schema)]
    return [*islice(incomplete, MAX_MISSING), *mistyped]


def _incomplete(config: Mapping[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield the config without one of its fields, at any depth, with the place of the field."""
    for name, value in config.items():
        yield [name], {field: config[field] for field in config if field != name}
        if isinstance(value, Mapping):
            for place, inner in _incomplete(value):
                yield [name, *place], {**config, name: inner}


def _change_type(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[BadConfig]:
    """Return a config with a wrong type of the first field that has a type; fields in the config first."""
    properties = schema.get("properties")
    declared = list(properties) if isinstance(properties, Mapping) else []
    for name in sorted(declared, key=lambda field: field not in config):
        places = types_at({name: None}, schema)
        allowed = next((types for place, _, types in places if place == (name,)), set())
        wrong = [value for kind, value in _WRONG.items() if kind not in allowed]
        if allowed and wrong:
            return [
                BadConfig(f"with a wrong type in the field {name!r}", {**config, name: wrong[0]})
            ]
    return []


class Commands:
    """Observations of `spec`, `check` and `discover`, and the streams that the last one has listed.

    Args:
        connector: the connector.
        options: what is observed.
    """

    def __init__(self, connector: Connector, options: KitOptions):
        self.connector = connector
        self.protocol = connector.protocol
        self.options = options

    @cached_property
    def spec(self) -> Run:
        """The process that prints the specification; of a tap, `--about`, which it need not support."""
        end = SUCCESS if self.protocol.has_spec else ANY
        purpose = "`spec`" if self.protocol.has_spec else "`--about`"
        run = self.connector.run("spec", purpose, expected_end=end)
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
        specifications = self.spec.transcript.specifications
        if not specifications:
            raise Blocked(f"{self.spec.purpose} printed no specification (see spec-is-valid)")
        return specifications[0]

    @cached_property
    def check(self) -> Run:
        """The check of the config."""
        return self._learn_secrets().run("check", "`check`")

    @cached_property
    def bad_checks(self) -> list[Run]:
        """The checks of configs that are not valid.

        Raises:
            Blocked: there is no specification.
        """
        schema = self.specification.connectionSpecification
        generated = bad_configs(self.connector.config, schema)
        custom = self.options.bad_configs.items()
        configs = [*generated, *(BadConfig(text, dict(config)) for text, config in custom)]
        return [self._bad_check(config) for config in configs]

    def _bad_check(self, bad: BadConfig) -> Run:
        purpose = f"`check` of a config {bad.description}"
        return self.connector.run("check", purpose, config=bad.config, expected_end=ANY)

    @cached_property
    def without_config_file(self) -> Run:
        """A discovery whose config file does not exist."""
        purpose = "`discover` with a config file that does not exist"
        connector = self._learn_secrets()
        return connector.run("discover", purpose, expected_end=FAILURE, without_file=True)

    @cached_property
    def discover(self) -> Run:
        """The discovery of the streams."""
        return self._learn_secrets().run("discover", "`discover`")

    @cached_property
    def second_discovery(self) -> Run:
        """Another discovery with the same config."""
        return self._learn_secrets().run("discover", "a second `discover`")

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
        names = {name for stream in self.offered for name in names_of(stream)}
        unknown = [n for n in (*self.options.streams, *self.options.cursors) if n not in names]
        if unknown:
            raise ConfigError(
                f"there is no stream {unknown[0]!r}",
                guidance=f"its streams: {', '.join(str(stream.id) for stream in self.offered)}",
            )
        selected = set(self.options.streams)
        return [stream for stream in self.offered if not selected or selected & names_of(stream)]

    def _cursor(self, stream: AirbyteStream) -> Sequence[str]:
        """Return the cursor that the user has chosen for a stream; empty if there is none."""
        cursors = self.options.cursors
        paths = (cursors[name] for name in names_of(stream) if name in cursors)
        return next((path.split(".") for path in paths), [])

    def _learn_secrets(self) -> Connector:
        """Return the connector; its specification is known then, so that secrets in its output are found."""
        self.spec  # noqa: B018 - starts the process
        return self.connector
