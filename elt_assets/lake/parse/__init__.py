"""Parsing of staged lines into typed rows.

A value that does not fit becomes null or is rounded, and is recorded; in the key or in a strict column its
record is rejected. Undeclared fields are counted.
"""
