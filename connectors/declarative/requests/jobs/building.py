"""Makes the retrievers of jobs of their components."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.requests.decoding.decoders import Decoder, FileBody, decoder
from connectors.declarative.requests.decoding.parsers import csv_rows, gunzipped
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import read_whole_number
from connectors.declarative.requests.jobs.retriever import (
    TIMEOUT_MINUTES,
    JobApi,
    JobRetriever,
    JobRunner,
    Values,
    statuses,
)
from connectors.declarative.requests.pages import Paginator
from connectors.declarative.requests.records.selector import Extractor, Selector
from connectors.declarative.requests.requester import Requester
from connectors.sdk.http.messages import Response
from elt_assets.errors import ConfigError

MakeRequester = Callable[[Any], Requester]

EMPTY_CELLS = ("",)
"""The texts of a cell of a CSV file that stand for null, with `preserve_na_values`."""
NULL_CELLS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""The texts of a cell that stand for null without it: those that the CDK reads as null."""


def build_job_retriever(
    component: components.AsyncRetriever,
    environment: Environment,
    make: MakeRequester,
    selector: Selector,
    name: str,
) -> JobRetriever:
    """Return the retriever that a component describes.

    Args:
        component: the component.
        environment: what the requesters of the source share.
        make: makes a requester of its component.
        selector: filters and transforms the records; it does not extract them.
        name: the name of the stream.

    Raises:
        ConfigError: the component contradicts itself.
    """
    config = environment.config
    decodes, extractor = _download(component, config)
    runner = JobRunner(
        _api(component, config, make),
        environment,
        _number(component, "polling_job_timeout", config, TIMEOUT_MINUTES) * 60.0,
        _number(component, "failed_retry_wait_time_in_seconds", config, 0),
    )
    return JobRetriever(
        name,
        runner,
        make(component.download_requester),
        decodes,
        extractor,
        Paginator(component.download_paginator, config),
        selector,
    )


def _api(
    component: components.AsyncRetriever, config: Mapping[str, Any], make: MakeRequester
) -> JobApi:
    targets = component.download_target_extractor
    if component.download_target_requester is not None and targets is None:
        raise ConfigError(
            f"{component.place} has a `download_target_requester`, but no `download_target_extractor`",
            guidance="add the extractor that finds what to download in its response",
        )
    decodes = decoder(component.decoder)
    optional = (
        component.download_target_requester,
        component.abort_requester,
        component.delete_requester,
    )
    return JobApi(
        make(component.creation_requester),
        make(component.polling_requester),
        statuses(component.status_mapping),
        _values(component.status_extractor, config, decodes),
        None if targets is None else _values(targets, config, decodes),
        *(None if requester is None else make(requester) for requester in optional),
    )


def _download(
    component: components.AsyncRetriever, config: Mapping[str, Any]
) -> tuple[Decoder, Selector]:
    """Return the decoder of downloads, and what finds the records in them."""
    decodes, extractor = decoder(component.download_decoder), component.download_extractor
    if isinstance(extractor, components.ResponseToFileExtractor):
        nulls = EMPTY_CELLS if extractor.preserve_na_values else NULL_CELLS
        decodes = FileBody(gunzipped(csv_rows("utf-8", ",", nulls, drops_null_bytes=True)))
        extractor = None
    if extractor is None:
        extractor = components.DpathExtractor(place=component.place, field_path=())
    selector = components.RecordSelector(place=component.place, extractor=extractor)
    return decodes, Selector(selector, config, decodes)


def _values(
    component: components.DpathExtractor, config: Mapping[str, Any], decodes: Decoder
) -> Values:
    extractor = Extractor(component, config)

    def values(response: Response) -> list[Any]:
        chunks = decodes.values(response)
        return [part for chunk in chunks for part in extractor.values(chunk, response)]

    return values


def _number(
    component: components.AsyncRetriever, field: str, config: Mapping[str, Any], default: int
) -> int:
    """Return a whole number of at least 1; the default if the manifest does not have it."""
    written = getattr(component, field) or default
    return read_whole_number(written, config, f"{component.place}.{field}", least=min(1, default))
