"""Conversion of Singer messages, catalogs and schemas to those of the Airbyte Protocol."""
