"""Airbyte's engine for manifests: it runs those with Python, and those with components that ours lacks."""

from connectors.declarative.airbyte_engine.start import start

__all__ = ["start"]
