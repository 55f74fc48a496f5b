"""The base class of components, and the meaning of the types of their fields.

The annotations of the fields are the schema of manifests. A field may have these types, or a union of them:

- `Template`: a text that is evaluated; `TemplateMap`: a mapping or list of such texts at any depth
- a component class: a mapping whose `type` is that class; `Usual[X]`: a mapping without `type`, too
- `Annotated[X, "Y"]`: X, or a component of the type Y, which only Airbyte's engine builds: those in Python
  (`Custom…`), and those that at most five of 501 published manifests have. In a `TemplateMap`, a value is Y
- `str`, `int`, `float`, `bool`, `Literal`: a plain value
- `tuple[X, ...]` and `Mapping[str, X]`: a list and a mapping; `Any`: a value that is taken as it is
- `None`: the field may be left out
- `Unsupported`: a field that Airbyte's engine knows and this one does not
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


C = TypeVar("C")
Json = Mapping[str, Any]
"""A mapping that is taken as it is, such as a JSON schema."""
USUAL, UNSUPPORTED = object(), object()
Usual = Annotated[C, USUAL]
"""The component class of a mapping without `type`, where several classes may stand."""
Unsupported = Annotated[Any, UNSUPPORTED]
"""A field whose use refuses the streams that use it."""


# For mypy, which does not see that derived classes are frozen as well.
@dataclass_transform(
    kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(msgspec.field,)
)
class Component(msgspec.Struct, frozen=True, kw_only=True, eq=False, tag=True):
    """The base class of components. Two components are equal only if they are the same object.

    The tag of a class is the `type` of its mappings in manifests; it is the name of the class, if the class
    sets no other. Mappings of a class with `tag=False` have no `type`, and parameters are no values of their
    fields.
    """

    place: str = ""
    """The path in the manifest, such as "streams[0].retriever.requester"."""
    parameters: Json = {}
    """The `$parameters` that apply, those of the components around it included."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.place or 'no place'}>"

    @classmethod
    def has_type(cls) -> bool:
        """Return whether mappings of the class have a `type` in manifests."""
        return cls.__struct_config__.tag is not None
