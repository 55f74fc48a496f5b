"""Selection of the records of a response: extraction, filter, transformations, schema normalization.

Spec: RecordSelector, RecordFilter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.declarative.requests.expressions import Variables, is_of
from connectors.declarative.requests.records.extraction import (
    DROPPED,
    Retrieve,
    build_extractor,
)
from connectors.declarative.requests.records.normalization import Convert, normalizer
from connectors.declarative.requests.records.transformations import Transform, transformation
from connectors.sdk.http.messages import Response
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError, EltError

_RECORD = frozenset({"record"})
LoadSchema = Callable[[], Mapping[str, Any]]


class Selector:
    """The records of responses.

    Args:
        component: a RecordSelector.
        config: the config of the source.
        decoder: the decoder of the responses.
        transformations: the transformations of the stream.
        schema: returns the JSON schema of the stream; it is called if records are cast to its types.
        is_client_side: whether the records are filtered by their cursor values. By default, the filter of the
            manifest then follows the transformations, as in the CDK.
        retrieve: makes a function of the retriever of a list that a record has in part.

    Raises:
        ConfigError: a component is not supported.

    Attributes:
        changes_records: whether records are changed in place, and so the decoded body of the response.
    """

    def __init__(
        self,
        component: components.RecordSelector,
        config: Mapping[str, Any],
        decoder: Decoder,
        *,
        transformations: Sequence[Any] = (),
        schema: LoadSchema | None = None,
        is_client_side: bool = False,
        retrieve: Retrieve | None = None,
    ):
        self._decoder = decoder
        self._extractor = build_extractor(component.extractor, config, retrieve)
        self._schema = schema
        self.changes_records = bool(transformations)
        steps = [transformation(part) for part in transformations]
        keep_record = record_filter(component.record_filter)
        is_first = component.transform_before_filtering
        if is_first is None:
            is_first = is_client_side
        self._steps = [*steps, *keep_record] if is_first else [*keep_record, *steps]
        self._after_filter = [] if is_first else steps
        self._normalizes = _normalizes(component)
        self.changes_records |= self._normalizes

    def extract(self, response: Response) -> Iterator[list[Record]]:
        """Yield the records that a response has; several lists for a body that is a large file.

        Raises:
            EltError: the response has no records in the expected form.
        """
        for values in self._decoder.values(response):
            yield self._extractor.records(values, response)

    def select(self, records: list[Record], variables: Variables) -> list[Record]:
        """Return the records that are left, filtered and transformed.

        Args:
            records: extracted records, which are changed.
            variables: the variables of templates.

        Raises:
            EltError: a template fails, or a field cannot be added.
        """
        if any(record is DROPPED for record in records):
            records[:] = [record for record in records if record is not DROPPED]
        for step in self._steps:
            step(records, variables)
        if self._normalizes and self._normalizer is not None:
            records[:] = map(self._normalizer, records)
        return records

    def transform_left_out(self, record: Record, variables: Variables) -> Record:
        """Return a record that the filter has left out as it would be with the others.

        A paginator looks at the last record of a page, whether it is kept or not.
        """
        records = [record]
        try:
            for step in self._after_filter:
                step(records, variables)
            if self._normalizes and self._normalizer is not None:
                records = [self._normalizer(record)]
        except EltError:  # a transformation need not fit what is left out
            return record
        return records[0] if records else record

    @cached_property
    def _normalizer(self) -> Convert | None:
        schema = self._schema() if self._schema is not None else None
        return normalizer(schema) if schema else None


def _normalizes(component: components.RecordSelector) -> bool:
    normalization = component.schema_normalization
    if normalization not in ("Default", "None", None):
        raise ConfigError(
            f"{component.place}.schema_normalization: {type(normalization).__name__} is not supported",
            guidance="write Default or None",
        )
    return normalization == "Default"


def record_filter(component: Any) -> list[Transform]:
    """Return a filter as a list of one transformation, or of none.

    Raises:
        ConfigError: the component is not a filter that is supported.
    """
    if component is None:
        return []
    if not isinstance(component, components.RecordFilter):
        raise ConfigError(
            f"{getattr(component, 'place', 'the filter')}: {type(component).__name__} is not supported",
            guidance="use RecordFilter",
        )
    return [filtering(component.condition)] if component.condition.text else []


def filtering(condition: Template) -> Transform:
    """Return the function that leaves out the records for which a condition does not hold."""

    def keep(records: list[Record], variables: Variables) -> None:
        scope = dict(variables)
        if not is_of(condition, _RECORD):
            if records and not condition.is_true(scope):
                records.clear()
            return
        matching = []
        for record in records:
            scope["record"] = record
            if condition.is_true(scope):
                matching.append(record)
        records[:] = matching

    return keep
