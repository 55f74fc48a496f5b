"""Components in the fields of components in Python: the objects that the classes get for them.

If the class's module uses the CDK, they are the CDK's own objects, which send their own requests. Otherwise
they are small objects with the methods of the CDK's, for the components that need no requests.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from connectors.declarative.custom.construction import PARAMETERS, written
from connectors.declarative.custom.responses import original
from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import Component
from connectors.declarative.manifest.shapes import NAMES
from connectors.declarative.requests import Environment, load_schema
from connectors.declarative.requests.decoding.decoders import Decoder, decoder
from connectors.declarative.requests.records.extraction import Extractor
from connectors.declarative.requests.records.selector import record_filter
from connectors.declarative.requests.records.transformations import Transform, transformation
from elt_assets.errors import ConfigError, EltError

CDK = "airbyte_cdk"
_FACTORY = f"{CDK}.sources.declarative.parsers.model_to_component_factory"
_Decoders = (
    *(components.JsonDecoder, components.JsonlDecoder, components.JsonItemsDecoder),
    *(components.CsvDecoder, components.GzipDecoder, components.ZipfileDecoder),
    *(components.XmlDecoder, components.IterableDecoder),
)
_Transformations = (
    *(components.AddFields, components.RemoveFields, components.KeysToLower),
    *(components.KeysToSnakeCase, components.KeysReplace, components.FlattenFields),
    components.DpathFlattenFields,
)
_Schemas = (components.InlineSchemaLoader, components.JsonFileSchemaLoader)


class NestedDecoder:
    """A decoder, with the methods of the CDK's."""

    def __init__(self, decodes: Decoder):
        self._decoder = decodes

    def is_stream_response(self) -> bool:
        return False

    def decode(self, response: Any) -> Iterator[Any]:
        """Yield the values of a response."""
        for values in self._decoder.values(original(response)):
            yield from values


class NestedExtractor:
    """An extractor, with the method of the CDK's."""

    def __init__(self, extractor: Extractor, decodes: Decoder):
        self._extractor = extractor
        self._decoder = decodes

    def extract_records(self, response: Any) -> Iterator[Any]:
        """Yield the records of a response."""
        plain = original(response)
        for values in self._decoder.values(plain):
            yield from self._extractor.values(values, plain)


class NestedFilter:
    """A filter, with the method of the CDK's."""

    def __init__(self, steps: list[Transform], config: Mapping[str, Any]):
        self._steps = steps
        self._config = config

    def filter_records(
        self,
        records: Any,
        stream_state: Any = None,
        stream_slice: Any = None,
        next_page_token: Any = None,
    ) -> list[Any]:
        """Return the records that are kept."""
        del stream_state
        kept = list(records)
        for step in self._steps:
            step(kept, _variables(self._config, stream_slice, next_page_token))
        return kept


class NestedTransformation:
    """A transformation, with the method of the CDK's."""

    def __init__(self, change: Transform, config: Mapping[str, Any]):
        self._change = change
        self._config = config

    def transform(
        self, record: Any, config: Any = None, stream_state: Any = None, stream_slice: Any = None
    ) -> None:
        """Change a record."""
        del stream_state
        changed = [record]
        self._change(changed, _variables(config or self._config, stream_slice))
        if changed[0] is not record:
            record.clear()
            record.update(changed[0])


class NestedSchema:
    """A schema loader, with the method of the CDK's."""

    def __init__(self, load: Callable[[], dict[str, Any]]):
        self.get_json_schema = load


def nested_object(
    component: Component,
    config: Mapping[str, Any],
    folder: Path | None,
    given: Mapping[str, Any],
) -> Any:
    """Return the object that a class gets for a component.

    Args:
        component: the component; it is not one in Python.
        config: the config of the source.
        folder: the folder of the manifest.
        given: what a component around it hands down.

    Raises:
        ConfigError: the component can only be given as an object of the CDK, which is not used.
    """
    if isinstance(component, _Schemas):
        environment = Environment(dict(config), folder=folder)
        name = str(component.parameters.get("name", ""))
        return NestedSchema(lambda: load_schema(component, environment, name))
    if sys.modules.get(CDK) is not None:
        return _of_cdk(component, config)
    if isinstance(component, _Decoders):
        return NestedDecoder(decoder(component))
    if isinstance(component, components.DpathExtractor):
        return NestedExtractor(Extractor(component, config), decoder(given.get("decoder")))
    if isinstance(component, components.RecordFilter):
        return NestedFilter(record_filter(component), config)
    if isinstance(component, _Transformations):
        return NestedTransformation(transformation(component), config)
    raise ConfigError(
        f"{component.place}: a class in Python can get a {NAMES[type(component)]} only as an object of the "
        "Airbyte CDK, which its module does not import",
        guidance="install airbyte-cdk, and derive the class from one of its classes",
    )


def _of_cdk(component: Component, config: Mapping[str, Any]) -> Any:
    name = NAMES[type(component)]
    try:
        factory = importlib.import_module(_FACTORY).ModelToComponentFactory()
        model = factory.TYPE_NAME_TO_MODEL[name]
        definition = {**written(component), "type": name}
        # Some constructors need what a component around theirs has; the manifest may write it as a parameter.
        accepted = inspect.getfullargspec(factory.PYDANTIC_MODEL_TO_CONSTRUCTOR[model]).kwonlyargs
        parameters = definition.get(PARAMETERS, {})
        known = {"stream_name": parameters.get("name", ""), **parameters}
        more = {key: known[key] for key in accepted if key in known}
        return factory.create_component(model, definition, dict(config), **more)
    except EltError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{component.place}: the Airbyte CDK does not make a {name} of it: "
            f"{type(error).__name__}: {error}",
            guidance="check the component, and the version of airbyte-cdk",
        ) from error


def _variables(
    config: Mapping[str, Any], stream_slice: Any, next_page_token: Any = None
) -> dict[str, Any]:
    found = stream_slice or {}
    return {
        "config": config,
        "next_page_token": next_page_token,
        **dict.fromkeys(("stream_slice", "stream_partition", "stream_interval"), found),
    }
