"""Parsing of staged lines into typed rows. A value that does not fit is repaired, recorded or counted."""
