"""What the documents link to, and the paths that they name, exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from connectors.sdk import SlicedStream, Source, Stream
from connectors.sdk.http import HttpStream
from elt_assets.connection.connection import Connection
from elt_assets.settings import Settings
from tests.support.project import REPOSITORY

pytestmark = pytest.mark.unit

DOCUMENTS = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").glob("*.md"))]


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_target_of_every_link_exists(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)]*)\)", document.read_text()):
        if "://" not in target:
            path = document.parent / target if target else document
            assert path.exists(), target
            assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_test_that_a_document_names_exists(document: Path) -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text()):
        assert f"def {name}(" in (REPOSITORY / path).read_text(), f"{path}::{name}"


def test_modules_named_in_the_architecture_exist() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    names = set(re.findall(r"`([a-z_]+/[a-z_/]+)`", text))
    assert len(names) > 40
    roots = (REPOSITORY / "elt_assets", REPOSITORY)
    places = {name: [root / name for root in roots] for name in names}
    assert not [
        name
        for name, paths in places.items()
        if not any(path.with_suffix(".py").exists() or any(path.glob("*.py")) for path in paths)
    ]


@pytest.mark.parametrize("model", [Connection, Settings])
def test_each_key_has_a_description_for_the_reference_and_for_dg_docs(
    model: type[BaseModel],
) -> None:
    schema = model.model_json_schema()
    models = {model.__name__: schema, **schema.get("$defs", {})}
    assert not [name for name, inner in models.items() if not inner.get("description")]
    undescribed = [
        f"{name}.{key}: add Field(…, description=…) to the model"
        for name, inner in models.items()
        for key, value in inner.get("properties", {}).items()
        if len(value.get("description", "")) < 10
    ]
    assert not undescribed


def test_each_document_is_in_the_navigation_of_the_site() -> None:
    pages = set(
        re.findall(r"(\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    )
    assert {path.name for path in (REPOSITORY / "docs").glob("*.md")} <= pages


@pytest.mark.parametrize("base", [Source, Stream, SlicedStream, HttpStream])
def test_every_public_attribute_of_the_sdk_is_documented(base: type) -> None:
    text = (REPOSITORY / "docs" / "writing-a-connector.md").read_text()
    methods = {name for name, _ in inspect.getmembers(base, inspect.isfunction)}
    attributes = {name for kind in base.__mro__ for name in inspect.get_annotations(kind)}
    public = {name for name in methods | attributes if name[0] != "_"}
    documented = set(re.findall(r"`(\w+)(?:\(|`)", text))
    assert public - documented <= OF_THE_SDK


OF_THE_SDK = {
    *(
        "begin_read",
        "changed_parents",
        "config_dates",
        "describe",
        "make_refused_stream",
        "open",
        "parent_fields",
    ),
    *("parse", "specification"),
}
"""Attributes and methods that the SDK itself uses, and no source overrides."""
