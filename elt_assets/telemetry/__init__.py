"""Lineage and metrics of syncs, for other systems. Off unless the environment configures a receiver.

Both use the client library of their standard, which is an optional dependency, and the library's own
environment variables. A receiver that fails or does not answer never fails a sync, and delays the end of one
by a few seconds at most.
"""
