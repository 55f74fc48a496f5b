"""Extraction, filters and transformations of records."""

from __future__ import annotations

from typing import Annotated, Literal

from connectors.declarative.manifest.components.base import Component
from connectors.declarative.manifest.template import Template

ValueType = Literal["string", "number", "integer", "boolean"]

# --- extraction -----------------------------------------------------------------------------------


class ResponseToFileExtractor(Component):
    """The rows of a CSV file, which is stored first."""

    preserve_na_values: bool = False


class RecordFilter(Component):
    """The condition of the records that are kept."""

    condition: Template = Template("")


Filter = Annotated[RecordFilter, "CustomRecordFilter"]

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


Transformation = Annotated[
    AddFields
    | RemoveFields
    | KeysToLower
    | KeysToSnakeCase
    | FlattenFields
    | DpathFlattenFields
    | KeysReplace,
    "CustomTransformation",
]
