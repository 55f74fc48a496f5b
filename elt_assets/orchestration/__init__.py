"""Connections as Dagster assets."""
