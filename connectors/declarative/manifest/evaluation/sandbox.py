"""The Jinja environment of templates: the CDK's functions and filters, and limits on what a template can do.

A manifest may come from anywhere, and the values that it handles come from an API. A template therefore
cannot reach private attributes, cannot change what it was given, and cannot use much time or memory: a loop
runs over at most `MAX_ITEMS` items, an evaluation makes at most `MAX_STEPS` steps, and no text or collection
that it builds is larger than `MAX_SIZE`. The time of regular expressions counts as steps.

The size of a collection is that of its text, because a list may contain another one twice, which contains
another one twice, and so on. It is checked wherever a template puts a value into another one: in lists,
tuples and mappings that it writes, and in the arguments of calls and filters.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from itertools import chain, islice
from typing import Any

from jinja2 import Environment as PlainEnvironment
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import SandboxedEnvironment, modifies_known_mutable
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from connectors.declarative.manifest.evaluation.functions import FILTERS, FUNCTIONS
from connectors.declarative.manifest.evaluation.literals import no_warnings

MAX_ITEMS = 10_000
MAX_STEPS = 100_000
MAX_SIZE = 10_000_000
MAX_WIDTH = 10_000
"""The largest number that may set the width of a text."""
MAX_BITS = 20_000

_ITEMS = "_limited_items"
_JOINED = "_joined"
_CHECKED = "_checked"
_WIDE = re.compile(r"\d{5}|\*")
_PERCENT = re.compile(r"%[^a-zA-Z%]*")
_BRACES = re.compile(r"\{[^{}]*:(?:[^{}]*\d{5}|[^{}]*\{)")
_COLLECTIONS: tuple[type[Any], ...] = (
    dict,
    list,
    tuple,
    set,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
_SIZED: tuple[type[Any], ...] = (str, *_COLLECTIONS)
_WITH_PARTS = (*_COLLECTIONS, Namespace)
_SURROUNDINGS = (Context, EvalContext, PlainEnvironment)
"""The types of the argument that some filters get before the value."""
_SIZE_OF_A_STEP = 1000
_PARTS_OF_A_STEP = 100
_TEXT_FILTERS = frozenset(
    {"string", "tojson", "pprint", "hash", "hmac", "urlencode", "format", "xmlattr"}
)
_REPEATING_FILTERS = frozenset({"replace", "regex_replace", "wordwrap", "indent", "urlize"})
_PATTERN_FILTERS = frozenset({"regex_search", "regex_replace"})
_STEPS_OF_A_SECOND = 20_000
_READING = frozenset({"get", "items", "keys", "values", "split", "join", "strftime", "replace"})
"""Methods that change nothing, whatever has them: the ones that manifests call most."""
_BYTES_METHODS = frozenset({"decode", "hex"})
_WIDTH_METHODS = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})
_WIDTH_FILTERS = frozenset(
    {"center", "indent", "wordwrap", "batch", "slice", "truncate", "tojson", "round"}
)


class LimitExceeded(SecurityError):
    """The template does more than a template may. The message names no value."""


class _Evaluation(threading.local):
    """The evaluation that this thread is doing: its steps so far, and the values that it was given."""

    steps: int = 0
    given: Mapping[str, Any] | None = None
    is_protected: bool = True


_evaluation = _Evaluation()


def begin(given: Mapping[str, Any]) -> None:
    """Begin to count the steps of an evaluation, and protect the values that it is given from changes."""
    _evaluation.steps, _evaluation.given = 0, given


def end() -> None:
    """End the evaluation of this thread."""
    _evaluation.given = None


@contextmanager
def unprotected() -> Iterator[None]:
    """Let templates of this thread change the values that they are given. They must be copies."""
    _evaluation.is_protected = False
    try:
        yield
    finally:
        _evaluation.is_protected = True


def _step(number: int = 1) -> None:
    _evaluation.steps += number
    if _evaluation.steps > MAX_STEPS:
        raise LimitExceeded(f"it makes more than {MAX_STEPS} steps")


def joined(pieces: Iterable[Any]) -> str:
    """Return the texts of some values as one text.

    Raises:
        LimitExceeded: it is longer than `MAX_SIZE`.
    """
    found, size = [], 0
    for piece in pieces:
        check_weight(piece)
        text = str(piece)
        size += len(text)
        _check_size(size)
        found.append(text)
    _step(size // _SIZE_OF_A_STEP)
    return "".join(found)


def check_weight(value: Any) -> Any:
    """Check that the text of a value is not too long, before it is made.

    Returns:
        The value.

    Raises:
        LimitExceeded: it is longer than `MAX_SIZE`.
    """
    if isinstance(value, _WITH_PARTS):
        known: dict[int, int] = {}
        _check_size(_weight(value, known))
        _step(len(known) // _PARTS_OF_A_STEP)
    return value


def _weight(value: Any, known: dict[int, int]) -> int:
    """Return about how many characters the text of a value has, in a time that its parts determine."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, _WITH_PARTS):
        return 1
    if id(value) not in known:
        known[id(value)] = MAX_SIZE  # a value that contains itself is too large
        known[id(value)] = 2 + sum(_weight(part, known) for part in _parts(value))
    return known[id(value)]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    return chain(value.keys(), value.values()) if isinstance(value, dict) else value


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise LimitExceeded(f"it builds a value of more than {MAX_SIZE} characters or items")


