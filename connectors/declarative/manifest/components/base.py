"""The base class of components, and the meaning of the types of their fields.

The annotations of the fields are the schema of manifests. A field may have these types, or a union of them:

- `Template`: a text that is evaluated; `TemplateMap`: a mapping or list of such texts at any depth
- a component class: a mapping whose `type` is that class
- `str`, `int`, `float`, `bool`, `Literal`: a plain value
- `tuple[X, ...]` and `Mapping[str, X]`: a list and a mapping; `Any`: a value that is taken as it is
- `None`: the field may be left out
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from elt_assets.errors import ConfigError

Json = Mapping[str, Any]
"""A mapping that is taken as it is, such as a JSON schema."""

INFERRED = "inferred"


def inferred(type_name: str) -> dict[str, str]:
    """Return the metadata of a field whose mappings need no `type`, because it is known."""
    return {INFERRED: type_name}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Component:
    """The base class of components. Two components are equal only if they are the same object.

    Attributes:
        type_name: the `type` in manifests, where it is not the name of the class.
        has_type: whether mappings in manifests have a `type`. Parameters are not values of fields of those
            that have none.
        place: the path in the manifest, such as "streams[0].retriever.requester".
        parameters: the `$parameters` that apply, those of the components around it included.
    """

    type_name: ClassVar[str] = ""
    has_type: ClassVar[bool] = True

    place: str = ""
    parameters: Json = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.place or 'no place'}>"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Custom(Component):
    """The base class of components that a Python class implements.

    Attributes:
        class_name: the class with its module, such as "source_x.components.Extractor".
        options: the other fields; mappings with a known `type` are components, all else is as written.
    """

    class_name: str
    options: Json = field(default_factory=dict)

    def refuse(self) -> NoReturn:
        """Raise the error for a class that is not trusted."""
        raise ConfigError(
            f"{self.place} is implemented in Python, by {self.class_name!r}",
            guidance="name its module as trusted, or use a manifest without it",
        )
