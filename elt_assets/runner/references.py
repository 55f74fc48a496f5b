"""References in a config to values that are not in the YAML, and which of their values are secrets.

All of `runner` that starts programs replaces them (`config`, `environment`); `connection`,
`pipeline.connection_read`, `orchestration.partitions` and commands of `elt` look for them.

They are `{env: NAME}`, `{file: PATH}`, `{secret: NAME}`, and a text with Dagster's templates of variables,
`{{ env.NAME }}` and `{{ env('NAME', 'default') }}`. Any other template is a text for the connector.

First the rules by which a variable or a field may hold a credential, by its name or its value; then
`Reference`; then `resolve_references`, which replaces all of a config and collects their values.

A reference is read when a connector starts, and never when definitions are loaded. The function that reads
`{secret: …}` is the project's, by the setting `secrets`. It is called once for each name in a process, and
again after an hour: a code server lives for weeks, and a secret is renewed in that time.

Values of references are secrets, and so are environment variables and fields whose name or value looks like a
credential.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.secret_parts import CREDENTIAL
from elt_assets.protocol.specification import Place, types_at, unknown_fields
from elt_assets.settings import load_object, settings

RESERVED = re.compile("(ELT|DAGSTER)_.*")
"""Matches the names of this project's own variables and of Dagster's, which are reserved."""
ALLOWED = "ELT_ALLOW_REFERENCES"
"""The variable that lists the reserved names to which connections may refer."""

HIDDEN_ENDING = (
    r"(?i)(passw(or)?d|passphrase|passcode|(?<!by)(?<!com)pass|pwd|secret|token|credential|webhook(_?url)?"
    r"|(api|access|private|secret|signing|encryption)[_-]?key)s?$"
)
"""Pattern of the ends of names whose values are secret, also within one word: `DBPASS`, `clientSecret`."""
_ENDS_SECRET = re.compile(HIDDEN_ENDING)
_SECRET_NAME = re.compile(
    r"(?i)(.*_)?(SECRET|TOKEN|CREDENTIAL|CRED|SALT|PAT|DSN|JWT|APIKEY|WEBHOOK)S?(_.*)?"
    r"|(.*_)?(API|ACCESS|PRIVATE|SECRET)_KEYS?(_.*)?"
    r"|.*(PASSWORD|PASSWD|PASSPHRASE)S?(_.*)?"
    r"|.*_AUTH"
)
"""Matches names of variables that have a word of secrets."""
_SHELL_NAMES = ("PWD", "OLDPWD")
"""Variables of any shell, which end like those of secrets."""
_ACCESS_NAME = re.compile(
    r"(?i)(.*_)?(KEYS?|CONNECTION_STR(ING)?|COOKIES?)(_FILE|_PATH)?"
    r"|(.*_)?(DATABASE|DB|POSTGRES(QL)?|MYSQL|MONGO(DB)?|REDIS|AMQP|BROKER|WEBHOOK)_UR[IL]"
    r"|SSH_.*|GPG_.*|GNUPGHOME|KRB5.*|(GIT|SUDO)_ASKPASS|DBUS_SESSION_BUS_ADDRESS"
    r"|PGPASSFILE|PGSERVICEFILE|NETRC|KUBECONFIG|BOTO_CONFIG|AWS_CONFIG_FILE|CLOUDSDK_CONFIG|IDENTITY_HEADER"
    r"|DOCKER_CONFIG|(.*_)?AUTH_CONFIG"
)
"""Matches names of variables whose value gives access to a secret (a file, an agent, an address with a
password), or is often a secret itself."""
_SWITCH = re.compile("(?i:true|false|yes|no|on|off|null|none|)")
"""Matches values that reveal nothing, and that a log is full of."""
_HARMLESS = re.compile(
    r"(?i:true|false|yes|no|on|off|null|none|)"
    r"|[+-]?\d{1,5}(\.\d{1,5})?"  # a port, a number of rows
    r"|[a-z]{1,12}|[A-Z][a-z]{1,11}|[A-Z]{1,12}"  # info, production
    r"|https?://[A-Za-z0-9.-]+(:\d+)?/?"  # an origin; a path may be a webhook's
    r"|(/[A-Za-z0-9._-]{1,19})+/?"  # a path; a longer part may be a token
)
"""Matches the forms of values that are shown: a word, a short number, a path, the origin of a URL."""


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name has a secret value: API_KEY, PG_PASSWORD_2."""
    if name.upper() in _SHELL_NAMES:
        return False
    return bool(_SECRET_NAME.fullmatch(name) or _ENDS_SECRET.search(name))


