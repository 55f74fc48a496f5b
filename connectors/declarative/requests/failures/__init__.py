"""Failures of requests: which are repeated, when, and which end a stream."""
