"""Settings for the rows of a stream: which records are stored, and the names that their fields get."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from elt_assets.connection.config_model import ConfigModel, DottedPath, FieldName

OF_NULL = ("is null", "is not null")
"""Operators without a value."""
OF_LIST = ("in", "not in")
"""Operators whose value is a list."""
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", *OF_LIST, *OF_NULL)


def _check_operator(operator: Any) -> Any:
    if operator not in OPERATORS:
        names = ", ".join(f'"{name}"' for name in OPERATORS)
        raise ValueError(f"write one of {names}, in quotes")
    return operator


Operator = Annotated[
    str,
    BeforeValidator(_check_operator),
    WithJsonSchema({"type": "string", "enum": list(OPERATORS)}),
]
Scalar = str | bool | int | float


class Condition(ConfigModel):
    """A condition that a record must meet to be stored."""

    field: DottedPath
    """Path of the field, by its name in the source."""
    operator: Operator
    """How the field is compared: as SQL does, so a null meets only `is null`."""
    value: Any = None
    """What it is compared with; a list for `in` and `not in`."""

    @model_validator(mode="after")
    def _check_value(self) -> Condition:
        if self.operator in OF_NULL:
            if "value" in self.model_fields_set:
                raise ValueError(f"value: `{self.operator}` has none; leave it out")
            return self
        is_list = isinstance(self.value, list)
        has_value = "value" in self.model_fields_set and bool(self.values)
        if not has_value or is_list is not (self.operator in OF_LIST):
            form = "a list of values" if self.operator in OF_LIST else "one value"
            raise ValueError(f"value: `{self.operator}` needs {form}")
        if any(not isinstance(value, get_args(Scalar)) for value in self.values):
            raise ValueError(
                "value: write a text, a number, true or false; for null write the operator `is null`"
            )
        return self

    @property
    def values(self) -> list[Any]:
        """The values that the field is compared with."""
        return self.value if isinstance(self.value, list) else [self.value]

    @classmethod
    def label(cls) -> str:
        return "filter"


Renaming = Annotated[dict[FieldName, FieldName], Field(min_length=1)]
"""The new name of each renamed field, by its name in the source."""
Conditions = Annotated[list[Condition], Field(min_length=1)]
