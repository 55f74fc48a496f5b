"""Dagster jobs other than syncs: check, discover, maintenance and replay."""
