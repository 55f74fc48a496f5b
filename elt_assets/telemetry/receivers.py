"""The receivers that the environment configures."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from elt_assets.telemetry.report import Receiver


@dataclass(frozen=True)
class _Kind:
    """A kind of receiver: its extra, the prefix of its variables, its module and class, and when it is
    configured."""

    extra: str
    prefix: str
    module: str
    name: str
    is_configured: Callable[[Mapping[str, str]], bool]


def _has_lineage(environment: Mapping[str, str]) -> bool:
    names = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
    is_disabled = environment.get("OPENLINEAGE_DISABLED", "").lower() == "true"
    return not is_disabled and any(
        value and name.startswith(names) for name, value in environment.items()
    )


def _has_metrics(environment: Mapping[str, str]) -> bool:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    is_other = environment.get("OTEL_METRICS_EXPORTER") or "otlp"
    return not is_disabled and is_other == "otlp" and any(environment.get(name) for name in names)


_KINDS = (
    _Kind("openlineage", "OPENLINEAGE_", "elt_assets.telemetry.lineage", "Lineage", _has_lineage),
    _Kind("opentelemetry", "OTEL_", "elt_assets.telemetry.metrics", "Metrics", _has_metrics),
)


def create_receivers() -> tuple[list[Receiver], list[str]]:
    """Return the receivers, and a warning for each one that is configured and cannot be used."""
    receivers, warnings = [], []
    for kind in _KINDS:
        if not kind.is_configured(os.environ):
            continue
        try:
            environment = os.environ.items()
            own = sorted(item for item in environment if item[0].startswith(kind.prefix))
            receivers.append(_receiver(kind, tuple(own)))
        except ImportError as error:
            warnings.append(
                f"{kind.extra} is configured in the environment, but its library is missing ({error}): "
                f"install elt-assets[{kind.extra}]"
            )
        except Exception as error:  # noqa: BLE001 - a wrong setting of a library must not fail the sync
            warnings.append(f"{kind.extra} cannot be used: {type(error).__name__}: {error}")
    return receivers, warnings


@cache
def _receiver(kind: _Kind, _settings: tuple[tuple[str, str], ...]) -> Receiver:
    """Return the receiver of this process with these settings: its sums belong to the process."""
    receiver: Receiver = getattr(importlib.import_module(kind.module), kind.name)()
    return receiver
