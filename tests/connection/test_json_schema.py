"""Editors and `dg check yaml` accept what the documents show, by the JSON schema of a connection."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from elt_assets.connection.connection import Connection
from tests.support.documents import code_blocks
from tests.support.project import REPOSITORY

pytestmark = pytest.mark.unit

SCHEMA = Connection.model_json_schema()
DOCUMENTS = ["automation", "connections", "connectors", "dagster", "lake", "security", "storage"]


def _examples() -> list[dict[str, Any]]:
    """Return the attributes of connections, and parts of them, in the documents."""
    texts = [(REPOSITORY / "docs" / f"{name}.md").read_text() for name in DOCUMENTS]
    blocks = [block for text in texts for block in code_blocks(text, "yaml")]
    documents = [yaml.safe_load(block) for block in blocks]
    attributes = [document.get("attributes", document) for document in documents]
    return [part for part in attributes if set(part) <= set(SCHEMA["properties"])]


def _errors(attributes: dict[str, Any]) -> list[str]:
    schema = {**SCHEMA, "required": []}
    errors = jsonschema.Draft202012Validator(schema).iter_errors(attributes)
    return [f"{error.json_path}: {error.message}" for error in errors]


def test_documented_attributes_are_valid() -> None:
    examples = _examples()
    assert len(examples) > 10
    assert not [(example, errors) for example in examples if (errors := _errors(example))]
    assert _errors({"checks": {"columns": "off"}})[0].startswith("$.checks.columns:")
