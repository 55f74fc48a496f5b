"""Alert hooks of users, in all allowed forms."""

from __future__ import annotations

import sys
import threading

from elt_assets.orchestration.alerts import FailureAlert

heard: list[FailureAlert] = []
not_callable = "a text"


def hear(alert: FailureAlert) -> None:
    heard.append(alert)


def break_down(alert: FailureAlert) -> None:
    raise RuntimeError(f"no answer for {alert.job}")


def leave(alert: FailureAlert) -> None:
    sys.exit(3)


def hang(alert: FailureAlert) -> None:
    threading.Event().wait()
