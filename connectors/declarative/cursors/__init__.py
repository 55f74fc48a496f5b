"""Slices of a stream, what of them was read, and the state that records it."""
