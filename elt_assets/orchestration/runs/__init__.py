"""Runs of Dagster: whether their processes are alive, and how many the queue starts."""
