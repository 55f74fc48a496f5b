"""The Airbyte Protocol of sources: commands, messages, the state file."""
