"""Streams as software-defined assets: specs, partitions, checks."""
