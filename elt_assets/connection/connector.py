"""Models of `source` and `destination` in `defs.yaml`: a connector, its config and its process.

`pipeline.connectors` makes connectors of them that can run; `connection`, `files`, `overlays`,
`orchestration.translator`, `elt new` and `elt test-connector` use them too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from elt_assets.connection.config_model import ConfigModel, reject_unknown_keys
from elt_assets.errors import ConfigError
from elt_assets.runner.container import ContainerOptions
from elt_assets.runner.kinds import KINDS, check_references
from elt_assets.runner.packages import Installation, check_python
from elt_assets.runner.references import (
    has_other_template,
    is_reference,
    keep_file_field,
    resolve_paths,
    walk_references,
)
from elt_assets.runner.source_kind import SourceKind

FOLDER = "folder"
"""Key of the validation context: the folder of `defs.yaml`."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRUSTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*|https?://[^\s/?#@]+")
"""Pattern of what a manifest may use: the name of a Python module, or the URL of an origin."""


def check_trusted_name(name: str) -> str:
    """Return a name of `trust` unchanged, if it is valid.

    Raises:
        ValueError: it is neither the name of a module nor the URL of an origin.
    """
    if not _TRUSTED.fullmatch(name):
        raise ValueError(
            f"{name!r} is neither the name of a Python module, as source_x.components, nor the URL of an "
            "origin, as https://files.example.com"
        )
    return name


TrustedName = Annotated[str, AfterValidator(check_trusted_name)]


def _check_variables(variables: Any) -> Any:
    """Check an environment, which is a mapping of names to values or a list of names, and return it."""
    if not isinstance(variables, (Mapping, list)):
        raise ValueError(  # noqa: TRY004 - pydantic reports ValueError
            "write `NAME: value` for each variable, or a list of the variables to pass on"
        )
    for name in variables:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name of an environment variable")
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        is_plain = not isinstance(value, bool) and isinstance(value, (str, int, float))
        if not (is_plain or is_reference(value)):
            raise ValueError(
                f"{name} must be a text, a number, or a reference: `{{env: OTHER}}`, `{{file: PATH}}`, "
                "`{secret: NAME}`; write true and false in quotes"
            )
    return variables


def _reject_templates(config: Any) -> Any:
    """Reject templates of environment variables that nothing replaces, because they have another form."""
    if (place := _find_template(config)) is not None:
        raise ValueError(
            f"{place[1:] or 'the value'}: write the template of a variable as `{{{{ env.NAME }}}}` or "
            "`{{ env('NAME', 'default') }}`; write `{literal: …}` for a text that is used unchanged"
        )
    return config


def _find_template(value: Any) -> str | None:
    """Return the path of the first text with such a template; None if there is none."""
    if isinstance(value, str):
        return "" if has_other_template(value) else None
    inner: Any = ()
    if isinstance(value, Mapping) and set(value) != {"literal"}:
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    paths = ((name, _find_template(content)) for name, content in inner)
    return next((f".{name}{place}" for name, place in paths if place is not None), None)


Variables = Annotated[
    dict[str, Any] | list[str],
    BeforeValidator(_check_variables),
    BeforeValidator(_reject_templates),
]


_KNOWN_INSTALLATION = BeforeValidator(
    reject_unknown_keys(Installation, python="write it beside the package, not in `install`")
)
_KNOWN_OPTIONS = BeforeValidator(reject_unknown_keys(ContainerOptions))


