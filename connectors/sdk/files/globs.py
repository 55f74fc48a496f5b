"""Glob patterns over paths of a store, with `/` between folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from elt_assets.errors import ConfigError

_WILD = "*?[{"


@dataclass(frozen=True)
class Glob:
    """A pattern.

    Attributes:
        folder: the longest folder that all its paths are in; empty for the location itself.
        is_deep: whether paths may be in folders of that folder.
    """

    folder: str
    is_deep: bool
    _regex: re.Pattern[str]

    def matches(self, path: str) -> bool:
        """Return whether a path, relative to the location, matches."""
        return self._regex.fullmatch(path) is not None


def parse_glob(pattern: str) -> Glob:
    """Return a pattern, whose wildcards match no name that starts with a point, an underscore or a tilde:
    these are files that a program is about to write (`_temporary/`), or has for itself (`.crc`, `_SUCCESS`,
    `~$book.xlsx`). `**` also stands for folders whose names are empty, which keys of stores may have.

    Raises:
        ConfigError: the pattern has an unfinished part, or leaves the location.
    """
    names = pattern.split("/")
    if pattern.startswith("/") or ".." in names:
        raise ConfigError(
            f"the glob {pattern!r} is not below the location",
            guidance="write it relative to the location",
        )
    # File systems do not list a folder whose name is empty.
    ends = (n for n, name in enumerate(names[:-1]) if not name or _is_wild(name))
    depth = next(ends, len(names) - 1)
    try:
        regex = re.compile("".join(_translate(names)), re.DOTALL)
    except re.error:
        raise ConfigError(
            f"the glob {pattern!r} cannot be read", guidance="close its brackets"
        ) from None
    is_deep = depth < len(names) - 1 or names[-1] == "**"
    return Glob("/".join(names[:depth]), is_deep, regex)


def _is_wild(name: str) -> bool:
    return any(character in name for character in _WILD)


def _translate(names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        is_last = number == len(names) - 1
        if name == "**":
            parts.append(r"(?:(?:[^._~/][^/]*)?/)*" + (r"[^._~/][^/]*" if is_last else ""))
        else:
            parts.append(_translate_name(name) + ("" if is_last else "/"))
    return parts


def _translate_name(name: str) -> str:
    guard = r"(?![._~])" if name[:1] in _WILD else ""
    result, position, depth = [guard], 0, 0
    while position < len(name):
        character = name[position]
        position += 1
        if character == "*":
            result.append("[^/]*")
        elif character == "?":
            result.append("[^/]")
        elif character == "[":
            end = name.find("]", position + 1)
            if end < 0:
                raise re.error("an open bracket")
            inner = name[position:end].replace("\\", r"\\")
            result.append("[^" + inner[1:] + "]" if inner[0] == "!" else f"[{inner}]")
            position = end + 1
        elif character == "{":
            depth += 1
            result.append("(?:")
        elif character == "}" and depth:
            depth -= 1
            result.append(")")
        elif character == "," and depth:
            result.append("|")
        else:
            result.append(re.escape(character))
    return "".join(result)
