"""Schedules and sensors that start runs, and alerts about failed runs."""
