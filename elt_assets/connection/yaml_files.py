"""Reading of the YAML files of components, within limits, with errors that quote no text of the file.

Used by `places`, `overlays` and `files`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from elt_assets.errors import ConfigError
from elt_assets.paths import DEFINITION_FILE

MAX_VALUES = 500_000
"""Maximum number of values in a file; what an alias repeats counts again each time."""
MAX_DEPTH = 100
"""Maximum depth of values in values, also behind aliases."""
COMPONENT_FILES = (DEFINITION_FILE, "defs.yml", "component.yaml")
FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Several times faster, where PyYAML has the one in C."""


def check_limits(path: Path) -> None:
    """Check that a file, with all its aliases replaced by what they repeat, is within the limits.

    A small file can stand for a document of any size, because an alias repeats what its anchor has, aliases
    included. The parser's events have neither this size nor this depth yet, so they are counted on them,
    before the file is loaded.

    Raises:
        ConfigError: it is not.
        yaml.YAMLError: it is not YAML.
        UnicodeDecodeError: it is not UTF-8 text.
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8") as file:
        problem = _problem(file)
    if problem is not None:
        raise ConfigError(
            f"{path} cannot be loaded: it {problem}",
            guidance="write what is needed without these aliases or levels, or split the file",
        )


def _problem(file: IO[str]) -> str | None:
    """Return what exceeds a limit; None if nothing does."""
    size = _Size()
    for event in yaml.parse(file, FAST_LOADER):
        if isinstance(event, yaml.AliasEvent) and event.anchor not in size.anchored:
            return f"has the alias *{event.anchor} without a complete value before it"
        size.count_event(event)
        if size.values > MAX_VALUES:
            return f"stands for more than {MAX_VALUES:,} values"
        if len(size.outer) + size.depth > MAX_DEPTH:
            return f"has values in values more than {MAX_DEPTH} levels deep"
    return None


class _Size:
    """Number of values and depth of the collection that the parser is in."""

    def __init__(self) -> None:
        self.anchored: dict[str, tuple[int, int]] = {}
        self.outer: list[tuple[str | None, int, int]] = []
        self.anchor: str | None = None
        self.values = self.depth = 0

    def count_event(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.CollectionStartEvent):
            self.outer.append((self.anchor, self.values, self.depth))
            self.anchor, self.values, self.depth = event.anchor, 1, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            inner = self.anchor, self.values, self.depth + 1
            self.anchor, self.values, self.depth = self.outer.pop()
            self._add(*inner)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(event.anchor, 1, 1)
        elif isinstance(event, yaml.AliasEvent):
            self._add(None, *self.anchored[str(event.anchor)])

    def _add(self, anchor: str | None, values: int, depth: int) -> None:
        if anchor is not None:
            self.anchored[anchor] = values, depth
        self.values, self.depth = self.values + values, max(self.depth, depth)


YAML_ERRORS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError)
"""The errors of PyYAML for a file; the last four for a value that is not of the type that its tag names, and
for a number or text that Python cannot hold."""
_COMPONENT_KEYS = ("type", "attributes", "template_vars_module", "requirements", "post_processing")
"""The keys of a component in Dagster."""


def read_documents(path: Path) -> list[Any]:
    """Return the YAML documents of a file.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: the file exceeds a limit, cannot be read, or is not valid.
    """
    with _open_yaml(path) as file:
        return list(yaml.load_all(file, _Loader))


def read_components(path: Path) -> list[Mapping[str, Any]]:
    """Return the documents of a file from which Dagster loads components.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: see `read_documents` and `check_components`.
    """
    documents = read_documents(path)
    check_components(path, documents)
    return documents


def check_components(path: Path, documents: Sequence[Any]) -> None:
    """Check that each document of a file is a component for Dagster, whose own error would quote values.

    Raises:
        ConfigError: one is not.
    """
    for number, document in enumerate(documents or [None], 1):
        place = f"{path}: document {number}" if len(documents) > 1 else str(path)
        if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
            raise ConfigError(
                f"{place} is not a component: it has no `type`",
                guidance="begin it with `type: elt_assets.ConnectionComponent`; remove a `---` after which "
                "nothing follows",
            )
        unknown = ", ".join(map(str, document.keys() - set(_COMPONENT_KEYS)))
        if unknown:
            raise ConfigError(
                f"{place}: unknown keys beside `attributes`: {unknown}",
                guidance=f"the keys are {', '.join(_COMPONENT_KEYS)}; those of a connection are written "
                "below `attributes`",
            )


def describe_unreadable(path: Path, error: OSError) -> ConfigError:
    """Return the error for a file that cannot be read."""
    return ConfigError(
        f"{path} cannot be read: {error.strerror}",
        guidance="make it a file that the user of this process can read",
    )


@contextlib.contextmanager
def _open_yaml(path: Path) -> Iterator[IO[str]]:
    """Open a YAML file within the limits, and report the errors of its parser.

    The parser gets the file and not its text: otherwise its errors would quote lines of the text.
    """
    try:
        check_limits(path)
        with path.open(encoding="utf-8") as file:
            yield file
    except FileNotFoundError:
        raise
    except YAML_ERRORS as error:
        raise ConfigError(
            f"{path} is not valid YAML: {error}",
            guidance=f"correct the syntax; the file must be UTF-8 text{_explain_tag(str(error))}",
        ) from error
    except OSError as error:
        raise describe_unreadable(path, error) from error


def _explain_tag(error: str) -> str:
    """Return what to add if YAML took an operator of `filter` for one of its own signs."""
    is_operator = any(sign in error for sign in ("2002:value'", "'!='", "block scalar"))
    return '; write an operator in quotes, as operator: "="' if is_operator else ""


class _Loader(FAST_LOADER):  # type: ignore[misc]
    """YAML loader that, like Dagster's, reads a date as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
