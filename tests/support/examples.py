"""The number of examples that a property test tries: all of them, or fewer in `make unit`."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

_USUAL = 100
_share = 1.0


def use_share(share: float) -> None:
    """Let property tests that are imported from now on try a share of their examples."""
    global _share  # noqa: PLW0603 - set once, before the tests are imported
    _share = share
    # On a busy machine any example may take long.
    settings.register_profile("untimed", deadline=None, max_examples=examples(_USUAL))
    settings.load_profile("untimed")


def examples(count: int) -> int:
    """Return the number of examples to try instead of `count`, at least one."""
    return max(1, round(count * _share))


def few(count: int) -> settings:
    """Settings of examples that are so slow that a few must do, and that are not made shorter."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(max_examples=count, phases=phases, suppress_health_check=list(HealthCheck))
