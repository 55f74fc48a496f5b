"""Selection of the records of a response: extraction, filter, transformations, schema normalization.

Spec: RecordSelector, DpathExtractor, RecordFilter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from connectors.declarative import paths
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.declarative.requests.expressions import Variables, is_of
from connectors.declarative.requests.failures.policy import may_lack_records
from connectors.declarative.requests.records.normalization import Convert, normalizer
from connectors.declarative.requests.records.transformations import Transform, transformation
from connectors.sdk.http.body import kind
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.http.messages import Response
from connectors.sdk.items import Record
from elt_assets.errors import EltError, SystemFailure

_ERRORS = ("error", "errors")
"""Fields whose presence says that a body explains an error."""


class Extractor:
    """Finds the records at a path of the values of a response.

    Args:
        component: the component.
        config: the config of the source.

    Attributes:
        place: the place of the path in the manifest, for errors.
    """

    def __init__(self, component: components.DpathExtractor, config: Mapping[str, Any]):
        self._path = tuple(part.text_of({"config": config}) for part in component.field_path)
        self._is_plain = not any(map(paths.is_glob, self._path))
        self.place = f"{component.place}.field_path"

    def values(self, values: list[Any], response: Response) -> list[Any]:
        """Return what is found in some values of a response, whether or not it is an object.

        Raises:
            SystemFailure: the response explains an error in its place.
        """
        if not self._path and not any(type(value) is list for value in values):
            return [value for value in values if value]
        contents = [self._find(value) for value in values]
        if self._path and all(content is None for content in contents):
            self._check_error(values, response)
        records: list[Any] = []
        for content in contents:
            if isinstance(content, list):
                records.extend(content)
            elif content:
                records.append(content)
        return records

    def records(self, values: list[Any], response: Response) -> list[Any]:
        """Return the records in some values of a response.

        Raises:
            SystemFailure: a record is not an object, or the response explains an error in their place.
        """
        records = self.values(values, response)
        for record in records:
            if type(record) is not dict:
                raise SystemFailure(
                    f"a record of {place(response.request)} is not an object but {kind(record)}",
                    guidance=f"correct {self.place}",
                )
        return records

    def _find(self, value: Any) -> Any:
        """Return what is at the path of a value; None if nothing is there."""
        if self._is_plain:
            content = paths.value_at_names(value, self._path)
            return None if content is paths.MISSING else content
        if paths.ANY in self._path:
            return paths.values_at(value, self._path)
        try:
            return paths.value_at(value, self._path)
        except paths.AmbiguousPath:
            raise SystemFailure(
                f"the path {'.'.join(self._path)!r} of the records matches several values",
                guidance=f"correct {self.place}; the part '*' alone may match several",
            ) from None

    def _check_error(self, values: list[Any], response: Response) -> None:
        """Check that values without the path do not explain an error."""
        is_error = any(isinstance(body, dict) and any(map(body.get, _ERRORS)) for body in values)
        if is_error and not may_lack_records(response):
            raise SystemFailure(
                f"{place(response.request)} answered with an error in place of records "
                f"({response.status_code}): {excerpt(response)}",
                guidance="see what the API says; if it means that there are no records, add an "
                "HttpResponseFilter with the action IGNORE to the manifest",
            )


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
    ):
        self._decoder = decoder
        self._extractor = Extractor(component.extractor, config)
        self._schema = schema
        self.changes_records = bool(transformations)
        steps = [transformation(part) for part in transformations]
        keep_record = record_filter(component.record_filter)
        is_first = component.transform_before_filtering
        if is_first is None:
            is_first = is_client_side
        self._steps = [*steps, *keep_record] if is_first else [*keep_record, *steps]
        self._after_filter = [] if is_first else steps
        self._normalizes = component.schema_normalization == "Default"
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


def record_filter(component: components.RecordFilter | None) -> list[Transform]:
    """Return a filter as a list of one transformation, or of none."""
    if component is None or not component.condition.text:
        return []
    return [filtering(component.condition)]


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
