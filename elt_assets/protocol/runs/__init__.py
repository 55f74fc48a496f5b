"""Runs: RECORD lines that are passed on in blocks, as they were received."""
