"""Retrievers of the tests: they are built from parts of manifests, and read a server on the loopback."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

import pytest
import yaml

from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.builder import Builder
from connectors.declarative.manifest.report import Report
from connectors.declarative.requests.budgets import Budget
from connectors.declarative.requests.building import build_retriever
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.retriever import Retriever
from connectors.sdk.http.connections import Connections
from connectors.sdk.items import Record
from elt_assets.errors import EltError
from tests.programs.recording_api import RecordingApi, Script

C = TypeVar("C", bound=components.Component)

NOON = dt.datetime(2024, 5, 17, 12, tzinfo=dt.timezone.utc)


def component(kind: type[C], written: str | Mapping[str, Any], **parameters: Any) -> C:
    """The component of a kind that a text in YAML describes."""
    document = yaml.safe_load(written) if isinstance(written, str) else written
    report = Report()
    found = Builder(report).build(kind, document or {}, kind.__name__, parameters)
    report.raise_problems("the test")
    assert found is not None
    return found


def together(*parts: str) -> str:
    """Parts of a retriever as one text."""
    return "\n".join(map(dedent, parts))


class Reading:
    """A server with a script, and retrievers that read it.

    Attributes:
        api: the server.
        waits: the waits, which do not take time: seconds and reason.
        environment: the surroundings of the retrievers.
    """

    def __init__(self, api: RecordingApi, folder: Path | None = None):
        self.api = api
        self.waits: list[tuple[float, str]] = []
        self.environment = Environment(
            {"url": api.url},
            connections=Connections(timeout=5),
            folder=folder,
            on_wait=lambda seconds, reason: self.waits.append((seconds, reason)),
            sleep=lambda _: None,
        )

    def answer(self, script: Script | Any) -> None:
        """Answer from now on by a script, or with a body or answer."""
        self.api.script = script if callable(script) else lambda _: script

    def configure(self, **values: Any) -> None:
        self.environment.config.update(values)

    def limit(self, budget: str, **settings: Any) -> None:
        """Give the source a call-rate budget."""
        written = component(components.HTTPAPIBudget, budget)
        self.environment.budget = Budget(written, self.environment.config, **settings)

    def retriever(self, written: str, *, name: str = "orders", **settings: Any) -> Retriever:
        """The retriever that a text describes. What it leaves out is usual: GET {url}/orders, the records at
        `data`."""
        document = yaml.safe_load(written) or {}
        requester = {"url_base": "{{ config['url'] }}", "path": "orders"}
        requester |= document.get("requester", {})
        if "url" in requester:
            requester.pop("url_base")
        selector = {"extractor": {"type": "DpathExtractor", "field_path": ["data"]}}
        selector |= document.get("record_selector", {})
        whole = {
            **document,
            "requester": {"type": "HttpRequester", **requester},
            "record_selector": {"type": "RecordSelector", **selector},
        }
        transformations = whole.pop("transformations", [])
        stream = component(
            components.DeclarativeStream,
            {"name": name, "retriever": whole, "transformations": transformations},
            **settings.pop("parameters", {}),
        )
        return build_retriever(
            stream.retriever,
            self.environment,
            name=name,
            transformations=stream.transformations,
            **settings,
        )

    def pages(
        self,
        written: str = "",
        each: Slice | None = None,
        options: tuple[Option, ...] = (),
        **settings: Any,
    ) -> list[list[Record]]:
        """The records of all pages of a slice."""
        found = self.retriever(written, **settings)
        return [list(page) for page in found.pages(each or Slice(), options)]

    def records(
        self, written: str = "", each: Slice | None = None, **settings: Any
    ) -> list[Record]:
        return [record for page in self.pages(written, each, **settings) for record in page]

    def error(self, written: str = "", each: Slice | None = None, **settings: Any) -> EltError:
        """The error with which the read of a slice ends."""
        with pytest.raises(EltError) as caught:
            self.pages(written, each, **settings)
        return caught.value
