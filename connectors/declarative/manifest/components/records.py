"""Extraction, filters and transformations of records."""

from __future__ import annotations

from typing import Literal

from connectors.declarative.manifest.components.base import Component, Custom
from connectors.declarative.manifest.template import Template

ValueType = Literal["string", "number", "integer", "boolean"]

# --- extraction -----------------------------------------------------------------------------------


class RecordExpander(Component):
    """A list in a record whose items become records."""

    expand_records_from_field: tuple[Template, ...]
    remain_original_record: bool = False
    on_no_records: Literal["skip", "emit_parent"] = "skip"


class DpathExtractor(Component):
    """The records at a path, in which `*` stands for all fields or items."""

    field_path: tuple[Template, ...]
    record_expander: RecordExpander | None = None


class ResponseToFileExtractor(Component):
    """The rows of a CSV file, which is stored first."""

    preserve_na_values: bool = False


class CustomRecordExtractor(Custom):
    """An extractor in Python."""


class RecordFilter(Component):
    """The condition of the records that are kept."""

    condition: Template = Template("")


class CustomRecordFilter(Custom):
    """A filter in Python."""


class CustomSchemaNormalization(Custom):
    """A conversion of values to the types of the schema, in Python."""


class RecordSelector(Component):
    """Extraction, filter and normalization of records."""

    extractor: DpathExtractor | CustomRecordExtractor
    record_filter: RecordFilter | CustomRecordFilter | None = None
    schema_normalization: Literal["Default", "None"] | CustomSchemaNormalization = "None"
    transform_before_filtering: bool | None = None


# --- transformations ------------------------------------------------------------------------------


class AddedFieldDefinition(Component):
    """A field and its value."""

    path: tuple[str, ...]
    value: Template
    value_type: ValueType | None = None


class AddFields(Component):
    """Fields that are added to records, if a condition holds."""

    fields: tuple[AddedFieldDefinition, ...]
    condition: Template = Template("")


class RemoveFields(Component):
    """Fields that are removed from records, if a condition holds."""

    field_pointers: tuple[tuple[str, ...], ...]
    condition: Template = Template("")


class KeysToLower(Component):
    """Field names in lower case."""


class KeysToSnakeCase(Component):
    """Field names in snake case."""


class FlattenFields(Component):
    """Nested fields on the top level."""

    flatten_lists: bool = True


class KeyTransformation(Component):
    """A prefix and a suffix of field names."""

    prefix: Template | None = None
    suffix: Template | None = None


class DpathFlattenFields(Component):
    """The fields of one nested mapping on the top level."""

    field_path: tuple[Template, ...]
    delete_origin_value: bool | None = None
    replace_record: bool | None = None
    key_transformation: KeyTransformation | None = None


class KeysReplace(Component):
    """A text in field names that another one replaces."""

    old: Template
    new: Template


class CustomTransformation(Custom):
    """A transformation in Python."""


Transformation = (
    AddFields
    | RemoveFields
    | KeysToLower
    | KeysToSnakeCase
    | FlattenFields
    | DpathFlattenFields
    | KeysReplace
    | CustomTransformation
)
