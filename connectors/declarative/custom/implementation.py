"""Objects that implement components, and calls of their methods."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from connectors.declarative.manifest.components import Custom
from elt_assets.errors import ConfigError, EltError, SystemFailure, error_class

_QUOTES_URLS = ("requests", "urllib3", "httpx")
"""Packages with errors that may quote URLs; a URL can contain secrets."""


class Implementation:
    """An object of a class in Python that implements a component.

    Args:
        component: the component.
        instance: the object.
    """

    def __init__(self, component: Custom, instance: Any):
        self.component = component
        self.place = component.place
        self.name = component.class_name
        self.instance = instance

    def of(self, instance: Any) -> Implementation:
        """Return another object that belongs to this one."""
        return Implementation(self.component, instance)

    def has(self, name: str) -> bool:
        """Return whether the object has an attribute or a method."""
        return getattr(self.instance, name, None) is not None

    def value(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or what a method returns; a default if there is none."""
        with self.reporting(name):
            found = getattr(self.instance, name, None)
            found = found() if callable(found) else found
        return default if found is None else found

    def call(self, name: str, *given: Any, **named: Any) -> Any:
        """Return what a method returns.

        Args:
            name: the method.
            given: its arguments by position.
            named: its arguments by name; those that it does not have are left out.

        Raises:
            ConfigError: there is no such method.
            EltError: the method fails.
        """
        method = self.bound(name, **named)
        with self.reporting(name):
            return method(*given)

    def items(self, name: str, *given: Any, **named: Any) -> Iterator[Any]:
        """Yield what a method returns or yields; errors are those of `call`."""
        method = self.bound(name, **named)
        with self.reporting(name):
            yield from method(*given) or ()

    def bound(self, name: str, **named: Any) -> Callable[..., Any]:
        """Return a method with some arguments, without those that it does not have.

        Raises:
            ConfigError: there is no such method.
        """
        method = getattr(self.instance, name, None)
        if not callable(method):
            raise ConfigError(
                f"{self.place}: the class {self.name!r} has no method {name!r}",
                guidance="correct `class_name`, or the type of the component",
            )
        accepted = {key: each for key, each in named.items() if _accepts(method, key)}
        return lambda *given: method(*given, **accepted)

    @contextmanager
    def reporting(self, name: str) -> Iterator[None]:
        """Report errors as those of a method."""
        try:
            yield
        except Exception as error:
            raise self.failure(name, error) from error

    def failure(self, name: str, error: Exception) -> EltError:
        """Return the error for one that a method raised. An error of the CDK keeps its type and its text."""
        if isinstance(error, EltError):
            return error
        where = f"{self.place}: {self.name}.{name}"
        frames = "".join(traceback.format_tb(error.__traceback__))
        kind = getattr(error, "failure_type", None)
        if kind is not None:
            reason = getattr(error, "message", None) or "it gives no reason"
            return error_class(getattr(kind, "value", str(kind)))(
                f"{where} failed: {reason}", detail=frames
            )
        is_quoting = type(error).__module__.partition(".")[0] in _QUOTES_URLS
        reason = "" if is_quoting else f": {error}".removesuffix(": ")
        return SystemFailure(
            f"{where} raised {type(error).__name__}{reason}",
            guidance="correct the class, or what the manifest gives to it",
            detail=frames,
        )


def _accepts(method: Callable[..., Any], name: str) -> bool:
    try:
        found = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return True
    return name in found or any(each.kind is each.VAR_KEYWORD for each in found.values())
