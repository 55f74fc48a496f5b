"""Fields of a component that are evaluated with the config, once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from connectors.declarative.cursors.times.formats import DatetimeFormats
from connectors.declarative.manifest import components
from connectors.declarative.manifest.dates import Duration, parse_duration
from connectors.declarative.manifest.template import Template, UndefinedValue
from elt_assets.errors import ConfigError

_NO_DURATION = ("", "0", "False")

Length = timedelta | Duration
"""A length of time that can be added to a date-time."""


class Settings:
    """The fields of a component.

    Args:
        component: the component.
        config: the config of the source.
    """

    def __init__(self, component: components.Component, config: Mapping[str, Any]):
        self._component = component
        self._config = config

    def place(self, name: str) -> str:
        """Return the place of a field in the manifest."""
        return f"{self._component.place}.{name}"

    def text(self, name: str) -> str:
        """Return a field as text; an empty one if it is missing or gives nothing."""
        return text_of(getattr(self._component, name), self._config)

    def required(self, name: str) -> str:
        """Return a field as text.

        Raises:
            ConfigError: it is empty.
        """
        found = self.text(name)
        if not found:
            raise ConfigError(
                f"{self.place(name)} gives an empty text",
                guidance="set the field, or the value of the config that it uses",
            )
        return found

    def duration(self, name: str) -> Length | None:
        """Return a field as a length of time; None if it is missing or gives nothing.

        Raises:
            ConfigError: the field is not a duration.
        """
        text = self.text(name)
        try:
            return None if text in _NO_DURATION else parse_duration(text)
        except (ValueError, OverflowError):
            raise ConfigError(
                f"{self.place(name)} is {text!r}, which is not a duration",
                guidance="write an ISO 8601 duration, such as P10D, P1M or PT1S",
            ) from None

    def moment(self, name: str, default_format: str) -> datetime:
        """Return a field that is a date-time, or a MinMaxDatetime.

        Args:
            name: the name of the field.
            default_format: the format of a date-time that declares none.

        Raises:
            ConfigError: the field gives no date-time.
        """
        written = getattr(self._component, name)
        if not isinstance(written, components.MinMaxDatetime):
            return self._parsed(name, written, DatetimeFormats([default_format]))
        formats = DatetimeFormats([written.datetime_format or default_format])
        found = self._parsed(f"{name}.datetime", written.datetime, formats)
        if text_of(written.min_datetime, self._config):
            least = self._parsed(f"{name}.min_datetime", written.min_datetime, formats)
            found = max(found, least)
        if text_of(written.max_datetime, self._config):
            greatest = self._parsed(f"{name}.max_datetime", written.max_datetime, formats)
            found = min(found, greatest)
        return found

    def _parsed(self, name: str, written: Any, formats: DatetimeFormats) -> datetime:
        text = text_of(written, self._config)
        try:
            return formats.parse(text)
        except ValueError:
            raise ConfigError(
                f"{self.place(name)} gives {text!r}, which does not have the format {formats}",
                guidance="correct the value, in most cases a date of the config, or `datetime_format`",
            ) from None


def text_of(written: Any, config: Mapping[str, Any]) -> str:
    """Return a text or a template evaluated with the config; an empty text if there is nothing."""
    if written is None:
        return ""
    template = written if isinstance(written, Template) else Template(str(written))
    try:
        found = template.text_of({"config": config})
    except UndefinedValue:
        return ""
    return "" if found == "None" else found
