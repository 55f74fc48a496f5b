"""XML bodies as JSON values: the names of elements are the names of fields.

The attributes of an element are fields whose names begin with "@". Its text is the value, or the field
"#text" beside attributes and elements. Elements of the same name form a list. Names keep the prefix of their
namespace.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

MAX_DEPTH = 500


class BadXml(ValueError):
    """A text that is not well-formed XML, or that declares entities."""


def xml_value(content: bytes, encoding: str | None = None) -> dict[str, Any]:
    """Return the document as an object with one field, which is named as the outermost element.

    Args:
        content: the document.
        encoding: the encoding that the response names; None if the document names its own.

    Raises:
        BadXml: the document is not well-formed, or declares entities: they can make a small document a
            large one.
    """
    builder = _Builder()
    if encoding is not None:
        try:
            content, encoding = content.decode(encoding).encode(), "utf-8"
        except (UnicodeError, LookupError) as error:
            raise BadXml(str(error)) from None
    parser = expat.ParserCreate(encoding)
    parser.ordered_attributes = True
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.EntityDeclHandler = _refuse_entity
    try:
        parser.Parse(content, True)
    except (
        expat.ExpatError,
        LookupError,
        ValueError,
    ) as error:  # of the encoding in its first line too
        raise BadXml(str(error)) from None
    return builder.root


class _Builder:
    """Builds the value from the events of the parser."""

    def __init__(self) -> None:
        self.root: dict[str, Any] = {}
        self._open: list[tuple[dict[str, Any], list[str]]] = [(self.root, [])]
        """The fields and the texts of each element that is open."""

    def start(self, name: str, attributes: list[str]) -> None:
        if len(self._open) > MAX_DEPTH:
            raise BadXml(f"elements are nested more than {MAX_DEPTH} deep")
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        self._open.append(({f"@{key}": value for key, value in pairs}, []))

    def text(self, text: str) -> None:
        self._open[-1][1].append(text)

    def end(self, name: str) -> None:
        fields, texts = self._open.pop()
        text = "".join(texts).strip()
        value: Any = fields
        if not fields:
            value = text or None
        elif text:
            fields["#text"] = text
        parent = self._open[-1][0]
        if name not in parent:
            parent[name] = value
        elif isinstance(parent[name], list):
            parent[name].append(value)
        else:
            parent[name] = [parent[name], value]


def _refuse_entity(*_: object) -> None:
    raise BadXml("it declares entities")
