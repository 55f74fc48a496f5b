"""Files of records: each is downloaded from an address in its record.

Spec: FileUploader.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import components
from connectors.declarative.requests.building import build_requester
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.records.extraction import DROPPED, build_extractor
from connectors.sdk.http.client import is_ignored
from connectors.sdk.http.failures import place
from connectors.sdk.items import Document, Record
from elt_assets.errors import SystemFailure

_TARGET = "download_target"
"""The variable of a download with what the record names, as for the downloads of jobs."""


class FileDownloads:
    """Downloads the files of the records of a stream.

    Args:
        component: describes the downloads.
        environment: what the requesters of the source share.
        stream: the name of the stream, with which the paths of its files begin.

    Raises:
        ConfigError: a component is not supported, or contradicts itself.
    """

    def __init__(self, component: components.FileUploader, environment: Environment, stream: str):
        self._component = component
        self._environment = environment
        self._stream = stream
        self._requester = build_requester(component.requester, environment)
        self._extractor = build_extractor(component.download_target_extractor, environment.config)

    def attach(self, record: Record) -> Document:
        """Return a record with its file, which is downloaded when its content is read."""
        variables = {"config": self._environment.config, "record": record}
        name = text(self._component.filename_extractor, variables).lstrip("/") or str(uuid.uuid4())
        return Document(record, f"{self._stream}/{name}", self._download(record))

    def _download(self, record: Record) -> Iterator[bytes]:
        """Yield the content of a file.

        Raises:
            EltError: the record names no file, or it cannot be downloaded.
        """
        variables = {**Slice().variables(), _TARGET: self._find_target(record)}
        response = self._requester.for_slice(variables).send()
        if is_ignored(response):
            raise SystemFailure(
                f"{place(response.request)} returned no file ({response.status_code})",
                guidance="see what the API says; an error handler cannot ignore the answer to a download",
            )
        yield response.content

    def _find_target(self, record: Record) -> Any:
        targets = self._extractor.find([record]) or []
        target = next((target for target in targets if target is not DROPPED), None)
        if not isinstance(target, str) or not target:
            raise SystemFailure(
                f"a record of stream {self._stream!r} names no file: the address at "
                f"{self._component.place}.download_target_extractor is missing, or no text",
                guidance="correct the path of the extractor in the manifest",
            )
        return target
