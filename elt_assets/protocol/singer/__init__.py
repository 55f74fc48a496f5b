"""Singer's messages, catalogs and schemas, as the Airbyte Protocol's."""
