"""The source of a program, for tasks that read slices: the one that the program gives to `run`."""

from __future__ import annotations

import runpy
import sys
import warnings
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING

from elt_assets.errors import SystemFailure

if TYPE_CHECKING:
    from connectors.sdk.source import Source

_IS_SOUGHT: ContextVar[bool] = ContextVar("is_sought", default=False)


class _Found(BaseException):
    """Ends a program whose source is sought. It is no `Exception`, so that the program does not handle it."""

    def __init__(self, source: Source):
        self.source = source


def offer(source: Source) -> None:
    """End the program if only its source is sought."""
    if _IS_SOUGHT.get():
        raise _Found(source)


def find_source(module: str) -> Source:
    """Run a program, as `python -m` does, up to its call of `run`, and return the source of that call.

    Raises:
        ModuleNotFoundError: there is no such module.
        SystemFailure: the program ends without a call of `run`.
    """
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    token, arguments = _IS_SOUGHT.set(True), sys.argv
    sys.argv = [module, "read"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # parts of it may be imported already
            runpy.run_module(module, run_name="__main__")
    except _Found as end:
        return end.source
    except SystemExit as end:
        raise _no_source(module) from end
    finally:
        sys.argv = arguments
        _IS_SOUGHT.reset(token)
    raise _no_source(module)


def _no_source(module: str) -> SystemFailure:
    return SystemFailure(
        f"tasks cannot read slices: the program {module} does not give its source to `run`",
        guidance="let the program call `connectors.sdk.run` when it is started with a command, or write "
        "`slices: false`",
    )
