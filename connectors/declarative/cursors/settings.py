"""Fields of a component that are evaluated with the config, once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from connectors.declarative.cursors.times.formats import DatetimeFormats
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template, UndefinedValue
from connectors.sdk.times import Duration, parse_duration
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

    def require(self, name: str) -> str:
        """Return a field as text.

        Raises:
            ConfigError: it is empty.
        """
        text = self.text(name)
        if not text:
            raise ConfigError(
                f"{self.place(name)} gives an empty text",
                guidance="set the field, or the value of the config that it uses",
            )
        return text

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
        setting = getattr(self._component, name)
        if not isinstance(setting, components.MinMaxDatetime):
            return self._parse(name, setting, DatetimeFormats([default_format]))
        formats = DatetimeFormats([setting.datetime_format or default_format])
        moment = self._parse(f"{name}.datetime", setting.datetime, formats)
        if text_of(setting.min_datetime, self._config):
            least = self._parse(f"{name}.min_datetime", setting.min_datetime, formats)
            moment = max(moment, least)
        if text_of(setting.max_datetime, self._config):
            greatest = self._parse(f"{name}.max_datetime", setting.max_datetime, formats)
            moment = min(moment, greatest)
        return moment

    def _parse(self, name: str, setting: Any, formats: DatetimeFormats) -> datetime:
        text = text_of(setting, self._config)
        try:
            return formats.parse(text)
        except ValueError:
            raise ConfigError(
                f"{self.place(name)} gives {text!r}, which does not have the format {formats}",
                guidance="correct the value, in most cases a date of the config, or `datetime_format`",
            ) from None


def text_of(setting: Any, config: Mapping[str, Any]) -> str:
    """Return a text or a template evaluated with the config; an empty text if there is nothing."""
    if setting is None:
        return ""
    template = setting if isinstance(setting, Template) else Template(str(setting))
    try:
        text = template.text_of({"config": config})
    except UndefinedValue:
        return ""
    return "" if text == "None" else text
