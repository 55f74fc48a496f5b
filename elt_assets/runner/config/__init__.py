"""Resolve a connector's config and environment, and collect the secrets in them."""
