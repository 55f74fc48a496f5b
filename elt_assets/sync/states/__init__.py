"""Queues of states that were received and are not acknowledged yet."""
