"""The pass of all texts that leave a read through the mask of its connection.

Whatever fails while a source is read may quote its config: the source, a task on Spark, Spark itself, or a
library. So events and errors are masked where they leave the read (`pipeline.read`), and not where they are
made: a new kind of error is masked too. From there they reach the log, the page and the storage of a run,
alerts and lineage. Dagster also stores the causes of an error, and those during whose handling it was raised.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from elt_assets.errors import EltError
from elt_assets.machine_faults import translate

Mask: TypeAlias = Callable[[str], str]
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.10 has none


def mask_interruption(interruption: BaseException, mask: Mask) -> None:
    """Mask the texts of the errors that an interruption has interrupted."""
    for name in ("__cause__", "__context__"):
        link = getattr(interruption, name)
        if isinstance(link, Exception):
            setattr(interruption, name, mask_error(link, mask))


def mask_error(error: Exception, mask: Mask) -> Exception:
    """Return an error in whose texts, and in those of its whole chain, secrets are masked.

    It is the error itself if it has no secret, or is one of this project. Any other one becomes the fault of
    the machine that it reports, or else an error whose class has the same name.
    """
    if not any(mask(text) != text for text in map(_describe, _chain(error))):
        return error
    fault = translate(error)
    if fault is not None and fault is not error:
        fault.__cause__ = error
        error = fault
    masked = {id(link): _mask_link(link, mask) for link in _chain(error)}
    for link in list(_chain(error)):
        _copy_links(link, masked)
    result = masked[id(error)]
    assert isinstance(result, Exception)
    return result


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and the errors during whose handling it was raised, also those that Python
    does not show."""
    seen: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen[id(link)] = link
            yield link
            waiting += [link.__cause__, link.__context__]


def _describe(error: BaseException) -> str:
    """Return the text of an error without its chain; of a group, with its members and their chains."""
    lines = (
        traceback.format_exception if isinstance(error, _GROUP) else traceback.format_exception_only
    )
    texts = [error.message, error.guidance, error.detail] if isinstance(error, EltError) else []
    return "".join([*lines(error), *filter(None, texts)])


def _mask_link(error: BaseException, mask: Mask) -> BaseException:
    """Return an error, without its chain, whose own texts are masked."""
    if isinstance(error, EltError):
        error.message = mask(error.message)
        error.guidance, error.detail = (
            text and mask(text) for text in (error.guidance, error.detail)
        )
        error.args = (error.message,)
    elif mask(_describe(error)) != _describe(error):
        kind = type(error)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        text = _describe(error) if isinstance(error, _GROUP) else _text_of(error)
        stand_in: Exception = type(kind.__name__, (Exception,), names)(mask(text))
        return stand_in
    if notes := getattr(error, "__notes__", None):
        vars(error)["__notes__"] = [mask(str(note)) for note in notes]
    return error


def _text_of(error: BaseException) -> str:
    """Return what Python shows of an error, and its notes, without the name of its class."""
    text = "".join(traceback.format_exception_only(error)).rstrip("\n")
    name = f"{type(error).__module__}.{type(error).__qualname__}: "
    return text.removeprefix(name).removeprefix(f"{type(error).__qualname__}: ")


def _copy_links(error: BaseException, masked: dict[int, BaseException]) -> None:
    """Give the masked form of an error the traceback and the chain of it."""
    target, cause, context = masked[id(error)], error.__cause__, error.__context__
    is_hidden = error.__suppress_context__
    target.__traceback__ = error.__traceback__
    target.__cause__ = None if cause is None else masked[id(cause)]
    target.__context__ = None if context is None else masked[id(context)]
    target.__suppress_context__ = is_hidden
