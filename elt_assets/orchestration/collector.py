"""Pauses of the garbage collector while definitions load: they stay, so a search for garbage is in vain.

Used by `definitions`, `project` and the executor of runs; `build` leaves out what is loaded in an op.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def pause_collector() -> Iterator[None]:
    """Stop the collector while definitions are loaded."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


@contextlib.contextmanager
def leave_out_loaded() -> Iterator[None]:
    """Let the collector leave out what is loaded.

    Afterwards it is as before: the next step of the process may be somebody else's.
    """
    is_left_out = gc.get_freeze_count() > 0
    if not is_left_out:
        gc.freeze()
    try:
        yield
    finally:
        if not is_left_out:
            gc.unfreeze()
