"""Removal of what is no longer needed: an error of it is a warning.

A file is removed after the work is done or has failed. An error of the removal must hide neither the result
nor the first error. Maintenance removes what has stayed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from elt_assets.machine_faults import first_line

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def clean_up(place: str) -> Iterator[None]:
    """Log an error of the block as a warning. A file that is gone already is no error.

    Args:
        place: the files that the block removes, for the message.
    """
    try:
        yield
    except FileNotFoundError:
        return
    except Exception as error:  # whatever the store says  # noqa: BLE001
        _log.warning(
            "%s could not be removed; maintenance removes it later: %s", place, first_line(error)
        )
