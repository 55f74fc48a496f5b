"""Adapters of components in Python outside of requests: routers, states, schemas and configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from connectors.declarative.cursors.cursor import State
from connectors.declarative.cursors.older_states import Migration
from connectors.declarative.cursors.routers.router import Partition, Router, Routing
from connectors.declarative.cursors.slices import Option, Slice, SliceValues
from connectors.declarative.custom.implementation import Implementation
from connectors.declarative.requests.options import DATA, HEADER, JSON, PARAMETER
from elt_assets.errors import ConfigError, EltError

_METHODS = {
    PARAMETER: "get_request_params",
    HEADER: "get_request_headers",
    DATA: "get_request_body_data",
    JSON: "get_request_body_json",
}


class PythonRouter(Router):
    """The partition router that a class implements. Its partitions are known when all of them are listed."""

    must_list = True

    def __init__(self, made: Implementation):
        self.place = made.place
        self.names = [frozenset()]
        self._made = made
        self._methods = {where: name for where, name in _METHODS.items() if made.has(name)}

    def begin(self, state: State | None) -> Routing:
        del state
        return _PythonRouting(self._made)

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        each = SliceValues(Slice(partition))
        for where, method in self._methods.items():
            found = self._made.call(
                method, stream_state={}, stream_slice=each, next_page_token=None
            )
            for name, value in found.items() if isinstance(found, Mapping) else ():
                if value is not None and value != "":
                    yield Option(where, (str(name),), value)

    def has_options(self) -> bool:
        return bool(self._methods)


class _PythonRouting(Routing):
    """The partitions of one read."""

    def __init__(self, made: Implementation):
        super().__init__()
        self._made = made

    def items(self) -> Iterator[Partition]:
        for each in self._made.items("stream_slices"):
            if not isinstance(each, Mapping):
                raise ConfigError(
                    f"{self._made.place}: {self._made.name}.stream_slices gives {type(each).__name__}",
                    guidance="yield mappings, such as StreamSlice(partition={…}, cursor_slice={})",
                )
            values = getattr(each, "partition", each)
            yield Partition(dict(values), dict(getattr(each, "extra_fields", None) or {}))


def migration(made: Implementation) -> Migration:
    """Return the function that changes old states."""

    def migrate(state: State) -> State:
        if not made.call("should_migrate", state):
            return state
        return dict(made.call("migrate", state))

    return migrate


def schema(made: Implementation) -> Callable[[], Mapping[str, Any]]:
    """Return the function that returns a JSON schema."""
    return lambda: dict(made.call("get_json_schema"))


def config_change(made: Implementation) -> Callable[[MutableMapping[str, Any]], None]:
    """Return the function that changes a config in place."""
    return lambda config: made.call("transform", config)


def validation(made: Implementation) -> Callable[[Any], None]:
    """Return the function that checks a value; it raises ConfigError."""

    def validate(value: Any) -> None:
        check = made.bound("validate")
        try:
            check(value)
        except EltError:
            raise
        except ValueError as error:
            raise ConfigError(
                f"{made.place}: {error}", guidance="correct the value in the config"
            ) from error
        except Exception as error:
            raise made.failure("validate", error) from error

    return validate
