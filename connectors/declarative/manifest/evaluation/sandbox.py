"""The Jinja environment of templates: the CDK's functions and filters, and what a template can reach.

A manifest may come from anywhere, and the values that it handles come from an API. A template therefore
cannot reach private attributes, and cannot change what it was given. An evaluation that loops or calls
functions for longer than `MAX_SECONDS` ends. What it needs of memory is limited for the whole process, by
`connectors.sdk.limits.limit_memory`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.nativetypes import NativeCodeGenerator
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment, modifies_known_mutable
from jinja2.visitor import NodeTransformer

from connectors.declarative.manifest.evaluation.functions import FILTERS, FUNCTIONS
from connectors.declarative.manifest.evaluation.literals import literal, no_warnings
from connectors.sdk.limits import MEMORY_VARIABLE

MAX_SECONDS = 10.0
"""Processor time of an evaluation. It is checked when a loop begins, and when a function is called."""
MAX_BITS = 20_000
"""The size of the largest power: to compute one takes any time, in which nothing is checked."""

_LOOP, _CONSTANT = "_check_loop", "_constant"
_MAX_SEARCHED = 100_000
"""Number of values of the variables among which a value is searched for."""
_READING = frozenset({"get", "items", "keys", "values", "split", "join", "strftime", "replace"})
"""Methods that change nothing, whatever has them: the ones that manifests call most."""


class LimitExceeded(SecurityError):
    """The template does more than a template may. The message names no value."""


class _Evaluation(threading.local):
    """The evaluation that this thread is doing: when it must end, and its variables."""

    end: float = math.inf
    variables: Mapping[str, Any] | None = None
    is_protected: bool = True


_evaluation = _Evaluation()


@contextmanager
def limit_evaluation(variables: Mapping[str, Any]) -> Iterator[None]:
    """Limit the time of an evaluation, and protect its variables from changes."""
    _evaluation.end = time.thread_time() + MAX_SECONDS
    _evaluation.variables = variables
    try:
        yield
    except MemoryError:
        raise LimitExceeded(
            f"it needs more memory than this process may use, which {MEMORY_VARIABLE} sets"
        ) from None
    finally:
        _evaluation.variables = None


@contextmanager
def allow_changes() -> Iterator[None]:
    """Let templates of this thread change their variables, which must be copies."""
    _evaluation.is_protected = False
    try:
        yield
    finally:
        _evaluation.is_protected = True


def _check_time() -> None:
    if time.thread_time() > _evaluation.end:
        raise LimitExceeded(f"it takes more than {MAX_SECONDS:g} s of processor time")


def _check_loop(items: Any) -> Any:
    """Return what a loop runs over. What has no length may never end, so each item of it is checked."""
    _check_time()
    return items if hasattr(items, "__len__") else _check_items(items)


def _check_items(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _check_time()
        yield item


class _Loops(NodeTransformer):
    """Puts the check of the time at the loops of a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - the name that Jinja calls
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _LOOP, [], [], None, None, lineno=node.lineno)
        return node


class Environment(SandboxedEnvironment):
    """The sandbox. A template may change a list or a mapping only if it made it itself."""

    intercepted_binops = frozenset({"**"})

    def __init__(self) -> None:
        super().__init__()
        self.filters.update(FILTERS)
        self.filters[_LOOP] = _check_loop
        self.globals.update(FUNCTIONS)
        del self.globals["range"], self.globals["lipsum"]

    def parse(
        self, source: str, name: str | None = None, filename: str | None = None
    ) -> nodes.Template:
        """Return the syntax tree of a template."""
        with no_warnings():  # texts such as "\\s", which regular expressions contain
            tree = super().parse(source, name, filename)
        checked: nodes.Template = _Loops().visit(tree).set_environment(self)
        return checked

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return False for private attributes and for methods that change what the template was given.

        `_partition` is the one exception: a slice of the CDK has it, and a manifest reads it.
        """
        if attr == "_partition":
            return True
        if not super().is_safe_attribute(obj, attr, value):
            return False
        return (
            attr in _READING or not modifies_known_mutable(obj, attr) or not _is_variable_part(obj)
        )

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: PYI063
        """Call a function or a method, if there is time."""
        _check_time()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute a power, if it is not too large."""
        if (
            isinstance(left, int)
            and isinstance(right, int)
            and left.bit_length() * right > MAX_BITS
        ):
            raise LimitExceeded("it computes a number that is too large")
        return super().call_binop(context, operator, left, right)


def _is_variable_part(searched: Any) -> bool:
    """Return True if a value is part of the variables of the template, or may be."""
    if not _evaluation.is_protected:
        return False
    if _evaluation.variables is None:
        return True
    waiting, number = list(_evaluation.variables.values()), 0
    while waiting:
        value = waiting.pop()
        number += 1
        if value is searched or number > _MAX_SEARCHED:
            return True
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            waiting.extend(value)
    return False


class _Written(NodeTransformer):
    """Keeps what the text of a template has as a number, list or other literal apart from texts."""

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802 - the name that Jinja calls
        self.generic_visit(node)
        node.nodes = [_keep_literal(part) for part in node.nodes]
        return node


def _keep_literal(part: nodes.Expr) -> nodes.Expr:
    value = literal(part.data) if isinstance(part, nodes.TemplateData) else None
    if isinstance(part, nodes.Const):
        value = part.value
    elif value is None or str(value) != part.data.strip():  # type: ignore[attr-defined]
        return part
    if isinstance(value, str):
        return part
    constant = nodes.Const(value, lineno=part.lineno)
    return nodes.Filter(constant, _CONSTANT, [], [], None, None, lineno=part.lineno)


@pass_context
def _constant(_context: Context, value: Any) -> Any:
    """Return a value. Jinja does not evaluate a filter with a context while it compiles, and so does not join
    the value with the texts beside it."""
    return value


class ValueEnvironment(Environment):
    """The sandbox of templates whose pieces are wanted as values, and not as their texts."""

    code_generator_class = NativeCodeGenerator
    concat = staticmethod(lambda pieces: "".join(map(str, pieces)))

    def __init__(self) -> None:
        super().__init__()
        self.filters[_CONSTANT] = _constant

    def parse(
        self, source: str, name: str | None = None, filename: str | None = None
    ) -> nodes.Template:
        tree = super().parse(source, name, filename)
        changed: nodes.Template = _Written().visit(tree).set_environment(self)
        return changed


ENVIRONMENT = Environment()
VALUES = ValueEnvironment()
