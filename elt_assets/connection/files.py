"""The two files of a connection, `defs.yaml` and `catalog.json`: loading and saving."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from elt_assets.connection.models import FOLDER, Connection
from elt_assets.connection.yaml_limits import check_limits, component_files
from elt_assets.errors import ConfigError
from elt_assets.paths import DEFINITION_FILE
from elt_assets.protocol.airbyte.catalog import Catalog

CATALOG_FILE = "catalog.json"
COMPONENT = "elt_assets.ConnectionComponent"
"""The value of `type` in `defs.yaml`."""
YAML_ERRORS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError)
"""The errors of PyYAML for a file; the last four for a value that is not of the type that its tag names, and
for a number or text that Python cannot hold."""


def load_connection(folder: Path) -> Connection:
    """Read `<folder>/defs.yaml`.

    Raises:
        ConfigError: the file is missing, not YAML, or not a connection; names the file and the field.
    """
    path = folder / DEFINITION_FILE
    try:
        with _open_yaml(path) as file:
            document = yaml.load(file, _Loader)  # noqa: S506 - a subclass of SafeLoader
    except FileNotFoundError:
        names = sorted(p.parent.name for p in folder.parent.glob(f"*/{DEFINITION_FILE}"))
        raise ConfigError(
            f"there is no connection {folder.name!r}: {path} does not exist",
            guidance=f"known connections: {', '.join(names)}" if names else None,
        ) from None
    if not isinstance(document, Mapping) or document.get("type") != COMPONENT:
        raise ConfigError(
            f"{path} is not a connection", guidance=f"begin the file with `type: {COMPONENT}`"
        )
    return parse_connection(document.get("attributes"), path)


def check_components(folder: Path) -> None:
    """Check that each file below a folder from which Dagster may load a component can be read.

    Raises:
        ConfigError: a file cannot be read, or is not YAML.
    """
    for path in component_files(folder):
        with contextlib.suppress(FileNotFoundError), _open_yaml(path) as file:
            for _ in yaml.load_all(file, _Loader):
                pass


@contextlib.contextmanager
def _open_yaml(path: Path) -> Iterator[IO[str]]:
    """Open a YAML file within the limits, and report the errors of its parser.

    The parser gets the file and not its text: otherwise its errors would quote lines of the text.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: the file exceeds a limit, cannot be read, or is not valid.
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
        raise _unreadable(path, error) from error


def _explain_tag(error: str) -> str:
    """Return what to add if YAML took an operator of `filter` for one of its own signs."""
    is_operator = any(sign in error for sign in ("2002:value'", "'!='", "block scalar"))
    return '; write an operator in quotes, as operator: "="' if is_operator else ""


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be read: {error.strerror}",
        guidance="make it a file that the user of this process can read",
    )


def parse_connection(attributes: Any, path: Path) -> Connection:
    """Return the connection that the attributes of the file `path` describe.

    Raises:
        ConfigError: the attributes are not valid. The error lists every problem, and quotes no value, since a
            value may be a secret.
    """
    if not isinstance(attributes, Mapping):
        raise ConfigError(
            f"{path}: `attributes` is missing",
            guidance="write `attributes` with `name`, `source` and `streams`",
        )
    try:
        return Connection.model_validate(attributes, context={FOLDER: path.parent})
    except ValidationError as error:
        lines = [
            f"  - {_place(_find_yaml_path(problem, attributes), attributes)}"
            f"{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigError(
            f"{path} is not valid:\n" + "\n".join(lines),
            guidance="correct each of these places; docs/connections.md lists the keys",
        ) from None


class _Loader(yaml.SafeLoader):
    """YAML loader that, like Dagster's, reads a date as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _find_yaml_path(error: ErrorDetails, attributes: Any) -> list[str | int]:
    """Return the path of an error in the YAML: without the names that pydantic gives the kinds of a value."""
    path, value = [], attributes
    for number, part in enumerate(error["loc"], 1):
        is_missing = error["type"] == "missing" and number == len(error["loc"])
        if isinstance(value, Mapping) and part not in value and not is_missing:
            continue
        path.append(part)
        is_list = isinstance(value, list) and isinstance(part, int)
        value = value[part] if is_list else value.get(part) if isinstance(value, Mapping) else None
    return path


def _place(path: Sequence[str | int], attributes: Mapping[str, Any]) -> str:
    """Return the prefix of an error message: the place in the YAML, with the name of the stream."""
    steps, words = list(path), []
    if len(steps) > 1 and steps[0] == "streams":
        settings = attributes["streams"][steps[1]]
        name = settings.get("name") if isinstance(settings, Mapping) else None
        words = [f"stream {name!r}: "] if name is not None else [f"streams[{steps[1]}]: "]
        steps = steps[2:]
    return "".join([*words, f"{'.'.join(map(str, steps))}: " if steps else ""])


def load_catalog(folder: Path) -> Catalog:
    """Read the `catalog.json` of a connection, which `elt discover` writes.

    Raises:
        ConfigError: the file is missing, cannot be read, or is not a catalog.
    """
    path = folder / CATALOG_FILE
    remedy = f"write it with `elt discover {folder.name}`"
    try:
        return Catalog.from_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", guidance=remedy) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a valid catalog: {error}", guidance=remedy) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def save_catalog(folder: Path, catalog: Catalog) -> Path:
    """Write the `catalog.json` of a connection atomically, and return its path.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = folder / CATALOG_FILE
    draft = path.with_name(f".{CATALOG_FILE}.{secrets.token_hex(8)}")
    text = json.dumps(json.loads(catalog.to_json()), indent=2, ensure_ascii=False)
    try:
        try:
            draft.write_text(f"{text}\n", encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            guidance=f"make the folder {folder} writable, and make room on the disk",
        ) from error
    return path
