"""Connectors as four verbs over a process: spec, check, discover, read."""