class _Connector(ConfigModel):
    """A connector of exactly one kind, with its config and the settings of its process."""

    kinds: ClassVar[Sequence[SourceKind]]
    expected_keys = {  # noqa: RUF012 - a constant
        "user": "a connector cannot run as another user of this machine: remove the key; to keep a connector "
        "from the files and processes of Dagster's user, run it in a container, by `image` "
        "(docs/security.md)"
    }

    config: Annotated[dict[str, Any], BeforeValidator(_reject_templates)] = Field(
        default_factory=dict
    )
    """Config of the connector, which its own specification describes. A secret is written as `{env:
    NAME}`."""
    environment: Variables | None = None
    """Environment variables of the connector's process: values by their names, or a list of names to
    pass on."""
    install: Annotated[Installation, _KNOWN_INSTALLATION] | None = None
    """How uv installs the package of the connector."""
    python: Annotated[str, BeforeValidator(check_python)] | None = None
    """Python of the environment of a `package` or `tap`: a version, as `"3.12"`, or the path of an
    interpreter; default: the Python that runs Dagster."""
    container: Annotated[ContainerOptions, _KNOWN_OPTIONS] | None = None
    """How the container of an `image` is run."""
    trust: Annotated[list[TrustedName], Field(min_length=1)] | None = None
    """Python modules, and origins of URLs, that a `manifest` may use."""
    slices: bool = True
    """Whether tasks on Spark read streams that have slices, and not the connector's process."""
    engine: Literal["airbyte", "ours"] | None = None
    """What runs a `manifest`; default: `ours`, unless it needs the other."""

    @field_validator("install")
    @classmethod
    def _resolve_lock_file(
        cls, installation: Installation | None, info: ValidationInfo
    ) -> Installation | None:
        """Resolve a relative path of a lock file from the folder of `defs.yaml`."""
        folder = (info.context or {}).get(FOLDER)
        if installation is None or installation.lock_file is None or folder is None:
            return installation
        path = Path(folder) / installation.lock_file
        if not path.is_file():
            raise ValueError(f"lock_file: there is no file {path}")
        return dataclasses.replace(installation, lock_file=path)

    @model_validator(mode="after")
    def _check_one_kind(self) -> _Connector:
        keys = [kind.key for kind in self.kinds]
        present = [key for key in keys if getattr(self, key) is not None]
        if len(present) != 1:
            raise ValueError(
                f"{self.label()}: write exactly one of {', '.join(keys)}; "
                f"given: {', '.join(present) or 'none'}"
            )
        for place, _ in walk_references(self.value, self.kind):
            raise ValueError(
                f"{place}: a template of a variable is replaced only in `config` and `environment`"
            )
        return self

    @model_validator(mode="after")
    def _check_kind(self, info: ValidationInfo) -> _Connector:
        """Resolve a relative path of the kind from the folder of `defs.yaml`, and refuse now what would be
        refused when the connector starts."""
        kind, folder = KINDS[self.kind], (info.context or {}).get(FOLDER)
        self.config = dict(keep_file_field(self.config))
        if folder is not None:
            setattr(self, self.kind, kind.resolve(self.value, Path(folder)))
            if self.python is not None and "/" in self.python:
                self.python = str(Path(folder) / Path(self.python).expanduser())
            self.config = resolve_paths(self.config, Path(folder))
            if isinstance(self.environment, dict):
                self.environment = {
                    name: resolve_paths(value, Path(folder))
                    for name, value in self.environment.items()
                }
        try:
            kind.check(self.value)
        except ConfigError as error:
            raise ValueError(f"{kind.key}: {error.message}; {error.guidance}") from None
        options = ("install", "python", "container", "trust", "engine")
        present = {option for option in options if getattr(self, option) is not None}
        if misplaced := kind.find_misplaced(self.value, present):
            raise ValueError(misplaced)
        try:
            check_references(self.config, self.environment)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.guidance}") from None
        return self

    @property
    def installation(self) -> Installation | None:
        """The options for installing the package of the connector, with its Python; None for the defaults."""
        if self.python is None:
            return self.install
        return dataclasses.replace(self.install or Installation(), python=self.python)

    @property
    def kind(self) -> str:
        """Key of the connector's kind."""
        return next(kind.key for kind in self.kinds if getattr(self, kind.key) is not None)

    @property
    def value(self) -> Any:
        """Value under the key of the kind."""
        return getattr(self, self.kind)


def _describe(kind: SourceKind) -> str:
    """Return what the values of a kind name, from its examples."""
    text = "; or ".join(meaning for _, meaning in kind.examples)
    return f"{text[:1].upper()}{text[1:]}."


def _add_kind_fields(model: type[_Connector]) -> type[_Connector]:
    """Return the model with an optional field for the key of each of its kinds."""
    fields: dict[str, Any] = {
        kind.key: (kind.value_type | None, Field(default=None, description=_describe(kind)))
        for kind in model.kinds
    }
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


@_add_kind_fields
class Source(_Connector):
    """The source of the records: exactly one kind of connector, and its config."""

    kinds = tuple(KINDS.values())


@_add_kind_fields
class Destination(_Connector):
    """The destination of the records instead of the lake: exactly one kind of connector, and its config."""

    kinds = tuple(kind for kind in KINDS.values() if kind.is_destination)
