"""Runs Airbyte low-code manifests as sources."""
