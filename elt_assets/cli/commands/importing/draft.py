"""A connection as `elt import` writes it: its schedule as cron has it, and its files.

First the conversion of schedules to cron expressions of five fields; then `ConnectionDraft`, which the
imports from Airbyte and Meltano fill in, `Remainder`, which tells what they did not take, and `write_drafts`;
`import_` reads the documents, and writes the connections.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from elt_assets.cli.commands.new.connection import new_folder
from elt_assets.cli.commands.new.source import replace_secrets
from elt_assets.cli.lookup import read_text
from elt_assets.connection import DEFINITION_FILE, Connection, parse_connection, save_catalog
from elt_assets.connection.default_attributes import document
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import Catalog
from elt_assets.protocol.specification import Place, is_mask
from elt_assets.runner.references import is_reference, looks_secret, may_give_access
from elt_assets.settings import project
from elt_assets.storage.folders import replace_text

_BASIC = re.compile(
    r"(?:every\s+)?(?P<units>\d+)\s*(?P<unit>minute|hour|day|week)s?", re.IGNORECASE
)
_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_QUARTZ_FIELDS = (6, 7)
_ONLY_QUARTZ = re.compile(r"[LW#]|\d+C")


def convert_interval(text: str) -> str | None:
    """Return the cron expression of an interval: `@daily`, or as it is; None if it has no counterpart."""
    if text.lower() in _NAMES:
        return _NAMES[text.lower()]
    return text if len(text.split()) == 5 else None


def convert_basic(text: str) -> str | None:
    """Return the cron expression of `Every 6 hours`; None if cron has none with equal intervals."""
    match = _BASIC.fullmatch(text.strip())
    if match is None:
        return None
    units, unit = int(match["units"]), match["unit"].lower()
    if unit == "hour" and units and units % 24 == 0:
        units, unit = units // 24, "day"
    if unit == "minute" and units and 60 % units == 0:
        return "0 * * * *" if units == 60 else f"*/{units} * * * *"
    if unit == "hour" and units and 24 % units == 0:
        return f"0 */{units} * * *" if units > 1 else "0 * * * *"
    if units == 1:
        return {"day": "0 0 * * *", "week": "0 0 * * 0"}.get(unit)
    return None


def convert_quartz(text: str) -> str | None:
    """Return the cron expression of a Quartz expression; None if it has no counterpart.

    Quartz has seconds before and a year behind the fields of cron, and counts the days of the week from 1.
    """
    fields = text.split()
    if (
        len(fields) not in _QUARTZ_FIELDS
        or not fields[0].isdigit()
        or fields[6:] not in ([], ["*"])
    ):
        return None
    minute, hour, day, month, weekday = fields[1:6]
    if _ONLY_QUARTZ.search(day) or _ONLY_QUARTZ.search(re.sub("[A-Z]{3}", "", weekday.upper())):
        return None
    if not re.search("[A-Za-z]", weekday):
        weekday = re.sub(r"(?<![/\d])\d+", lambda number: str(int(number.group()) - 1), weekday)
    return " ".join([minute, hour, *(field.replace("?", "*") for field in (day, month, weekday))])


Json = dict[str, Any]
ENV_EXAMPLE = ".env.example"


@dataclass
class ConnectionDraft:
    """A connection as it will be written."""

    name: str
    origin: str  # what it was imported from, for the comment at the head of its file
    source: Json  # the kind of its connector, and other keys of `source`, without the config
    config: Json = field(default_factory=dict)  # the config, whose secrets are references
    streams: list[Json] = field(default_factory=list)  # the settings of its streams
    settings: Json = field(default_factory=dict)  # other keys of the connection
    # The field that is read from each environment variable.
    variables: dict[str, str] = field(default_factory=dict)
    untranslated: list[str] = field(default_factory=list)  # what has no counterpart, one line each
    catalog: Catalog | None = None

    def hide_secrets(
        self, config: Json, name: str, is_secret: Callable[[str], bool] = looks_secret
    ) -> None:
        """Take a config, with references in place of its secrets.

        Args:
            name: what the names of the variables begin with.
            is_secret: tells by the name of a field whether its value is secret.
        """
        places = list(_secrets(config, is_secret))
        self.config, variables = replace_secrets(config, places, name)
        self.variables |= variables

    def document(self) -> Json:
        """Return the content of `defs.yaml`."""
        content = document(self.name, {**self.source, "config": self.config}, self.streams)
        streams = content["attributes"].pop("streams")
        content["attributes"] |= {**self.settings, "streams": streams}
        return content

    def text(self) -> str:
        """Return the text of `defs.yaml`; a comment lists what was not translated."""
        head = [f"Imported from {self.origin}."]
        head += ["It has no counterpart here:"] if self.untranslated else []
        head += [f"- {' '.join(line.split())}" for line in self.untranslated]
        comment = "".join(f"# {line}\n" for line in head)
        return comment + yaml.safe_dump(self.document(), sort_keys=False, allow_unicode=True)


class Remainder:
    """The values of an object that have not been taken, so that none is dropped silently.

    Args:
        values: the object.
        place: its path, for messages.
    """

    def __init__(self, values: Any, place: str):
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"{place} is not an object",
                guidance="write the whole document as the program wrote it",
            )
        self._values = dict(values)
        self._place = place

    def take(self, *names: str) -> Any:
        """Return the value of the first of these names that has one, and take all; None if none has."""
        values = [self._values.pop(name, None) for name in names]
        return next((value for value in values if value is not None), None)

    def describe_rest(self, without_effect: Collection[str] = ()) -> Iterator[str]:
        """Yield a line for each value that was not taken; a line has no value, which may be a secret."""
        for name, value in self._values.items():
            if name not in without_effect and value not in (None, [], {}, "", False):
                yield f"{self._place}.{name}"


def write_drafts(drafts: Sequence[ConnectionDraft]) -> Path | None:
    """Write the files of all connections, or of none, and the names of their variables.

    Returns:
        The file with the names of the variables; None if there are no variables.

    Raises:
        ConfigError: a connection cannot be loaded, its folder exists, or a file cannot be written.
    """
    names = [draft.name for draft in drafts]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"several connections would have the name {', '.join(repeated)}",
            guidance="give them names that differ in letters and digits, and import again",
        )
    folders = [new_folder(name) for name in names]
    for draft, folder in zip(drafts, folders, strict=True):
        attributes = draft.document()["attributes"]
        parse_connection(attributes, folder / DEFINITION_FILE, Connection)
    try:
        for draft, folder in zip(drafts, folders, strict=True):
            folder.mkdir(parents=True)
            (folder / DEFINITION_FILE).write_text(draft.text(), encoding="utf-8")
            if draft.catalog is not None:
                save_catalog(folder, draft.catalog)
        return _list_variables(drafts)
    except BaseException as error:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConfigError(
                f"the connections cannot be written: {error.strerror or error}",
                guidance="make room on the disk and check the permissions; nothing was kept",
            ) from error
        raise


def _list_variables(drafts: Sequence[ConnectionDraft]) -> Path | None:
    variables = {name: place for draft in drafts for name, place in draft.variables.items()}
    if not variables:
        return None
    path = (project() or Path.cwd()) / ENV_EXAMPLE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    listed = {line.partition("=")[0].strip(" #") for line in text.splitlines()}
    lines = [f"{name}=\n" for name in sorted(variables) if name not in listed]
    separator = "\n" if text and not text.endswith("\n") else ""
    replace_text(path, text + separator + "".join(lines))
    return path


def read_document(path: Path, parse: Callable[[str], Any]) -> Any:
    """Return the content of a file.

    Raises:
        ConfigError: the file cannot be read or parsed. The error quotes nothing of it.
    """
    text = read_text(path, str(path), "correct the path")
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path} is not JSON: {error.msg} at line {error.lineno}",
            guidance="save the answer of Airbyte's API as it is",
        ) from None
    except (yaml.YAMLError, RecursionError):
        raise ConfigError(f"{path} is not valid YAML", guidance="correct the syntax") from None


def make_plain_name(text: str) -> str:
    """Return a name that a connection can have."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_").lower() or "imported"


def _secrets(
    config: Any, is_secret: Callable[[str], bool], place: Place = ()
) -> Iterator[tuple[Place, Any]]:
    entries = config.items() if isinstance(config, Mapping) else enumerate(config)
    for name, value in entries:
        inner = (*place, name)
        if isinstance(value, str):
            named = next((str(step) for step in reversed(inner) if isinstance(step, str)), "")
            if is_mask(value) or is_secret(named) or may_give_access(named, value):
                yield inner, value
        elif isinstance(value, (Mapping, list)) and not is_reference(value):
            yield from _secrets(value, is_secret, inner)
