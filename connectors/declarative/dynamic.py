"""Dynamic streams: a template in the manifest becomes a stream for each item that the config, an API or the
manifest itself lists.

Spec: DynamicDeclarativeStream of Airbyte's low-code manifests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import singledispatch
from typing import Any

from connectors.declarative.cursors.cursor import read_slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.loader import Manifest, Refusal
from connectors.declarative.manifest.report import ManifestError
from connectors.declarative.manifest.value_types import TEXT, types_of
from connectors.declarative.manifest.yaml_text import parse
from connectors.declarative.readers import AnyStream, Readers
from connectors.declarative.requests import Environment, build_retriever
from connectors.declarative.requests.records import paths
from elt_assets.errors import ConfigError, EltError, SystemFailure

Resolver = (
    components.ConfigComponentsResolver
    | components.HttpComponentsResolver
    | components.ParametrizedComponentsResolver
)
Values = Mapping[str, Any]
"""The variables of one stream: `components_values`, and those of the slice if an API lists the streams."""
Path = tuple[str, ...]

_NAME = ["name"]


def make_streams(manifest: Manifest, environment: Environment) -> Iterator[AnyStream | Refusal]:
    """Yield the streams that are made of the templates of a manifest, in the order of what lists them.

    A list that is missing in the config, or that is empty, makes no stream. In the place of a stream whose
    values do not fit is a refusal, so that they do not keep the other streams from being listed.

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
            if not (is_there or is_within or _may_fit(mapping, dynamic.components_resolver)):
                yield f"{mapping.place}: the template has no field {_quote_path(path)}; nothing is set"
            earlier.append(path)


def _may_fit(mapping: components.ComponentMappingDefinition, resolver: Resolver) -> bool:
    """Return whether a mapping may have an effect although the template has no such field."""
    field_path = mapping.field_path
    return _creates(mapping, resolver) or any(
        not part.is_constant or paths.is_glob(part.text) for part in field_path
    )


def _same_name(dynamic: components.DynamicDeclarativeStream, name: str) -> EltError:
    text = f"{dynamic.place}: two of the streams that templates make have the name {name!r}"
    if _is_http(dynamic.components_resolver):
        return SystemFailure(
            text, guidance="map a value to `name` that is unique in the API, such as an id"
        )
    if isinstance(dynamic.components_resolver, components.ConfigComponentsResolver):
        return ConfigError(text, guidance="give each item of the list in the config another name")
    return ConfigError(text, guidance="give each item of `list_of_parameters_for_stream` its own")


def _fill_in(
    manifest: Manifest, dynamic: components.DynamicDeclarativeStream, environment: Environment
) -> Iterator[AnyStream | Refusal]:
    """Yield the stream for each item that a resolver lists, or the reason why it cannot be made."""
    resolver = dynamic.components_resolver
    _check_mappings(resolver)
    template = manifest.stream_template(dynamic)
    always = {"config": environment.config, "stream_template_config": template}
    for number, values in enumerate(_list_items(resolver, dynamic, environment), 1):
        content = deepcopy(template)
        stream: AnyStream | Refusal
        try:
            for mapping in resolver.components_mapping:
                _apply(mapping, resolver, content, {**always, **values})
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
) -> AnyStream:
    stream = manifest.build_stream(dynamic, content)
    if not stream.name:
        raise ConfigError(
            f"{dynamic.place}: a stream that is made of the template has no name",
            guidance="map a value to the field `name` in `components_mapping`",
        )
    return stream


def _check_mappings(resolver: Resolver) -> None:
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
        if _condition(mapping) and not isinstance(resolver, components.ConfigComponentsResolver):
            raise ConfigError(
                f"{mapping.place}.condition: only a ConfigComponentsResolver can have conditions",
                guidance="write the condition into `value`, as in {{ 1 if … else 2 }}",
            )


# --- values ---------------------------------------------------------------------------------------


@singledispatch
def _list_items(
    resolver: Any, dynamic: components.DynamicDeclarativeStream, environment: Environment
) -> Iterator[Values]:
    """Yield the variables of each stream that a resolver lists.

    Raises:
        EltError: they cannot be listed.
    """
    del dynamic, environment
    raise ConfigError(f"{resolver.place}: {type(resolver).__name__} is not supported")


@_list_items.register
def _(
    resolver: components.ParametrizedComponentsResolver,
    _dynamic: components.DynamicDeclarativeStream,
    _environment: Environment,
) -> Iterator[Values]:
    for values in resolver.stream_parameters.list_of_parameters_for_stream:
        yield {"components_values": values}


@_list_items.register
def _(
    resolver: components.ConfigComponentsResolver,
    _dynamic: components.DynamicDeclarativeStream,
    environment: Environment,
) -> Iterator[Values]:
    stream_config = resolver.stream_config
    lists = stream_config if isinstance(stream_config, tuple) else (stream_config,)
    items = [enumerate(_items(config_list, environment.config)) for config_list in lists]
    for combination in itertools.product(*items):
        yield {"components_values": _merge_items(combination)}


