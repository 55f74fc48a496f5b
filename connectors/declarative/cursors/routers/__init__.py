"""Partition routers: which partitions a stream has."""