def may_give_access(name: str, value: str) -> bool:
    """Return whether a variable may hold a credential or give access to one."""
    named = looks_secret(name) or _ACCESS_NAME.fullmatch(name)
    return bool(named or CREDENTIAL.search(value))


def secrets_in(name: str, value: str) -> list[str]:
    """Return a variable's value if it is secret or contains a secret; the mask finds its parts."""
    is_named = looks_secret(name) and not _SWITCH.fullmatch(value)
    return [value] if CREDENTIAL.search(value) or is_named else []


def secrets_in_declared(name: str, value: str) -> list[str]:
    """Return the value of a variable that a connection declares, unless it is known to be no secret: no
    list has all names of secrets, so only values of a harmless form are shown."""
    return secrets_in(name, value) or ([] if _HARMLESS.fullmatch(value) else [value])


def refuse_reserved(name: str, where: str) -> None:
    """Refuse a reference to a variable of this project or of Dagster, such as the salt of hashed fields.

    Args:
        where: the place of the reference, for the error.

    Raises:
        ConfigError: the variable is reserved and not listed in `ALLOWED`.
    """
    if RESERVED.fullmatch(name) and name not in re.split(r"[\s,]+", os.environ.get(ALLOWED, "")):
        raise ConfigError(
            f"{where} refers to the environment variable {name}; variables named ELT_… and DAGSTER_… "
            "are not passed to connectors",
            guidance=f"use a variable of another name, or set {ALLOWED}={name} where Dagster runs",
        )


MAX_BYTES = 1 << 20
"""Maximum size of a file that a reference names, in bytes."""
LITERAL = "literal"
"""Key of an object whose value is used as it is written: nothing in it is a reference."""
_TEMPLATE = re.compile(
    r"""\{\{-?\s*env(?:\.(?P<name>[A-Za-z_]\w*)|\(\s*(?P<quote>["'])(?P<quoted>[A-Za-z_]\w*)(?P=quote)"""
    r"""\s*(?:,\s*(?:(?P<mark>["'])(?P<text>[^"'\\]*)(?P=mark)|(?P<number>-?\d+(?:\.\d+)?))\s*)?\))\s*-?\}\}"""
)
"""Matches a template of a variable."""
_TEMPLATE_START = re.compile(r"\{\{-?\s*env\b")
_LIFETIME = 3600.0
"""How long a process uses a secret without calling the project's function again, in seconds."""
_UNREFERENCED = "write {literal: …} around the object if the connector gets it as it is"


@dataclass(frozen=True)
class Reference:
    """A reference to a value outside of the config."""

    scheme: str
    """The key: `env`, `file` or `secret`; or `template`."""
    name: str
    """The name of the variable or of the secret, the path of the file, or the text with templates."""

    @classmethod
    def parse(cls, value: Any) -> Reference | None:
        """Return the reference that a value of a config is; None if it is another value."""
        if isinstance(value, str):
            return cls("template", value) if _TEMPLATE.search(value) else None
        if not isinstance(value, Mapping) or len(value) != 1:
            return None
        [(scheme, name)] = value.items()
        return cls(scheme, name) if scheme in _SCHEMES and isinstance(name, str) else None

    def __str__(self) -> str:
        if self.scheme == "template":
            names = list(dict.fromkeys(self.variables))
            return f"the environment variable{'s'[: len(names) > 1]} {', '.join(names)}"
        return f"the {_SCHEMES[self.scheme][0]} {self.name}"

    @property
    def variables(self) -> list[str]:
        """The names of the environment variables that it refers to."""
        if self.scheme == "template":
            return [match["name"] or match["quoted"] for match in _TEMPLATE.finditer(self.name)]
        return [self.name] if self.scheme == "env" else []

    def read(self, where: str) -> tuple[Any, list[str]]:
        """Return the value, and the texts in it that are secret.

        The value is the text of a variable, a template or a file; or what a secret is, a text or another JSON
        value. The default value of a template is not secret.

        Args:
            where: the place of the reference, for the error.

        Raises:
            ConfigError: there is no such value, it cannot be read, or the variable is reserved. The error has
                the place and the reference, and no value.
            EltError: the project's function raised it.
        """
        if self.scheme == "template":
            return _fill_template(self.name, where)
        value = _SCHEMES[self.scheme][1](self.name, where)
        return value, [value if isinstance(value, str) else json.dumps(value)]


