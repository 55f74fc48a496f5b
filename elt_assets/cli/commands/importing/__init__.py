"""Connections from the configuration of other programs: Airbyte and Meltano."""
