"""Reading of the YAML files of components, within the limits, with errors that quote no text of the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from elt_assets.connection.yaml_limits import FAST_LOADER, check_limits
from elt_assets.errors import ConfigError

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
