"""No text that leaves a read has a secret: events, errors of any class, and their whole chains."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.pipeline.read import Read, mask_error, run_read
from elt_assets.protocol.catalog import ConfiguredCatalog
from elt_assets.protocol.masking import Masker
from elt_assets.storage.staging import IN_PLACE
from elt_assets.sync.events import Logged

SECRET = "s3cr3t-p4ssw0rd"
MASKER = Masker([SECRET])


class Unknown(Exception):
    """An error whose text is none of its arguments, as libraries have them."""

    def __init__(self, text: str):
        super().__init__()
        self.text = text

    def __str__(self) -> str:
        return f"unknown: {self.text}"


def make_error(kind: str, text: str) -> Exception:
    made: dict[str, Exception] = {
        "config": ConfigError(text, guidance=text, detail=text),
        "transient": TransientError("x", detail=text),
        "unknown": Unknown(text),
        "value": ValueError(text),
        "key": KeyError(text),
        "system": OSError(13, "Permission denied", text),
        "full": OSError(28, "No space left on device", text),
        "decode": UnicodeDecodeError("utf-8", text.encode(), 0, 1, text),
        "syntax": SyntaxError("bad", (text, 1, 1, text)),
    }
    return made[kind]


class Leaking(Read):
    """A read that says what it is given before anything is read."""

    def __init__(self, events: Iterator[Logged]):
        super().__init__(ConfiguredCatalog(streams=[]), IN_PLACE)
        self._events = events

    def list_notices(self) -> Iterator[Logged]:
        return self._events

    def mask(self, text: str) -> str:
        return MASKER(text)


KINDS = ["config", "transient", "unknown", "value", "key", "system", "full", "decode", "syntax"]
LINKS = ["cause", "context", "hidden"]


def list_texts(error: BaseException) -> Iterator[str]:
    """All texts of an error that anybody can see or store, of its whole chain."""
    yield "".join(traceback.format_exception(error))
    yield from (str(error), repr(error), repr(error.args), repr(vars(error)))
    for other in (error.__cause__, error.__context__):
        if other is not None:
            yield from list_texts(other)


@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.booleans(), st.sampled_from(LINKS)),
        min_size=1,
        max_size=4,
    )
)
def test_an_error_of_any_class_and_chain_shows_no_secret(chain: Any) -> None:
    error: Exception | None = None
    for kind, has_secret, link in chain:
        made = make_error(kind, f"before {SECRET if has_secret else 'plain'} after")
        if error is not None:
            made.__context__ = error
            made.__cause__ = error if link == "cause" else None
            made.__suppress_context__ = link != "context"
        error = made
    assert error is not None
    masked = mask_error(error, MASKER)
    assert not any(SECRET in text for text in list_texts(masked))
    if not any(has_secret for _, has_secret, _ in chain):
        assert masked is error
    elif not {"full", "system"}.intersection(kind for kind, *_ in chain):
        assert type(masked).__name__ == type(error).__name__
    if isinstance(error, EltError):
        assert masked is error


def test_a_fault_of_the_machine_stays_one() -> None:
    masked = mask_error(OSError(28, "No space left on device", f"/data/{SECRET}"), MASKER)
    assert isinstance(masked, ConfigError) and masked.is_machine_fault
    assert "the disk is full: /data/****" in masked.message


@pytest.mark.parametrize("error", [Unknown(SECRET), SystemFailure(SECRET, detail=SECRET)])
def test_events_and_the_error_of_a_read_are_masked(error: Exception) -> None:
    def read() -> Iterator[Logged]:
        yield Logged("INFO", f"the password is {SECRET}")
        raise error

    events = run_read(Leaking(read()))
    assert next(events) == Logged("INFO", "the password is ****")
    with pytest.raises(Exception, match=r"\*\*\*\*") as failure:
        next(events)
    assert type(failure.value).__name__ == type(error).__name__
    assert failure.value.__context__ is None
    assert "in read" in "".join(traceback.format_exception(failure.value))  # where it was raised


@pytest.mark.parametrize("kind", [KeyboardInterrupt, dg.DagsterExecutionInterruptedError])
def test_what_an_interruption_has_interrupted_is_masked(kind: type[BaseException]) -> None:
    def read() -> Iterator[Logged]:
        yield Logged("INFO", "begin")
        try:
            int(SECRET)
        except ValueError:
            raise kind from None

    with pytest.raises(kind) as failure:
        list(run_read(Leaking(read())))
    assert SECRET not in "".join(list_texts(failure.value))
