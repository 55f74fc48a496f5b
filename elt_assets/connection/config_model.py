"""Base model and field types of the settings in `defs.yaml`, for the models of this package."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

FieldName = Annotated[str, Field(min_length=1)]
FieldPath = Annotated[list[FieldName], Field(min_length=1)]


def _steps(path: Any) -> Any:
    """Split `address.city` into [address, city]. Names that contain a dot or are empty need the list form."""
    if not isinstance(path, str):
        return path
    if "" in (steps := path.split(".")):
        raise ValueError("a path is written `a.b`, or as the list of its names, `[a, b]`")
    return steps


DottedPath = Annotated[
    list[str],
    Field(min_length=1),
    BeforeValidator(_steps),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
DottedPaths = Annotated[list[DottedPath], Field(min_length=1)]


class OtherForm:
    """Adds another form in which a value may be written to its JSON schema, which editors and `dg` check."""

    def __init__(self, **schema: Any):
        self._schema = schema

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        forms = schema["anyOf"] if set(schema) == {"anyOf"} else [schema]
        return {"anyOf": [*forms, self._schema]}


def reject_unknown_keys(kind: type, **elsewhere: str) -> Callable[[Any], Any]:
    """Return a validator that rejects keys which are not fields of a dataclass, and suggests the nearest.

    Args:
        elsewhere: fields that are no keys, and what to write instead.
    """
    names = {field.name for field in dataclasses.fields(kind)} - set(elsewhere)

    def describe(key: str) -> str:
        return f"{key}: {elsewhere[key]}" if key in elsewhere else _suggest(key, names)

    def reject(value: Any) -> Any:
        unknown = [key for key in value if key not in names] if isinstance(value, Mapping) else []
        if unknown:
            raise ValueError("; ".join(describe(str(key)) for key in unknown))
        return value

    return reject


class ConfigModel(BaseModel):
    """Base of all settings in `defs.yaml`. It rejects an unknown key and suggests the nearest known key."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    expected_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of other tools, and former ones, that people expect, and what to write instead."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema for editors and the reference, with the text below each field.

        The source is read only here: pydantic would read it for each class, whenever the module is imported.
        """
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for owner in cls.__mro__:
            texts = _read_field_texts(owner.__module__) if issubclass(owner, ConfigModel) else {}
            for name, value in properties.items():
                if (text := texts.get((owner.__name__, name))) is not None:
                    value.setdefault("description", text)
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _reject_unknown(cls, value: Any, validate: ModelWrapValidatorHandler[Any]) -> Any:
        """Report unknown keys together with the errors of the known ones."""
        names = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = [key for key in value if key not in names] if isinstance(value, Mapping) else []
        if not unknown:
            return validate(value)
        label = f" of {value['name']!r}" if "name" in value else ""
        hints = "; ".join(
            f"unknown key {key!r}; {cls.expected_keys[key]}"
            if key in cls.expected_keys
            else _suggest(str(key), names)
            for key in unknown
        )
        reason = ValueError(f"{cls.label()}{label}: {hints}")
        errors = [InitErrorDetails(type="value_error", loc=(), input=None, ctx={"error": reason})]
        try:
            validate({key: content for key, content in value.items() if key in names})
        except ValidationError as error:
            suggested = {near for key in unknown for near in _nearest(str(key), names)}
            errors += [
                _again(content)
                for content in error.errors(include_url=False, include_input=False)
                if content["type"] != "missing" or suggested.isdisjoint(content["loc"])
            ]
        raise ValidationError.from_exception_data(cls.__name__, errors, hide_input=True)

    @classmethod
    def label(cls) -> str:
        """Return the name of the model in error messages."""
        return cls.__name__.lower()


@functools.cache
def _read_field_texts(module: str) -> Mapping[tuple[str, str], str]:
    """Return the text below each field of the classes of a module, by the names of class and field."""
    source = inspect.getsource(sys.modules[module])
    return {
        (model.name, field.target.id): " ".join(below.value.value.split())
        for model in ast.parse(source).body
        if isinstance(model, ast.ClassDef)
        for field, below in itertools.pairwise(model.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def refuse(model: type[BaseModel], texts: Iterable[str]) -> None:
    """Raise the problems of a model, if there are any.

    Raises:
        ValidationError: has an error for each of them.
    """
    problems = [PydanticCustomError("keys", "{message}", {"message": text}) for text in texts]
    if problems:
        errors = [InitErrorDetails(type=problem, loc=(), input=None) for problem in problems]
        raise ValidationError.from_exception_data(model.__name__, errors, hide_input=True)


def _again(error: ErrorDetails) -> InitErrorDetails:
    """Return an error of pydantic in the form in which it can be raised with others."""
    repeated = PydanticCustomError(error["type"], "{message}", {"message": error["msg"]})
    return InitErrorDetails(type=repeated, loc=error["loc"], input=None)


def _nearest(key: str, names: set[str]) -> list[str]:
    """Return the known key that was probably meant; an empty list if none is similar."""
    return difflib.get_close_matches(key, names, n=1)


def _suggest(key: str, names: set[str]) -> str:
    near = _nearest(key, names)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(sorted(names))}"
    return f"unknown key {key!r}; {hint}"
