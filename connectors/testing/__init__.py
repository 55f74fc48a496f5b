"""Conformance tests for Airbyte sources and Singer taps, in pytest or on the command line.

What the rules cannot find is listed in `docs/cli.md`.

`connector_tests` makes a test class of one assignment. `python -m connectors.testing` prints a report.
"""

from connectors.testing.findings import Finding, Outcome, Report
from connectors.testing.kit import RULES, Kit
from connectors.testing.options import KitOptions
from connectors.testing.suite import connector_tests

__all__ = ["RULES", "Finding", "Kit", "KitOptions", "Outcome", "Report", "connector_tests"]
