"""Dynamic streams: a template in the manifest becomes a stream for each record that an API lists.

Spec: DynamicDeclarativeStream, HttpComponentsResolver of Airbyte's low-code manifests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from connectors.declarative import paths
from connectors.declarative.cursors.cursor import read_slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import DeclarativeStream
from connectors.declarative.manifest.evaluation.literals import types_of
from connectors.declarative.manifest.loader import Manifest, Refusal
from connectors.declarative.manifest.report import ManifestError
from connectors.declarative.requests.building import build_retriever
from connectors.declarative.requests.environment import Environment
from connectors.declarative.stream import Readers
from elt_assets.errors import ConfigError, EltError, SystemFailure

Values = Mapping[str, Any]
"""The variables of one stream: `components_values`, and those of the slice."""

_NAME = ["name"]


def make_streams(
    manifest: Manifest, environment: Environment
) -> Iterator[DeclarativeStream | Refusal]:
    """Yield the streams that are made of the templates of a manifest, as the API lists them.

    In the place of a stream whose values do not fit is a refusal, so that they do not keep the other streams
    from being listed.

    Args:
        manifest: the manifest.
        environment: what the requesters share; it has the config of the source.

    Raises:
        EltError: the API that lists streams fails, a mapping can never be applied, or two streams have the
            same name.
    """
    names: set[str] = set()
    for dynamic in manifest.source.dynamic_streams:
        for stream in _fill_in(manifest, dynamic, environment):
            if not isinstance(stream, Refusal):
                if stream.name in names:
                    raise _same_name(dynamic, stream.name)
                names.add(stream.name)
            yield stream


def warn_of_mappings(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each mapping that has no effect, because the template has no such field."""
    for dynamic in manifest.source.dynamic_streams:
        template = manifest.stream_template(dynamic)
        earlier: list[list[str]] = []
        for mapping in dynamic.components_resolver.components_mapping:
            path = [part.text for part in mapping.field_path]
            is_there = paths.value_at_names(template, path) is not paths.MISSING
            is_within = any(path[: len(earlier_path)] == earlier_path for earlier_path in earlier)
            if not (is_there or is_within or _may_fit(mapping)):
                yield f"{mapping.place}: the template has no field {_quote_path(path)}; nothing is set"
            earlier.append(path)


def _may_fit(mapping: components.ComponentMappingDefinition) -> bool:
    """Return whether a mapping may have an effect although the template has no such field."""
    return any(not part.is_constant or paths.is_glob(part.text) for part in mapping.field_path)


def _same_name(dynamic: components.DynamicDeclarativeStream, name: str) -> EltError:
    return SystemFailure(
        f"{dynamic.place}: two of the streams that templates make have the name {name!r}",
        guidance="map a value to `name` that is unique in the API, such as an id",
    )


def _fill_in(
    manifest: Manifest, dynamic: components.DynamicDeclarativeStream, environment: Environment
) -> Iterator[DeclarativeStream | Refusal]:
    """Yield the stream for each item that a resolver lists, or the reason why it cannot be made."""
    resolver = dynamic.components_resolver
    _check_mappings(resolver)
    template = manifest.stream_template(dynamic)
    always = {"config": environment.config, "stream_template_config": template}
    for number, values in enumerate(_list_items(resolver, dynamic, environment), 1):
        content = deepcopy(template)
        stream: DeclarativeStream | Refusal
        try:
            for mapping in resolver.components_mapping:
                _apply(mapping, content, {**always, **values})
            stream = _build_stream(manifest, dynamic, content)
        except ManifestError as error:
            stream = Refusal(dynamic.place, content.get("name") or None, error.lines)
        except ConfigError as error:
            # Its name is not known for certain before all mappings are applied.
            problem = f"{error.message}; this happens for item {number} of the list of streams"
            stream = Refusal(dynamic.place, None, [problem], error.guidance)
        yield stream


def _build_stream(
    manifest: Manifest, dynamic: components.DynamicDeclarativeStream, content: dict[str, Any]
) -> DeclarativeStream:
    stream = manifest.build_stream(dynamic, content)
    if not stream.name:
        raise ConfigError(
            f"{dynamic.place}: a stream that is made of the template has no name",
            guidance="map a value to the field `name` in `components_mapping`",
        )
    return stream


def _check_mappings(resolver: components.HttpComponentsResolver) -> None:
    """Check what can be checked without values.

    Raises:
        ConfigError: a mapping has no path, or a condition that the CDK refuses.
    """
    for mapping in resolver.components_mapping:
        if not mapping.field_path:
            raise ConfigError(
                f"{mapping.place}.field_path is empty",
                guidance="write the path of a field of the template, such as [name]",
            )
        if mapping.condition is not None and mapping.condition.text:
            raise ConfigError(
                f"{mapping.place}.condition: only a ConfigComponentsResolver can have conditions",
                guidance="write the condition into `value`, as in {{ 1 if … else 2 }}",
            )


# --- values ---------------------------------------------------------------------------------------


def _list_items(
    resolver: components.HttpComponentsResolver,
    dynamic: components.DynamicDeclarativeStream,
    environment: Environment,
) -> Iterator[Values]:
    """Yield the variables of each stream that an API lists.

    Raises:
        EltError: they cannot be listed.
    """
    name = dynamic.name or resolver.place
    stream = components.DeclarativeStream(
        place=resolver.place, name=name, retriever=resolver.retriever
    )
    progress = Readers(environment).cursors.get(stream).begin({})
    retriever = build_retriever(resolver.retriever, environment, name=name, use_cache=True)
    for stream_slice in progress.slices():
        variables = stream_slice.variables()
        pages = retriever.pages(stream_slice, progress.options(stream_slice))
        for record in itertools.chain.from_iterable(read_slice(progress, stream_slice, pages)):
            yield {**variables, "components_values": record}
        progress.close(stream_slice)


# --- mappings -------------------------------------------------------------------------------------


def _apply(
    mapping: components.ComponentMappingDefinition, content: dict[str, Any], variables: Values
) -> None:
    """Set the value of a mapping in a copy of the template. As in the CDK, a field that is not there stays
    away, whatever `create_or_update` says: manifests use this as a condition.

    The name of a stream is a text, whatever it looks like; the CDK refuses names such as `2024`.

    Raises:
        ConfigError: a template fails.
    """
    path = [part.text_of(variables) for part in mapping.field_path]
    value = mapping.value.evaluate(variables, types_of(mapping.value_type))
    if path == _NAME and value is not None and not isinstance(value, str):
        value = mapping.value.text_of(variables)
    _replace(content, path, value)


def _replace(content: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Replace all values that match a path."""
    places: list[tuple[str, ...]] = [tuple(path)]
    if any(map(paths.is_glob, path)):
        places = [place for place, _ in paths.walk(content) if paths.matches(place, path)]
    for *above, name in places:
        parent = paths.value_at_names(content, above)
        if paths.child(parent, name) is not paths.MISSING:
            parent[int(name) if isinstance(parent, list) else name] = value


def _quote_path(path: Sequence[str]) -> str:
    return repr(".".join(path))
