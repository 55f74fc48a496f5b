"""Streams as Dagster assets: specs, partitions and checks."""
