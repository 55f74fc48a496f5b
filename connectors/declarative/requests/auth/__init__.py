"""Authentication of requests, as manifests describe it."""
