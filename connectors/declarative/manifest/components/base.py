"""The base class of components, and the meaning of the types of their fields.

The annotations of the fields are the schema of manifests. A field may have these types, or a union of them:

- `Template`: a text that is evaluated; `TemplateMap`: a mapping or list of such texts at any depth
- a component class: a mapping whose `type` is that class; `Usual[X]`: a mapping without `type`, too
- `str`, `int`, `float`, `bool`, `Literal`: a plain value
- `tuple[X, ...]` and `Mapping[str, X]`: a list and a mapping; `Any`: a value that is taken as it is
- `None`: the field may be left out
- `Unsupported`: a field that Airbyte's engine knows and this one does not
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from elt_assets.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


C = TypeVar("C")
Json = Mapping[str, Any]
"""A mapping that is taken as it is, such as a JSON schema."""
USUAL, UNSUPPORTED = "usual", "unsupported"
Usual = Annotated[C, USUAL]
"""The component class of a mapping without `type`, where several classes may stand."""
Unsupported = Annotated[Any, UNSUPPORTED]
"""A field whose use refuses the streams that use it."""


@dataclass_transform(
    kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(field,)
)
class _Declared:
    """Makes each class that is derived from it a dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)


class Component(_Declared):
    """The base class of components. Two components are equal only if they are the same object."""

    type_name: ClassVar[str] = ""
    """The `type` in manifests, where it is not the name of the class."""
    has_type: ClassVar[bool] = True
    """Whether mappings in manifests have a `type`. Parameters are no values of fields of those without."""
    is_supported: ClassVar[bool] = True
    """False for a component that Airbyte's engine knows and this one does not."""

    place: str = ""
    """The path in the manifest, such as "streams[0].retriever.requester"."""
    parameters: Json = field(default_factory=dict)
    """The `$parameters` that apply, those of the components around it included."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.place or 'no place'}>"


class Custom(Component):
    """The base class of components that a Python class implements, which Airbyte's engine runs."""

    class_name: str
    """The class with its module, such as "source_x.components.Extractor"."""

    def refusal(self) -> ConfigError:
        """Return the error for a component that the engine of this project cannot run."""
        return ConfigError(
            f"{self.place} is implemented in Python, by {self.class_name!r}",
            guidance="run the manifest on Airbyte's engine, or use one without it",
        )
