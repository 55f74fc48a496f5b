"""Validate a config against a connector's specification, in a separate process with limits.

A specification is not trusted: references that multiply, for example, can take any time and memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from elt_assets.errors import SystemFailure
from elt_assets.module_start import module_command
from elt_assets.protocol.schema_places import Place
from elt_assets.protocol.specification import inspect, secret_places

_CPU_SECONDS = 20
"""Processor time limit, in seconds."""
_TIMEOUT_SECONDS = 180
"""Elapsed time limit, in seconds. It is long, because the machine may be busy."""
_MEMORY = 2 << 30
"""Limit of the address space, in bytes."""


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
        done = subprocess.run(
            module_command(__name__),
            input=json.dumps([config, schema], separators=(",", ":")).encode(),
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
    config, schema = json.load(sys.stdin.buffer)
    answer = Validation(*inspect(config, schema), list(secret_places(config, schema)))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    _main()
