"""A config held against a connector's specification, in a process that can be ended.

A specification comes from elsewhere and is a program: a pattern such as `^(a+)+$`, or references that
multiply, may run for ever. So a process of its own does the work, with limits; it costs about a tenth of a
second.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.protocol.config_places import Place
from elt_assets.protocol.specification import inspect, secret_places

PATTERN_SECONDS = 1.0
"""Of processor time that one pattern may take."""
_PROCESSOR_SECONDS = 20
"""That a whole validation may take."""
_SECONDS = 180
"""In which it must have ended, however busy the machine is."""
_MEMORY = 2 << 30
"""Bytes of address space."""


class Validation(msgspec.Struct):
    """What is wrong with a config, what could not be checked, and what of it is secret.

    `violations`, `unchecked`: a line each, without any part of the config. `secrets`: each with its place.
    """

    violations: list[str]
    unchecked: list[str]
    secrets: list[tuple[Place, Any]]


def validate(config: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> Validation:
    """Hold a config against a `connectionSpecification`.

    Args:
        name: of the connector, for messages.

    Raises:
        SystemFailure: the specification asks for more work than is allowed, or is nested too deeply.
    """
    try:
        question = json.dumps([config, schema]).encode()
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=Validation)
    except (RecursionError, subprocess.SubprocessError, msgspec.MsgspecError):
        raise SystemFailure(
            f"the config of connector {name} cannot be checked: its specification is nested too deeply, or "
            f"checking it takes more than {_PROCESSOR_SECONDS} seconds or {_MEMORY >> 30} GiB",
            guidance="this is a defect of the connector's specification: report it to its maintainer",
        ) from None


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_SECONDS, _PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGVTALRM, _late)
    config, schema = json.load(sys.stdin)
    found = inspect(config, schema, _search)
    secrets = list(secret_places(config, schema, _search))
    answer = Validation(found.violations, found.unchecked, secrets)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _search(pattern: str, text: str) -> bool:
    """As `re.search`.

    Raises:
        TimeoutError: it takes longer than a pattern may.
    """
    signal.setitimer(signal.ITIMER_VIRTUAL, PATTERN_SECONDS)
    try:
        return re.search(pattern, text) is not None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _late(_: int, __: FrameType | None) -> NoReturn:
    raise TimeoutError


if __name__ == "__main__":
    _main()
