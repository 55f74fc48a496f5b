"""The config of the command that runs, as it is now: what the source changes in it is saved.

A token endpoint that replaces a refresh token makes the former one invalid. From its answer on, the new token
exists in this process alone, so it is on its way to who saves it before it is used: the reader of the
messages (CONTROL), or the file of a tap's config. What is saved is the written config with the new value in
the place of the old one, so a source need not say where its token is from. A value that was masked is never
saved: the credential would be lost.

Spec: AirbyteControlConnectorConfigMessage.
Tests: `tests/connectors/test_saved_config.py`, `tests/connectors/test_helpdesk.py`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from copy import deepcopy
from typing import TYPE_CHECKING, Any, SupportsIndex

from connectors.sdk.reports import CONFIGS, WARNINGS, hold_value
from elt_assets.errors import SystemFailure
from elt_assets.protocol.specification import is_mask

if TYPE_CHECKING:
    from pydantic import BaseModel  # a source that uses models imports it itself


class SavedConfig:
    """The config of a command: `values` are those that were written, with all changes so far."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._successors: dict[str, str] = {}

    def latest(self, secret: str) -> str:
        """Return the secret that has replaced another one, at once or after several; itself if none has."""
        while secret in self._successors:
            secret = self._successors[secret]
        return secret

    def replace(self, former: str, secret: str) -> None:
        """Save a secret in all places of another one."""
        self._successors.pop(secret, None)  # an endpoint may return to an earlier one
        self._successors[former] = secret
        changed = _replace_text(self.values, former, secret)
        if changed == self.values:
            WARNINGS.send(
                "the API has replaced a token, and no field of the config has the former one: the new token "
                "is not saved, so the next sync may be refused; let a field of the config have only the token"
            )
        else:
            self.report(changed)

    def report(self, values: Mapping[str, Any]) -> None:
        """Save the whole config after a change; nothing is done if there is none.

        Raises:
            SystemFailure: a mask stands in the place of a value.
        """
        if values == self.values:
            return
        for place in _find_masks(values, self.values):
            raise SystemFailure(
                f"the changed config is not saved: it has a mask, and not the value, at config.{place}",
                guidance="pass the model of the config to `report_config`, and not a dump of it; or assign "
                "the new value to the field of the config",
            )
        self.values = deepcopy(dict(values))
        CONFIGS.send(values)


_CURRENT: ContextVar[SavedConfig | None] = ContextVar("saved_config", default=None)


def hold_config() -> AbstractContextManager[None]:
    """Let a command have a config that is saved while the context is open."""
    return hold_value(_CURRENT, SavedConfig())


def begin_config(values: dict[str, Any]) -> None:
    """Take notice of the config of the command, as it was written."""
    if (current := _CURRENT.get()) is not None:
        current.values = deepcopy(values)


def report_config(config: Mapping[str, Any] | BaseModel) -> None:
    """Save the whole config after a change, such as a new password. A refresh token that an API replaces, and
    a value that is assigned to a field of the config's model, are saved without it.

    Args:
        config: the config; or its model, whose secrets are then saved as they are.

    Raises:
        SystemFailure: a mask stands in the place of a value.
    """
    current = _CURRENT.get() or SavedConfig()
    current.report(config if isinstance(config, Mapping) else _values_of(config, current.values))


def replace_secret(former: str, secret: str) -> None:
    """Save a secret that replaces another one, wherever the config has that one."""
    if (current := _CURRENT.get()) is not None:
        current.replace(former, secret)


def latest_secret(secret: str) -> str:
    """Return the secret that another client of the command has got in place of this one; or this one."""
    current = _CURRENT.get()
    return secret if current is None else current.latest(secret)


def save_assignments(config: BaseModel) -> None:
    """Let each value that is assigned to a field of a config, or of a model in it, be saved at once."""

    def report() -> None:
        report_config(config)

    for model in _models_in(config):
        is_saving = model.__class__ is not type(model)  # it is in the config twice
        if not is_saving and not model.model_config.get("frozen"):
            model.__class__ = _make_saving(type(model), report)


def _make_saving(kind: type[BaseModel], report: Callable[[], None]) -> type[BaseModel]:
    def assign(self: BaseModel, name: str, value: Any) -> None:
        kind.__setattr__(self, name, value)
        if name in kind.model_fields:
            report()

    def reduce(self: BaseModel, _: SupportsIndex) -> tuple[Any, ...]:
        return _make_empty, (kind,), self.__getstate__()

    # To the author it is an object of the author's class, also where models are compared.
    names: dict[str, Any] = {"__module__": kind.__module__, "__class__": property(lambda _: kind)}
    names |= {"__setattr__": assign, "__reduce_ex__": reduce}
    saving: type[BaseModel] = types.new_class(
        kind.__name__, (kind,), {}, lambda body: body.update(names)
    )
    return saving


def _make_empty(kind: type[BaseModel]) -> BaseModel:
    """Return an object of an author's class without values, for one that is unpickled."""
    return kind.__new__(kind)


def _models_in(value: Any) -> Iterator[BaseModel]:
    """Yield the models in a value, those inside of others first."""
    if isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, dict):
        parts = [*value.values()]
    else:
        parts = [*vars(value).values()] if hasattr(value, "model_fields_set") else []
    for part in parts:
        yield from _models_in(part)
    if hasattr(value, "model_fields_set"):
        yield value


def _values_of(model: BaseModel, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with the fields of its model that were written or assigned, as JSON has them."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - a source with a model has imported it

    dumped = model.model_dump(by_alias=True, exclude_unset=True)
    changes: dict[str, Any] = to_jsonable_python(_reveal(dumped))
    return merge_objects(values, changes)


def _reveal(value: Any) -> Any:
    """Return a value with the texts of its secrets."""
    if isinstance(value, dict):
        return {name: _reveal(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_reveal(part) for part in value]
    reveal = getattr(value, "get_secret_value", None)
    return value if reveal is None else reveal()


def merge_objects(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with changes to it, at any depth."""
    result = dict(values)
    for name, value in changes.items():
        inner = result.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            result[name] = merge_objects(inner, value)
        else:
            result[name] = value
    return result


def _replace_text(value: Any, former: str, text: str) -> Any:
    """Return a JSON value with a text in all places of another one."""
    if isinstance(value, Mapping):
        return {name: _replace_text(part, former, text) for name, part in value.items()}
    if isinstance(value, list):
        return [_replace_text(part, former, text) for part in value]
    return text if value == former else value


def _find_masks(values: Any, before: Any) -> Iterator[str]:
    """Yield the places of masks that were not there before."""
    if isinstance(values, str) and values != before and is_mask(values):
        yield ""
    parts = values.items() if isinstance(values, Mapping) else ()
    if isinstance(values, list):
        parts = enumerate(values)  # type: ignore[assignment]
    for name, part in parts:
        inner = None
        if isinstance(before, Mapping):
            inner = before.get(name)
        elif isinstance(before, list) and isinstance(name, int) and name < len(before):
            inner = before[name]
        for place in _find_masks(part, inner):
            yield f"{name}.{place}".rstrip(".")
