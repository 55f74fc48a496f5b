"""Low-code manifests of Airbyte: from YAML to typed components, and the templates in them."""
