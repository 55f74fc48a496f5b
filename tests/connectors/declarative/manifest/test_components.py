"""The component classes, which are the schema of manifests."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import (
    Component,
    Custom,
    DeclarativeStream,
    HttpRequester,
    RequestOption,
)
from connectors.declarative.manifest.shapes import (
    NAMES,
    TYPES,
    choices,
    classes,
    components_in_templates,
    describe,
    is_map,
    item,
    members,
    plain,
    shape,
    usual,
)
from connectors.declarative.manifest.template import Template


@pytest.mark.parametrize("cls", TYPES.values(), ids=str)
def test_the_annotations_of_a_class_can_be_read(cls: type[Component]) -> None:
    for field in shape(cls).values():
        hint = field.type
        assert Any in members(hint) or describe(hint)
        assert usual(hint) is None or usual(hint) in classes(hint)
        assert all(NAMES[inner] in TYPES for inner in (*classes(hint), *classes(item(hint))))


@pytest.mark.parametrize("of", TYPES.values(), ids=str)
def test_components_cannot_be_changed(of: type[Component]) -> None:
    values = {field.name: None for field in shape(of).values() if field.required}
    built = of(**values, place="here")  # type: ignore[arg-type]
    assert hash(built) == hash(built)
    assert "here" in repr(built)
    with pytest.raises(AttributeError, match="immutable"):
        built.place = "there"  # type: ignore[misc]


def test_every_custom_component_names_a_class() -> None:
    custom = [of for name, of in TYPES.items() if name.startswith("Custom")]
    assert len(custom) > 15
    assert all(issubclass(of, Custom) and "class_name" in shape(of) for of in custom)


def test_the_types_of_fields_are_those_of_the_annotations() -> None:
    fields = shape(HttpRequester)
    assert choices(fields["http_method"].type) == ("GET", "POST")
    assert members(fields["url_base"].type) == (Template,)
    assert not fields["url_base"].required
    parameters = fields["request_parameters"].type
    assert Template in members(parameters) and is_map(parameters)
    assert components_in_templates(parameters) is components.QueryProperties
    stream = shape(DeclarativeStream)
    assert stream["retriever"].required
    assert usual(stream["retriever"].type) is components.SimpleRetriever
    keys = stream["primary_key"].type
    assert plain(keys) == (str,) and item(item(keys)) is str
    assert shape(RequestOption)["inject_into"].required
