"""A name of `tests.support.elt` that tests of connectors import from here."""

from tests.support.elt import Elt

__all__ = ["Elt"]
