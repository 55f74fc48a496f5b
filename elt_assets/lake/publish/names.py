"""Names of the lake's tables in catalogs, which fold letter case, and refuse characters, lengths and words.

Followers name the tables with it that they make known (`followers`).

A name is never changed in a way that could make two tables one: letters are folded to lower case where the
catalog does it too (in the lake, names that differ in case only are the same), and everything else that a
catalog refuses is an error that says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from elt_assets.errors import ConfigError

_VARIABLE = re.compile(r"\{(\w*)\}")
_VARIABLES = ("connection", "namespace")
_TRIMMED = "_- "


class RefusedTable(ConfigError):
    """A catalog cannot have a table, because of its name or of its place; so it has none."""


@dataclass(frozen=True)
class NameRules:
    """What one kind of catalog accepts as the name of a namespace or a table."""

    catalog: str
    """The kind, as messages call it."""
    pattern: str
    """Regular expression that a whole name matches."""
    characters: str
    """What `pattern` accepts, in words."""
    longest: int
    """Maximum number of characters."""
    is_folded: bool = False
    """Whether the catalog stores names in lower case."""
    has_levels: bool = False
    """Whether a namespace may have several levels."""
    reserved: frozenset[str] = frozenset()
    """Words that are no names there, in lower case."""


_WORD, _WORD_TEXT = r"[a-z0-9_]+", "the letters a to z, digits and underscores"
_VISIBLE, _VISIBLE_TEXT = r"[^\x00-\x20./\x7f]+", "all characters but dots, slashes and spaces"
_DEFAULT = NameRules("the catalog", _VISIBLE, _VISIBLE_TEXT, 255, has_levels=True)
_RULES: Mapping[str, NameRules] = {
    "glue": NameRules("Glue", _WORD, _WORD_TEXT, 255, is_folded=True),
    "hive": NameRules("the Hive Metastore", _WORD, _WORD_TEXT, 128, is_folded=True),
    "unity": NameRules(
        "Unity Catalog",
        _VISIBLE,
        _VISIBLE_TEXT,
        255,
        is_folded=True,
        reserved=frozenset({"information_schema"}),
    ),
    "bigquery": NameRules("BigQuery", r"\w+", "letters, digits and underscores", 1024),
    "dynamodb": NameRules("the DynamoDB catalog", _VISIBLE, _VISIBLE_TEXT, 255),
}
"""The rules by the kind of catalog, as the settings name it (`type`). Another kind accepts what all do."""


def rules_of(kind: str) -> NameRules:
    """Return the rules of a kind of catalog."""
    return _RULES.get(kind, _DEFAULT)


def find_kind(properties: Mapping[str, Any]) -> str:
    """Return the kind of an Iceberg catalog by its properties, as pyiceberg does: `rest`, `sql`, `glue` etc.

    A property that is a reference is not read.
    """
    if isinstance(properties.get("type"), str):
        return str(properties["type"]).lower()
    scheme = urlsplit(str(properties.get("uri", ""))).scheme.lower()
    if scheme == "thrift":
        return "hive"
    return "sql" if scheme.startswith(("sqlite", "postgresql")) else "rest"


def iceberg_identifier(
    kind: str, template: str, connection: str, levels: Sequence[str]
) -> tuple[str, ...]:
    """Return the name of a table in an Iceberg catalog: the levels of its namespace, and its own.

    Args:
        template: that of the namespace.
        levels: the path of the table below the root of the lake.

    Raises:
        ConfigError: the catalog refuses the name.
    """
    what = f"the table {'.'.join(levels)}"
    namespace = namespace_levels(kind, template, connection, levels[:-1], what)
    return (*namespace, catalog_name(kind, levels[-1], what))


def catalog_name(kind: str, name: str, what: str) -> str:
    """Return a name as a catalog has it.

    Args:
        kind: the kind of catalog: `glue`, `hive`, `unity` …
        what: what has the name, for the error: `the table shop.users`.

    Raises:
        ConfigError: the catalog refuses the name; says why, and which key names it otherwise.
    """
    rules = rules_of(kind)
    folded = name.lower() if rules.is_folded else name
    if not re.fullmatch(rules.pattern, folded):
        reason = f"its names have {rules.characters}"
    elif len(folded) > rules.longest:
        reason = (
            f"its names have at most {rules.longest} characters, and this one has {len(folded)}"
        )
    elif folded.lower() in rules.reserved:
        reason = "the word is reserved there"
    else:
        return folded
    raise RefusedTable(
        f"{rules.catalog} refuses the name {name!r} of {what}: {reason}",
        guidance="write another name: `table` of the stream, or `prefix` of the connection, for a table; the "
        "template of the namespace in [tool.elt] for a namespace; or leave the table out there",
    )


def namespace_levels(
    kind: str, template: str, connection: str, above: Sequence[str], what: str
) -> tuple[str, ...]:
    """Return the levels of a table's namespace in a catalog.

    `{connection}` stands for the connection's name, and `{namespace}` for the levels above the table in the
    lake, joined by `_`: the `namespace` of the connection, and that of the stream if it has one. Without
    `{namespace}`, the stream's own is added at the end, since two of them may have tables of one name.

    Args:
        above: the levels above the table in the lake, of which the first is the connection's `namespace`.
        what: as for `catalog_name`.

    Raises:
        ConfigError: the template has another variable, or the catalog refuses the name.
    """
    names = _VARIABLE.findall(template)
    unknown = [name for name in names if name not in _VARIABLES]
    if unknown:
        raise ConfigError(
            f"the template {template!r} of a namespace has the variable {{{unknown[0]}}}",
            guidance="its variables are {connection} and {namespace}",
        )
    values = {"connection": connection, "namespace": "_".join(above)}
    text = _VARIABLE.sub(lambda match: values[match[1]], template)
    own = above[1:] if "namespace" not in names else ()
    levels = [level.strip(_TRIMMED) for level in "_".join([text, *own]).split(".")]
    levels = [level for level in levels if level] or ["default"]
    rules = rules_of(kind)
    if len(levels) > 1 and not rules.has_levels:
        raise RefusedTable(
            f"{rules.catalog} has namespaces of one level, and that of {what} has {len(levels)}: "
            f"{'.'.join(levels)}",
            guidance="write a template without dots",
        )
    return tuple(catalog_name(kind, level, f"the namespace of {what}") for level in levels)