def _items(component: components.StreamConfig, config: Mapping[str, Any]) -> list[Any]:
    """Return the items of a list in the config, and then the default ones of the manifest."""
    path = [part.text_of({"config": config}) for part in component.configs_pointer]
    try:
        value_at_path = paths.value_at(config, path)
    except paths.AmbiguousPath:
        raise ConfigError(
            f"{component.place}.configs_pointer matches several values of the config",
            guidance="write the path of one list",
        ) from None
    items = (
        value_at_path
        if isinstance(value_at_path, list)
        else []
        if value_at_path is None
        else [value_at_path]
    )
    return [*items, *(component.default_values or ())]


def _merge_items(combination: Sequence[tuple[int, Any]]) -> dict[str, Any]:
    """Return the fields of all items of a combination. An item that has no fields is there with its number,
    as `source_config_0` if it is of the first list."""
    fields: dict[str, Any] = {}
    for number, (index, item) in enumerate(combination):
        if isinstance(item, Mapping):
            fields.update(item)
        else:
            fields.setdefault(f"source_config_{number}", (index, item))
    return fields


@_list_items.register
def _(
    resolver: components.HttpComponentsResolver,
    dynamic: components.DynamicDeclarativeStream,
    environment: Environment,
) -> Iterator[Values]:
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
    mapping: components.ComponentMappingDefinition,
    resolver: Resolver,
    content: dict[str, Any],
    variables: Values,
) -> None:
    """Set the value of a mapping in a copy of the template. A field that is not there stays away, unless the
    mapping may create it: manifests use this as a condition.

    Raises:
        ConfigError: a template fails, or the field cannot be created.
    """
    condition = _condition(mapping)
    if condition and not condition.is_true(variables):
        return
    path = [part.text_of(variables) for part in mapping.field_path]
    value = _value(mapping, resolver, path, variables)
    if not _replace(content, path, value) and value and _creates(mapping, resolver):
        _create(mapping, content, path, value)


def _creates(mapping: components.ComponentMappingDefinition, resolver: Resolver) -> bool:
    """Return whether a mapping may create its field. Like the CDK, none may if an API lists the streams."""
    return mapping.create_or_update and not _is_http(resolver)


def _is_http(resolver: Resolver) -> bool:
    return isinstance(resolver, components.HttpComponentsResolver)


def _condition(mapping: components.ComponentMappingDefinition) -> Any:
    """Return the condition of a mapping; None if it has none."""
    condition = mapping.condition
    return condition if condition is not None and condition.text else None


def _value(
    mapping: components.ComponentMappingDefinition,
    resolver: Resolver,
    path: Sequence[str],
    variables: Values,
) -> Any:
    """Return the value of a mapping. The name of a stream is a text, whatever it looks like; the CDK refuses
    names such as `2024`."""
    types = types_of(mapping.value_type)
    result = mapping.value.evaluate(variables, types)
    is_text = types == TEXT and isinstance(resolver, components.ConfigComponentsResolver)
    if isinstance(result, str) and not is_text and not _is_http(resolver):
        result = _parse_yaml(result)
    if path == _NAME and result is not None and not isinstance(result, str):
        return mapping.value.text_of(variables)
    return result


def _parse_yaml(text: str) -> Any:
    """Return what a text that is YAML describes; the text itself if it is not."""
    try:
        return parse(text, "the value").value
    except ConfigError:
        return text


def _replace(content: dict[str, Any], path: Sequence[str], value: Any) -> bool:
    """Replace all values that match a path; return False if there are none."""
    places: list[Path] = [tuple(path)]
    if any(map(paths.is_glob, path)):
        places = [place for place in _places(content) if paths.matches(place, path)]
    replaced = False
    for *above, name in places:
        parent = paths.value_at_names(content, above)
        if paths.child(parent, name) is not paths.MISSING:
            parent[int(name) if isinstance(parent, list) else name] = value
            replaced = True
    return replaced


def _places(node: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the places of all values: first those directly in a value, then those within each of them."""
    inner = dict(enumerate(node)) if isinstance(node, list) else node
    if isinstance(inner, dict):
        for name in inner:
            yield (*path, str(name))
        for name, value in inner.items():
            yield from _places(value, (*path, str(name)))


def _create(
    mapping: components.ComponentMappingDefinition,
    content: dict[str, Any],
    path: Sequence[str],
    value: Any,
) -> None:
    try:
        paths.put(content, path, value)
    except paths.BlockedPath:
        raise ConfigError(
            f"{mapping.place}: the field {_quote_path(path)} cannot be created in the template: a value "
            "on the way is neither a mapping nor a list",
            guidance="correct `field_path`",
        ) from None


def _quote_path(path: Sequence[str]) -> str:
    return repr(".".join(path))