def walk_references(config: Any, where: str) -> Iterator[tuple[str, Reference]]:
    """Yield every reference in a config with its place; those inside `{literal: …}` are none.

    Args:
        where: the name of the config.
    """
    reference = Reference.parse(config)
    if reference is not None:
        yield where, reference
    elif isinstance(config, Mapping) and set(config) != {LITERAL}:
        for name, value in config.items():
            yield from walk_references(value, f"{where}.{name}")
    elif isinstance(config, list):
        for number, value in enumerate(config):
            yield from walk_references(value, f"{where}[{number}]")


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, except the names of properties."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def as_literal(value: Any) -> Any:
    """Return a value of a config that somebody else wrote: a connector gets it as it is.

    A default value of a specification may look like a reference, and would be given the secret that it names.
    """
    return {LITERAL: value} if _is_interpreted(value) else value


def _is_interpreted(value: Any) -> bool:
    """Return whether something in a value is a reference, a template or a literal."""
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        keys = {LITERAL, *_SCHEMES}
        return not keys.isdisjoint(value) or any(map(_is_interpreted, value.values()))
    return isinstance(value, list) and any(map(_is_interpreted, value))


def keep_file_field(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a config in which a lone field `file` stays what the connector gets.

    Many connectors have such a field, so a whole config is never a reference to a file.
    """
    value = config.get("file")
    is_field = set(config) == {"file"} and isinstance(value, str)
    return {"file": {LITERAL: value}} if is_field else config


def resolve_paths(config: Any, folder: Path) -> Any:
    """Return a config whose references to files have absolute paths; a relative path starts at the folder."""
    reference = Reference.parse(config)
    if reference is not None and reference.scheme == "file":
        return {"file": str(folder / Path(reference.name).expanduser())}
    if isinstance(config, Mapping) and set(config) != {LITERAL}:
        return {name: resolve_paths(value, folder) for name, value in config.items()}
    if isinstance(config, list):
        return [resolve_paths(value, folder) for value in config]
    return config


def has_other_template(text: str) -> bool:
    """Return whether a text has a template of a variable in a form that is not supported."""
    return _TEMPLATE_START.search(_TEMPLATE.sub("", text)) is not None


def _fill_template(text: str, where: str) -> tuple[str, list[str]]:
    secrets = []

    def read(match: re.Match[str]) -> str:
        name = match["name"] or match["quoted"]
        default = match["text"] if match["text"] is not None else match["number"]
        if default is not None and name not in os.environ:
            refuse_reserved(name, where)
            return default
        secrets.append(_read_variable(name, where))
        return secrets[-1]

    return _TEMPLATE.sub(read, text), secrets


def _read_variable(name: str, where: str) -> str:
    refuse_reserved(name, where)
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(
            f"{where} refers to the environment variable {name}, which is not set",
            guidance=f"set {name} where Dagster runs, or write another name after `env:`",
        )
    return value


def _read_file(name: str, where: str) -> str:
    """Return the text of a file, without the line break at its end."""
    path = Path(name)
    try:
        if path.exists() and not path.is_file():
            raise _unreadable_file(name, where, "it is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _unreadable_file(name, where, f"it has more than {MAX_BYTES >> 20} MiB")
        text = content.decode()
    except UnicodeDecodeError:
        raise _unreadable_file(name, where, "it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a path"
        raise _unreadable_file(name, where, str(reason)) from None
    return text.removesuffix("\n").removesuffix("\r")


def _unreadable_file(name: str, where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{where} refers to the file {name}, which cannot be read: {reason}",
        guidance="create the file where Dagster runs, or write another path after `file:`; a relative path "
        f"starts at the folder of defs.yaml; {_UNREFERENCED}",
    )


_secrets: dict[tuple[str, str], tuple[float, Any]] = {}
"""The secrets that were read, by function and name, with the time of the call."""
_lock = threading.Lock()
"""Held during a call, so that two connectors that start at the same time make one call."""


def _read_secret(name: str, where: str) -> Any:
    function = settings().secrets
    if function is None:
        raise ConfigError(
            f"{where} refers to the secret {name}, but the project names no function that reads secrets",
            guidance='set `secrets = "package.module:function"` in [tool.elt] (docs/projects.md); '
            f"{_UNREFERENCED}",
        )
    with _lock:
        called, value = _secrets.get((function, name), (None, None))
        if called is None or time.monotonic() - called > _LIFETIME:
            value = _call(function, name, where)
            _secrets[function, name] = time.monotonic(), value
        return value


def _call(function: str, name: str, where: str) -> Any:
    read = load_object("the setting `secrets`", function)
    try:
        value = read(name)
    except EltError as error:
        error.message = f"{where} refers to the secret {name}: {error.message}"
        raise
    except Exception as error:  # noqa: BLE001 - any, of the project's function
        # The text of the error may contain the secret.
        raise ConfigError(
            f"{where} refers to the secret {name}, and {function} raised a {type(error).__name__}",
            guidance=f"call {function} with this name outside of Dagster to see its error, and correct it",
        ) from None
    if value is None:
        raise ConfigError(
            f"{where} refers to the secret {name}, and {function} has no secret of this name",
            guidance=f"create the secret, or write another name after `secret:`; {_UNREFERENCED}",
        )
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(
            f"{where} refers to the secret {name}, for which {function} returned a {type(value).__name__}",
            guidance="return a text, or a mapping, list, number or boolean as in JSON",
        ) from None


_SCHEMES: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "env": ("environment variable", _read_variable),
    "file": ("file", _read_file),
    "secret": ("secret", _read_secret),
}
"""What a reference of each scheme names, and how its value is read."""


def resolve_references(
    config: Any, *, where: str = "config", schema: Any = None
) -> tuple[Any, list[str]]:
    """Replace every reference by its value, and every `{literal: value}` by its value.

    Args:
        where: the name of the config in errors.
        schema: a `connectionSpecification`. Where it allows no string, a text is parsed as JSON.

    Returns:
        The resolved config, and the texts of the values of references.

    Raises:
        ConfigError: a value is missing, is reserved, or does not have a type that the schema allows. The
            message has the reference and its place, but no value.
    """
    types = {
        place: allowed for place, value, allowed in types_at(config, schema) if is_reference(value)
    }
    if () in types:
        types[()] = types[()] or {"object"}  # as the config of every connector is
    return _resolve_value(config, (), where, types)


def is_reference(value: Any) -> bool:
    """Return whether a value of a config is a reference, also by a template."""
    return Reference.parse(value) is not None


def list_unknown_fields(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return the warnings of `unknown_fields`; none if the whole config is a reference."""
    return [] if is_reference(config) else unknown_fields(config, schema)


def refuse_reserved_references(config: Any, where: str) -> None:
    """Refuse references to reserved variables, without reading anything that is referred to.

    Args:
        where: the name of the config in errors.

    Raises:
        ConfigError: as for `refuse_reserved`.
    """
    for place, reference in walk_references(config, where):
        for name in reference.variables:
            refuse_reserved(name, place)


def _resolve_value(
    config: Any, place: Place, where: str, types: Mapping[Place, set[str]]
) -> tuple[Any, list[str]]:
    reference = Reference.parse(config)
    if reference is not None:
        content, secrets = reference.read(where)
        value = convert_type(content, types[place], str(reference), where)
        return value, _secret_texts(value, secrets)
    if isinstance(config, Mapping):
        if set(config) == {LITERAL}:
            return config[LITERAL], []
        pairs = {
            k: _resolve_value(v, (*place, k), f"{where}.{k}", types) for k, v in config.items()
        }
        return {k: v[0] for k, v in pairs.items()}, [s for v in pairs.values() for s in v[1]]
    if isinstance(config, list):
        items = [
            _resolve_value(v, (*place, i), f"{where}[{i}]", types) for i, v in enumerate(config)
        ]
        return [v[0] for v in items], [s for v in items for s in v[1]]
    return config, []


def convert_type(content: Any, types: Collection[str], name: str, where: str) -> Any:
    """Return what a reference names as a value of one of the given JSON types.

    A value is returned unchanged if `types` is empty. Where strings are allowed, a text is returned
    unchanged, and another value becomes its JSON text, unless its own type is allowed too.

    Args:
        content: a text, or another JSON value.
        name: the reference, for the error.
        where: the place of the reference, for the error.

    Raises:
        ConfigError: the value has none of these types.
    """
    if not types or (isinstance(content, str) and "string" in types):
        return content
    value = _parse(content) if isinstance(content, str) else content
    if _json_types(value) & set(types):
        return value
    if "string" in types:
        return json.dumps(content)
    expected = " or ".join(sorted(types))
    raise ConfigError(
        f"{where} must be of type {expected}, but the value of {name} is not",
        guidance=f"set {name} to a JSON value of type {expected}",
    )


def _parse(text: str) -> Any:
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        return text


def _json_types(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"} if math.isfinite(value) else set()
    names = {dict: "object", list: "array", str: "string", type(None): "null"}
    return {names[type(value)]}


def _secret_texts(value: Any, secrets: list[str]) -> list[str]:
    """Return the texts of a referenced value that are secret; none for true, false and null."""
    if value is None or isinstance(value, bool):
        return []
    return [*secrets, *strings(value)] if secrets and isinstance(value, (dict, list)) else secrets
