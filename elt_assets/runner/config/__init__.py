"""A connector's config and environment, and the secrets in them."""
