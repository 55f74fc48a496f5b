"""Extraction: the records in the values of a response.

Spec: DpathExtractor, CombinedExtractor, RecordExpander.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.failures.policy import may_lack_records
from connectors.declarative.requests.records import paths
from connectors.sdk.http.body import kind
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.http.messages import Response
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError, SystemFailure

Expand = Callable[[Any], Iterator[Any]]
"""Yields the records that one record becomes."""

Retrieve = Callable[[Any], Callable[[Record], Iterator[Record]]]
"""Takes the component of a retriever, and returns the function that retrieves a list for a record."""

DROPPED: Any = object()
"""Stands in a page for a record that is left out because it is empty."""
_TOTAL = "total_count"
_ERRORS = ("error", "errors")
"""Fields whose presence says that a body explains an error."""


class RecordExtractor(ABC):
    """Finds the records in the values of a response.

    Attributes:
        place: the place in the manifest that finds them, for errors.
    """

    place: str

    @abstractmethod
    def find(self, values: list[Any]) -> list[Any] | None:
        """Return the records in some values of a response; None if the place of the records is missing."""

    def values(self, values: list[Any], response: Response) -> list[Any]:
        """Return what is found in some values of a response, whether or not it is an object. `DROPPED` stands
        for a record that is left out, and counts for the size of the page.

        Raises:
            SystemFailure: the response explains an error in its place.
        """
        records = self.find(values)
        if records is not None:
            return records
        is_error = any(isinstance(body, dict) and any(map(body.get, _ERRORS)) for body in values)
        if is_error and not may_lack_records(response):
            raise SystemFailure(
                f"{place(response.request)} answered with an error in place of records "
                f"({response.status_code}): {excerpt(response)}",
                guidance="see what the API says; if it means that there are no records, add an "
                "HttpResponseFilter with the action IGNORE to the manifest",
            )
        return []

    def records(self, values: list[Any], response: Response) -> list[Any]:
        """Return the records in some values of a response, and `DROPPED`.

        Raises:
            SystemFailure: a record is not an object, or the response explains an error in their place.
        """
        records = self.values(values, response)
        for record in records:
            if type(record) is not dict and record is not DROPPED:
                raise SystemFailure(
                    f"a record of {place(response.request)} is not an object but {kind(record)}",
                    guidance=f"correct {self.place}",
                )
        return records


def build_extractor(
    component: Any, config: Mapping[str, Any], retrieve: Retrieve | None = None
) -> RecordExtractor:
    """Return the extractor that a component describes.

    Args:
        component: a DpathExtractor or a CombinedExtractor.
        config: the config of the source.
        retrieve: makes a function of the retriever of a list that a record has in part.

    Raises:
        ConfigError: the component is not an extractor that is supported here.
    """
    if isinstance(component, components.CombinedExtractor):
        parts = [build_extractor(part, config, retrieve) for part in component.extractors]
        return _CombinedExtractor(component, parts)
    if isinstance(component, components.DpathExtractor):
        return Extractor(component, config, retrieve)
    raise ConfigError(
        f"{getattr(component, 'place', 'the extractor')}: {type(component).__name__} is not supported here",
        guidance="use DpathExtractor",
    )


class _CombinedExtractor(RecordExtractor):
    def __init__(self, component: components.CombinedExtractor, parts: Sequence[RecordExtractor]):
        self.place = component.place
        self._parts = parts
        self._is_union = component.mode == "union"
        self._skips_empty = component.skip_empty_records

    def find(self, values: list[Any]) -> list[Any] | None:
        combined: list[Any] | None = None
        for part in self._parts:
            records = part.find(values)
            if records is None:
                continue
            if self._skips_empty:
                records = [record or DROPPED for record in records]
            has_records = any(record is not DROPPED for record in records)
            if has_records and not self._is_union:
                return records
            combined = [*(combined or ()), *(records if self._is_union else ())]
        return combined


class Extractor(RecordExtractor):
    """Finds the records at a path."""

    def __init__(
        self,
        component: components.DpathExtractor,
        config: Mapping[str, Any],
        retrieve: Retrieve | None = None,
    ):
        variables = {"config": config}
        self._path = _texts(component.field_path, variables)
        self._is_plain = not any(map(paths.is_glob, self._path))
        self.place = f"{component.place}.field_path"
        self._expand: Expand | None = None
        if component.record_expander is not None:
            self._expand = _expander(component.record_expander, variables, retrieve)

    def find(self, values: list[Any]) -> list[Any] | None:
        if len(values) == 1 and self._is_plain and type(values[0]) is dict:
            records = self._find_in_object(values[0])
        elif not self._path and not any(type(value) is list for value in values):
            records = [value for value in values if value]
        else:
            records = [record for value in values for record in self._of(value)]
        if self._expand is not None and records is not None:
            records = [item for record in records for item in self._expand(record)]
        return records

    def _find_in_object(self, body: dict[str, Any]) -> list[Any] | None:
        """Return the records in a JSON object, which is what most responses are."""
        content = paths.value_at_names(body, self._path)
        if type(content) is list:
            return list(content)
        if content is paths.MISSING or content is None:
            return None
        return [content] if content else []

    def _of(self, value: Any) -> list[Any]:
        if not self._path:
            values = value
        elif paths.ANY in self._path:
            values = paths.values_at(value, self._path)
        else:
            values = self._single(value)
        if isinstance(values, list):
            return values
        return [values] if values else []

    def _single(self, value: Any) -> Any:
        try:
            return paths.value_at(value, self._path)
        except paths.AmbiguousPath:
            raise SystemFailure(
                f"the path {'.'.join(self._path)!r} of the records matches several values",
                guidance=f"correct {self.place}; the part '*' alone may match several",
            ) from None


def _expander(
    component: components.RecordExpander,
    variables: Mapping[str, Any],
    retrieve: Retrieve | None,
) -> Expand:
    """Return the function that makes records of the elements of a list in a record.

    Raises:
        ConfigError: the list may be a part of another one that cannot be retrieved.
    """
    path = _texts(component.expand_records_from_field, variables)
    add_parent = _parent_adder(component, path, variables)
    retrieve_rest = _rest(component, variables, retrieve)

    def expand(record: Any) -> Iterator[Any]:
        if not isinstance(record, dict) or not path:
            yield record
            return
        lists = [part for part in paths.values_at(record, path) if isinstance(part, list)]
        elements = retrieve_rest(record) or [element for part in lists for element in part]
        for element in elements:
            yield add_parent(element, record)
        if not elements and component.on_no_records == "emit_parent":
            yield record

    return expand


def _texts(path: Sequence[Template], variables: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(part.text_of(variables) for part in path)


def _rest(
    component: components.RecordExpander,
    variables: Mapping[str, Any],
    retrieve: Retrieve | None,
) -> Callable[[Record], list[Record]]:
    """Return the function that retrieves the whole list if a record has only its beginning; otherwise it
    returns nothing."""
    indicator = _texts(component.truncation_indicator_path, variables)
    retriever = component.truncated_list_retriever
    if not indicator and retriever is None:
        return lambda _: []
    if not indicator or retriever is None or retrieve is None:
        raise ConfigError(
            f"{component.place}: a list that a record has in part cannot be retrieved",
            guidance="write both `truncation_indicator_path` and `truncated_list_retriever`, in a "
            "SimpleRetriever",
        )
    read = retrieve(retriever)

    def retrieve_rest(record: Record) -> list[Record]:
        is_part = paths.value_at_names(record, indicator)
        if is_part is paths.MISSING or not is_part:
            return []
        records = list(read(record))
        total = paths.value_at_names(record, [*indicator[:-1], _TOTAL])
        if isinstance(total, int) and len(records) < total:
            raise SystemFailure(
                f"a list has {len(records)} records, and the record that it belongs to says {total}",
                guidance=f"check the request and the paginator of {retriever.place}",
            )
        return records

    return retrieve_rest


def _parent_adder(
    component: components.RecordExpander, path: Sequence[str], variables: Mapping[str, Any]
) -> Callable[[Any, Record], Any]:
    """Return the function that gives an element of a list the fields of its record that it is to have."""
    copies = [
        (_texts(copy.parent_path, variables), _texts(copy.record_path, variables), copy.place)
        for copy in component.parent_fields
    ]
    merges, embeds = component.merge_parent, component.remain_original_record
    if not (copies or merges or embeds):
        return lambda element, _record: element

    def add_parent(element: Any, record: Record) -> Record:
        fields = dict(element) if isinstance(element, dict) else {"value": element}
        if merges:
            fields = {**paths.without_lists(record, path), **fields}
        for source, target, where in copies:
            value = paths.value_at_names(record, source)
            try:
                paths.put(fields, target, None if value is paths.MISSING else deepcopy(value))
            except paths.BlockedPath:
                raise ConfigError(
                    f"{where}.record_path: a value on the way is neither an object nor a list",
                    guidance="correct the path",
                ) from None
        if embeds:
            fields["original_record"] = deepcopy(record)
        return fields

    return add_parent
