"""A manifest of the API of docs/manifests.md whose requests, records and retrievers are Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.programs.written_manifest import manifest_text

COMPONENTS = '''
"""Components on classes of the Airbyte CDK, as those of published connectors are."""

from dataclasses import dataclass

from airbyte_cdk.sources.declarative.extractors.record_extractor import RecordExtractor
from airbyte_cdk.sources.declarative.requesters.http_requester import HttpRequester
from airbyte_cdk.sources.declarative.retrievers.simple_retriever import SimpleRetriever
from airbyte_cdk.sources.declarative.transformations import RecordTransformation


@dataclass
class SigningRequester(HttpRequester):
    def get_request_headers(self, **context):
        return {**super().get_request_headers(**context), "x-signed": "yes"}


class UpperExtractor(RecordExtractor):
    def extract_records(self, response):
        for record in response.json()["data"]:
            yield {**record, "city": record["city"].upper()}


@dataclass
class CountingRetriever(SimpleRetriever):
    def read_records(self, records_schema, stream_slice=None):
        for number, record in enumerate(super().read_records(records_schema, stream_slice)):
            record.data["number"] = number
            yield record


class Day(RecordTransformation):
    def transform(self, record, config=None, stream_state=None, stream_slice=None):
        record["day"] = record["updated_at"][:10]
'''
MODULE = "source_declarative_manifest.components"


def python_manifest() -> dict[str, Any]:
    """Return the manifest: `stores` has a requester and an extractor in Python, `orders` a retriever, and
    `visits`, which has a DatetimeBasedCursor, a transformation."""
    document: dict[str, Any] = yaml.safe_load(manifest_text())
    defined = document["definitions"]
    requester = {"type": "CustomRequester", "class_name": f"{MODULE}.SigningRequester"}
    defined["stores"]["retriever"]["requester"] |= requester
    defined["stores"]["retriever"]["record_selector"] = {
        "type": "RecordSelector",
        "extractor": {"type": "CustomRecordExtractor", "class_name": "components.UpperExtractor"},
    }
    defined["orders"]["retriever"] |= {
        "type": "CustomRetriever",
        "class_name": f"{MODULE}.CountingRetriever",
    }
    # The engine has no other way to tell it to a paginator in a component in Python.
    parameters = {"url_base": "{{ config['url'] }}"}
    defined["orders"]["retriever"]["paginator"]["$parameters"] = parameters
    defined["visits"]["transformations"] = [
        {"type": "CustomTransformation", "class_name": f"{MODULE}.Day"}
    ]
    return document


def write_manifest(folder: Path, document: Any = None, components: str | None = COMPONENTS) -> Path:
    """Write a manifest into a folder, with its components in Python beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "manifest.yaml"
    file.write_text(yaml.safe_dump(document or python_manifest()))
    if components is not None:
        (folder / "components.py").write_text(components)
    return file