def _limited_items(items: Any) -> Any:
    """Return what a loop runs over, if that is not too much."""
    if not hasattr(items, "__len__"):
        items = list(islice(items, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise LimitExceeded(f"it has a loop over more than {MAX_ITEMS} items")
    _step(len(items))
    return items


def _limited(value: Any) -> Any:
    if isinstance(value, _SIZED):
        _check_size(len(value))
        _step(len(value) // _SIZE_OF_A_STEP)
    return value


def _limited_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if name in _WIDTH_FILTERS:
            _check_widths(given[1:])
        if name in _REPEATING_FILTERS:
            _check_growth(given)
        if name == "format":
            _check_percent(args[0])
        if name == "join":
            args = _joinable(args)
        else:
            value_at = isinstance(args[0], _SURROUNDINGS)
            for each in given if name in _TEXT_FILTERS else given[value_at + 1 :]:
                check_weight(each)
        if name in _PATTERN_FILTERS:
            return _limited(_timed(function, *args, **kwargs))
        return _limited(function(*args, **kwargs))

    return limited


def _timed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, and count the processor time that it takes as steps."""
    began = time.thread_time()
    found = function(*args, **kwargs)
    _step(int((time.thread_time() - began) * _STEPS_OF_A_SECOND))
    return found


def _check_widths(numbers: Iterable[Any]) -> None:
    if any(isinstance(each, int) and abs(each) > MAX_WIDTH for each in numbers):
        raise LimitExceeded(f"it asks for a width of more than {MAX_WIDTH}")


def _check_percent(text: Any) -> None:
    if isinstance(text, str) and any(_WIDE.search(spec) for spec in _PERCENT.findall(text)):
        raise LimitExceeded(f"it asks for a width of more than {MAX_WIDTH}")


def _check_growth(given: Iterable[Any]) -> None:
    """Check texts. One of them may be repeated as often as another one has characters."""
    sizes = []
    for each in given:
        check_weight(each)
        inner = each.values() if isinstance(each, dict) else each
        texts = [each] if isinstance(each, str) else inner if isinstance(each, _COLLECTIONS) else ()
        sizes.append(max((len(text) for text in texts if isinstance(text, str)), default=0))
    largest, *others = sorted(sizes, reverse=True) or [0]
    if others and largest * others[0] > 10 * MAX_SIZE:
        raise LimitExceeded("it repeats a long text too often")


def _joinable(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of the filter `join`, whose items are a list that is not too long."""
    context, items, *others = args
    items = items if isinstance(items, (str, list, tuple)) else list(items)
    _check_joined(str(others[0]) if others else "", items)
    return (context, items, *others)


def _check_joined(separator: str, items: Any) -> None:
    check_weight(items)
    _check_size(len(separator) * len(items))


class _Limits(NodeTransformer):
    """Puts limits into a parsed template, at loops and at texts that are put together."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - the name that Jinja calls
        self.generic_visit(node)
        node.iter = _filter(node.iter, _ITEMS)
        return node

    def visit_Collection(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        is_target = isinstance(node, nodes.Tuple) and node.ctx == "store"
        is_plain = all(isinstance(each, nodes.Const) for each in node.find_all(nodes.Expr))
        return node if is_target or is_plain else _filter(node, _CHECKED)

    visit_List = visit_Tuple = visit_Dict = visit_Collection  # noqa: N815

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), _JOINED)


def _filter(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class Environment(SandboxedEnvironment):
    """The sandbox with limits. A template may change a list or a mapping only if it made it itself."""

    concat = staticmethod(joined)  # what compiled templates call
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__()
        self.filters.update(FILTERS)
        self.filters = {name: _limited_filter(name, each) for name, each in self.filters.items()}
        self.filters.update({_ITEMS: _limited_items, _JOINED: joined, _CHECKED: check_weight})
        self.globals.update(FUNCTIONS)
        del self.globals["range"], self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        with no_warnings():  # texts such as "\\s", which regular expressions contain
            parsed = super()._parse(source, name, filename)
        found: nodes.Template = _Limits().visit(parsed).set_environment(self)
        return found

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return False for private attributes and for methods that change what the template was given.

        `_partition` is the one exception: a slice of the CDK has it, and a manifest reads it.
        """
        if attr == "_partition":
            return True
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if isinstance(obj, bytes) or attr == "to_bytes":
            return attr in _BYTES_METHODS
        if attr in _READING or not modifies_known_mutable(obj, attr):
            return True
        return not _was_given(obj)

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: PYI063
        """Call a function or a method within the limits."""
        _step()
        if isinstance(__obj, LoopContext) and args:
            args = (_limited_items(args[0]), *args[1:])
        _check_call(__obj, (*args, *kwargs.values()))
        return _limited(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an operation whose result may be large."""
        if operator == "*":
            _check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _check_percent(left)
            _check_growth((left, right))
        return _limited(super().call_binop(context, operator, left, right))


def _check_call(function: Any, given: tuple[Any, ...]) -> None:
    for each in given:
        check_weight(each)
    method = getattr(function, "__wrapped__", function)  # what the sandbox puts around str.format
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if isinstance(owner, str):
        if name in _WIDTH_METHODS:
            _check_widths(given)
        elif name == "join":
            _check_joined(owner, given[0] if given and isinstance(given[0], _COLLECTIONS) else ())
        elif name in ("replace", "translate", "format", "format_map"):
            _check_growth((owner, *given))
            if _BRACES.search(owner) and name.startswith("format"):
                raise LimitExceeded("it formats a text with a width that is computed or large")
    elif isinstance(owner, _COLLECTIONS):
        _check_size(len(owner) * 10)


def _check_product(left: Any, right: Any) -> None:
    for text, times in ((left, right), (right, left)):
        if isinstance(times, int):
            if isinstance(text, (str, bytes, list, tuple)):
                _check_size(len(text) * max(times, 0))
            elif isinstance(text, int) and text.bit_length() + times.bit_length() > MAX_BITS:
                raise LimitExceeded("it computes a number that is too large")


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > MAX_BITS:
        raise LimitExceeded("it computes a number that is too large")


def _was_given(wanted: Any) -> bool:
    """Return True if a value is part of what the template was given, or may be."""
    if not _evaluation.is_protected:
        return False
    if _evaluation.given is None:
        return True
    waiting, seen = list(_evaluation.given.values()), 0
    while waiting:
        value = waiting.pop()
        if value is wanted:
            return True
        seen += 1
        if seen > MAX_STEPS:
            return True
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            waiting.extend(value)
    return False


ENVIRONMENT = Environment()
