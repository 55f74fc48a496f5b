"""The base class of sources.

Spec: Actor Specification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from connectors.sdk.config import parse, specification, validate
from connectors.sdk.declared_stream import bind_parent, limit_dates
from connectors.sdk.saved_config import save_assignments
from connectors.sdk.stream import Stream
from connectors.sdk.times import instant, is_instant, iso
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

if TYPE_CHECKING:
    from pydantic import BaseModel  # a source with a model imports it itself


_DATES = ("start_date", "end_date")
"""Fields of a config that apply to its streams."""


class RefusedStream(Stream):
    """A stream whose reads fail with the reason why it cannot be read.

    Args:
        name: the name of the stream.
        reason: the error of its reads.
    """

    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def __init__(self, name: str, reason: EltError):
        self.name = name
        self.json_schema = {"type": "object"}
        self._reason = reason

    def partitions(self) -> NoReturn:
        raise self._reason

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> NoReturn:
        del configured, state
        raise self._reason

    def has_new_data(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> NoReturn:
        del configured, state
        raise self._reason


class Source(ABC):
    """The base class of sources: `run` makes it a program that is an Airbyte source and a Singer tap.

    Attributes:
        name: the name of the source.
        version: the version of the source, if it has one of its own.
        documentation_url: the address of its documentation.
        config_type: the pydantic model of the config. The specification is made from it, and the methods of
            the source get the config as an instance of it. A field of type `SecretStr` is a secret.
        connection_specification: the specification of a source without `config_type`, whose methods get the
            config as a dict that is valid for it.
        advanced_auth: how a program lets a user authorize the source, for its specification.
        selected: the names of the streams that a command is about; None for all.
        warnings: what the user should know about the source; `check` and `discover` log it.
    """

    name: str
    version: str | None = None
    documentation_url: str | None = None
    config_type: type[BaseModel] | None = None
    connection_specification: Mapping[str, Any] = MappingProxyType({"type": "object"})
    advanced_auth: Mapping[str, Any] | None = None
    selected: Sequence[str] | None = None
    warnings: Sequence[str] = ()

    def check(self, config: Any) -> None:
        """Check that the source can be reached and read with this config. By default, it reads the first
        record of the first stream without a parent.

        Raises:
            EltError: the source cannot be read. The message, which states why, is shown to the user.
        """
        for stream in self.streams(config):
            if stream.parent is None:
                with closing(
                    stream.read(ConfiguredStream(stream.describe(), FULL_REFRESH), None)
                ) as items:  # type: ignore[type-var]
                    next(items, None)
                return

    @abstractmethod
    def streams(self, config: Any) -> Sequence[Stream]:
        """Return the streams to which this config gives access.

        Raises:
            EltError: the streams cannot be listed.
        """

    def refusal(self, name: str) -> EltError | None:
        """Return why a stream that is not among `streams` cannot be read; None if there is no such stream."""
        del name
        return None

    def make_refused_stream(self, name: str) -> RefusedStream | None:
        """Return the stream of this name that cannot be read; None if there is no such stream."""
        reason = self.refusal(name)
        return None if reason is None else RefusedStream(name, reason)

    def load_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a Singer state of an earlier version of this source in the present form: an object with
        `bookmarks`, which has the state of each stream by its name.

        Spec: "Backwards Compatibility". `Stream.load_state` translates the state of one stream.
        """
        return state

    def release(self, config: Any) -> None:
        """Give up what the source keeps on its server for the next read, such as a replication slot. `elt
        reset` calls it when all streams of a connection are to be read from the beginning.

        Raises:
            EltError: it cannot be given up; the message, which says what is left, is shown to the user.
        """
        del config

    def close(self) -> None:
        """Finish what is under way in other threads; called at the end of each command."""
        return

    def specification(self) -> dict[str, Any]:
        """Return the `connectionSpecification`."""
        if self.config_type is not None:
            return specification(self.config_type)
        return dict(self.connection_specification)

    def parse(self, config: Mapping[str, Any]) -> Any:
        """Return a config as the methods of the source get it.

        Raises:
            ConfigError: the config is not valid. The message names every violation, and quotes no value.
        """
        if self.config_type is not None:
            parsed: Any = parse(self.config_type, config)
            save_assignments(parsed)
        else:
            validate(config, self.specification())
            parsed = dict(config)
        dates = [_date_of(name, parsed, config) for name in _DATES]
        for name, date in zip(_DATES, dates, strict=True):
            if date is not None and not is_instant(date):
                raise ConfigError(
                    f"config.{name} is not a date or date-time",
                    guidance="write it as in RFC 3339: 2026-01-31T00:00:00Z",
                )
        start, end = dates
        if start is not None and end is not None and instant(end) <= instant(start):
            raise ConfigError(
                f"config.end_date is {end}, which is not after config.start_date, {start}",
                guidance="correct the dates: records are read from the start on, and before the end",
            )
        return parsed

    def open(self, config_values: Mapping[str, Any]) -> list[Stream]:
        """Return the streams of a config. A `start_date` and an `end_date` of the config apply to each stream
        that has none of its own and is read by a replication key whose values are times.

        Spec: Singer, config file: `start_date`, `end_date`.

        Raises:
            EltError: the config is not valid, or the streams cannot be listed.
        """
        config = self.parse(config_values)
        start, end = (_date_of(name, config, config_values) for name in _DATES)
        streams = list(self.streams(config))
        for stream in streams:
            bind_parent(stream, streams)
            limit_dates(stream, start, end)
        return streams


def _date_of(name: str, config: Any, config_values: Mapping[str, Any]) -> str | None:
    """Return a date of a config, which may be the default of its model; None if it is empty."""
    parsed = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    date = iso(parsed or config_values.get(name))
    return str(date) if date else None
