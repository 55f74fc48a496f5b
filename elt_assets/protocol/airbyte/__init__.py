"""The Airbyte Protocol: its messages, catalogs and states, and their codec."""
