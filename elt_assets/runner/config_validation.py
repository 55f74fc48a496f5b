"""Validate a config against a connector's specification, with limits, for `config` and `elt new`.

A specification is not trusted: references that multiply can take any time and memory. One with references is
checked in a separate process, which takes 0.2 core-seconds. Without them, the work is bounded by the sizes of
the specification and the config (`protocol.specification` ends a slow pattern).

One that is not valid JSON Schema is not used: the config goes to the connector as it is, with a warning.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.module_start import module_command
from elt_assets.protocol.config_check import InvalidSpecification, violations
from elt_assets.protocol.specification import Place, secret_places

_CPU_SECONDS = 20
"""Processor time limit, in seconds."""
_TIMEOUT_SECONDS = 180
"""Elapsed time limit, in seconds. It is long, because the machine may be busy."""
_MEMORY = 2 << 30
"""Limit of the address space, in bytes."""
_MAX_BYTES = 256 << 10
"""Maximum size of a specification with its config that is checked in this process, in bytes of JSON."""
_UNBOUNDED = re.compile(
    rb'"(?:\$(?:ref|dynamicRef|recursiveRef)|unevaluated(?:Items|Properties))":'
)
"""Keywords whose work is not bounded by the sizes of the specification and the config."""


class Validation(msgspec.Struct):
    """The result of a validation."""

    violations: list[str]
    """One line for each violation, without any part of the config."""
    flaw: str | None
    """Why the specification is not valid, so that nothing was checked; None if it is."""
    secrets: list[tuple[Place, Any]]
    """The secret values of the config, each with its place."""


def validate(config: Mapping[str, Any], schema: Mapping[str, Any], title: str) -> Validation:
    """Validate a config against a `connectionSpecification`.

    Args:
        title: the connector in messages.

    Raises:
        SystemFailure: the validation exceeds its limits, or the specification is nested too deeply.
    """
    try:
        question = json.dumps([config, schema], separators=(",", ":")).encode()
        if len(question) <= _MAX_BYTES and not _UNBOUNDED.search(question):
            with contextlib.suppress(
                RecursionError
            ):  # the stack of this process may be deep already
                return _inspect(question)
        done = subprocess.run(
            module_command(__name__),
            input=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=Validation)
    except (RecursionError, subprocess.SubprocessError, msgspec.MsgspecError):
        raise SystemFailure(
            f"the config of {title} cannot be checked: its specification is nested too deeply, or "
            f"checking it takes more than {_CPU_SECONDS} seconds of processor time or {_MEMORY >> 30} GiB",
            guidance="this is a defect of the connector's specification: report it to its maintainer",
        ) from None


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.stdout.buffer.write(msgspec.json.encode(_inspect(sys.stdin.buffer.read())))


def _inspect(question: bytes) -> Validation:
    config, schema = json.loads(question)
    secrets = list(secret_places(config, schema))
    try:
        return Validation(violations(config, schema), None, secrets)
    except InvalidSpecification as error:
        return Validation([], str(error), secrets)


if __name__ == "__main__":
    _main()
