"""The component classes, which are the schema of manifests."""

from __future__ import annotations

import pytest

from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import (
    Component,
    DeclarativeStream,
    HttpRequester,
    RequestOption,
)
from connectors.declarative.manifest.shapes import TYPES, fields, types_without_class


@pytest.mark.parametrize("cls", TYPES.values(), ids=str)
def test_the_annotations_of_a_class_can_be_read(cls: type[Component]) -> None:
    for field in fields(cls).values():
        shape = field.shape
        assert shape.is_raw or shape.words
        assert shape.usual is None or shape.usual in shape.types
        assert set(shape.types) <= TYPES.keys() | types_without_class()


@pytest.mark.parametrize("of", TYPES.values(), ids=str)
def test_components_cannot_be_changed(of: type[Component]) -> None:
    values = {name: None for name, field in fields(of).items() if field.is_required}
    built = of(**values, place="here")  # type: ignore[arg-type]
    assert hash(built) == hash(built)
    assert "here" in repr(built)
    with pytest.raises(AttributeError, match="immutable"):
        built.place = "there"  # type: ignore[misc]


def test_the_types_of_fields_are_those_of_the_annotations() -> None:
    requester = fields(HttpRequester)
    assert requester["http_method"].shape.choices == ("GET", "POST")
    assert requester["url_base"].shape.is_template
    assert not requester["url_base"].is_required
    parameters = requester["request_parameters"].shape
    assert parameters.is_template and parameters.is_map
    assert parameters.entries == {"QueryProperties"} and parameters.types == ()
    stream = fields(DeclarativeStream)
    assert stream["retriever"].is_required
    assert stream["retriever"].shape.usual == components.SimpleRetriever.__name__
    assert stream["retriever"].shape.types[2:] == ("CustomRetriever",)
    keys = stream["primary_key"].shape
    assert keys.item is not None and keys.item.item is not None
    assert keys.plain == keys.item.item.plain == (str,)
    assert fields(RequestOption)["inject_into"].is_required
