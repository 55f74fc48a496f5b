"""Names and values as parts of SQL."""

from __future__ import annotations

from collections.abc import Iterable


def quote_name(*parts: str) -> str:
    """Return the quoted name of a column, or of a table with its schema."""
    return ".".join('"{}"'.format(part.replace('"', '""')) for part in parts)


def quote_text(text: str) -> str:
    """Return a literal, which is read in the same way whatever `standard_conforming_strings` is."""
    return "E'{}'".format(text.replace("\\", "\\\\").replace("'", "''"))


def quote_texts(texts: Iterable[str]) -> str:
    """Return an array of texts."""
    return f"ARRAY[{', '.join(map(quote_text, texts))}]::text[]"
