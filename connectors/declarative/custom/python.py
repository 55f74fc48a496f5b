"""The components in Python of one manifest with one config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from connectors.declarative.custom import adapters, streams
from connectors.declarative.custom.classes import find_class
from connectors.declarative.custom.construction import construct
from connectors.declarative.custom.implementation import Implementation
from connectors.declarative.custom.nested import nested_object
from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import Component, Custom
from connectors.declarative.manifest.shapes import NAMES
from elt_assets.errors import ConfigError

_ADAPTERS: Mapping[type[Custom], Callable[[Implementation], Any]] = {
    components.CustomAuthenticator: adapters.PythonCredentials,
    components.CustomBackoffStrategy: adapters.backoff,
    components.CustomConfigTransformation: streams.config_change,
    components.CustomDecoder: adapters.PythonDecoder,
    components.CustomErrorHandler: adapters.handler,
    components.CustomPaginationStrategy: adapters.PythonStrategy,
    components.CustomPartitionRouter: streams.PythonRouter,
    components.CustomRecordExtractor: adapters.extractor,
    components.CustomRecordFilter: adapters.record_filter,
    components.CustomSchemaLoader: streams.schema,
    components.CustomSchemaNormalization: adapters.normalization,
    components.CustomStateMigration: streams.migration,
    components.CustomTransformation: adapters.transformation,
    components.CustomValidationStrategy: streams.validation,
}
_INSTEAD: Mapping[type[Custom], str] = {
    components.CustomRetriever: "use SimpleRetriever or AsyncRetriever, with an extractor, a pagination "
    "strategy or a partition router in Python",
    components.CustomRequester: "use HttpRequester, with an authenticator or an error handler in Python",
    components.CustomIncrementalSync: "use DatetimeBasedCursor or IncrementingCountCursor",
}
"""Guidance for components that are not supported: they would send requests, or keep a state, of their own."""
_LEFT = frozenset(
    {"place", "parameters", "authenticator", "partition_router", "retriever", "stream"}
)
"""The fields whose components are taken care of when they are built."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class PythonComponents:
    """Makes what stands for components in Python.

    Args:
        config: the config of the source.
        folder: the folder of the manifest, for classes in its file components.py; None for none.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path | None = None):
        self._config = config
        self._folder = folder

    def __call__(self, component: Any) -> Any:
        """Return what stands for a component in Python; another component with those in it replaced.

        Raises:
            ConfigError: the class cannot be found or made, or the component is not supported.
            EltError: the class fails.
        """
        return self._replaced(component, _NOTHING)

    def _replaced(self, component: Any, given: Mapping[str, Any]) -> Any:
        if isinstance(component, Custom):
            return self._adapted(component, given)
        if isinstance(component, tuple):
            items = tuple(self._replaced(each, given) for each in component)
            same = all(new is old for new, old in zip(items, component, strict=True))
            return component if same else items
        if not isinstance(component, Component):
            return component
        changed = {}
        for each in fields(component):
            if each.name not in _LEFT:
                old = getattr(component, each.name)
                new = self._replaced(old, {**given, **_handed_down(component, each.name)})
                if new is not old:
                    changed[each.name] = new
        return replace(component, **changed) if changed else component

    def _adapted(self, component: Custom, given: Mapping[str, Any]) -> Any:
        kind = type(component)
        if kind not in _ADAPTERS:
            raise ConfigError(
                f"{component.place}: {NAMES[kind]} is not supported; its class is "
                f"{component.class_name!r}",
                guidance=_INSTEAD.get(kind, "use a component without Python"),
            )
        return _ADAPTERS[kind](Implementation(component, self._made(component, given)))

    def _made(self, component: Custom, given: Mapping[str, Any]) -> Any:
        """Return the object of the class of a component."""

        def nested(inner: Component) -> Any:
            if isinstance(inner, Custom):
                return self._made(inner, given)
            return nested_object(inner, self._config, self._folder, given)

        cls = find_class(component, self._folder)
        return construct(cls, component, given, self._config, nested)


def _handed_down(component: Component, field: str) -> dict[str, Any]:
    """Return what the component in a field gets from the one around it: the decoder of its responses."""
    name = "download_decoder" if field == "download_extractor" else "decoder"
    written = getattr(component, name, None)
    is_around = isinstance(component, components.SimpleRetriever | components.AsyncRetriever)
    return {"decoder": written} if is_around and isinstance(written, Component) else {}
