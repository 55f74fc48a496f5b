"""Validate a config against a connector's specification, with limits.

A specification is not trusted: a pattern such as `^(a+)+$`, or references that multiply, can run without end.
A specification with such keywords is checked in a separate process, which costs about 0.1 seconds. Any other
is checked in this process: its work is limited by the size of the specification times the size of the config.
"""

from __future__ import annotations

import contextlib
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
from elt_assets.protocol.schema_places import Place
from elt_assets.protocol.specification import Search, inspect, secret_places

PATTERN_SECONDS = 1.0
"""Processor time limit of one pattern, in seconds."""
_CPU_SECONDS = 20
"""Processor time limit of a whole validation, in seconds."""
_TIMEOUT_SECONDS = 180
"""Elapsed time limit of a whole validation, in seconds. It is long, because the machine may be busy."""
_MEMORY = 2 << 30
"""Limit of the address space, in bytes."""
_MAX_BYTES = 256 << 10
"""Maximum size of a specification with its config that is checked in this process, in bytes of JSON."""
_UNLIMITED = re.compile(
    rb'"(?:pattern(?:Properties)?|\$(?:ref|dynamicRef|recursiveRef)|unevaluated(?:Items|Properties))":'
)
"""Keywords whose work is not limited by the sizes of the specification and the config."""


class Validation(msgspec.Struct):
    """The result of a validation.

    Args:
        violations: one line for each violation, without any part of the config.
        unchecked: one line for each part of the specification that cannot be checked, likewise.
        secrets: the secret values of the config, each with its place.
    """

    violations: list[str]
    unchecked: list[str]
    secrets: list[tuple[Place, Any]]


def validate(config: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> Validation:
    """Validate a config against a `connectionSpecification`.

    Args:
        name: the connector's name in messages.

    Raises:
        SystemFailure: the validation exceeds its limits, or the specification is nested too deeply.
    """
    try:
        question = json.dumps([config, schema], separators=(",", ":")).encode()
        if len(question) <= _MAX_BYTES and not _UNLIMITED.search(question):
            # The stack of this process may be deep already; any other error occurs below again.
            with contextlib.suppress(Exception):
                return _inspected(question, re.search)
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=Validation)
    except (RecursionError, subprocess.SubprocessError, msgspec.MsgspecError):
        raise SystemFailure(
            f"the config of connector {name} cannot be checked: its specification is nested too deeply, or "
            f"checking it takes more than {_CPU_SECONDS} seconds of processor time or {_MEMORY >> 30} GiB",
            guidance="this is a defect of the connector's specification: report it to its maintainer",
        ) from None


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGVTALRM, _raise_timeout)
    answer = _inspected(sys.stdin.buffer.read(), _search)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _inspected(question: bytes, search: Search) -> Validation:
    config, schema = json.loads(question)
    found = inspect(config, schema, search)
    secrets = list(secret_places(config, schema, search))
    return Validation(found.violations, found.unchecked, secrets)


def _search(pattern: str, text: str) -> bool:
    """Return whether a pattern is found in a text, as with `re.search`.

    Raises:
        TimeoutError: the search takes more than `PATTERN_SECONDS`.
    """
    signal.setitimer(signal.ITIMER_VIRTUAL, PATTERN_SECONDS)
    try:
        return re.search(pattern, text) is not None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _raise_timeout(_: int, __: FrameType | None) -> NoReturn:
    raise TimeoutError


if __name__ == "__main__":
    _main()
