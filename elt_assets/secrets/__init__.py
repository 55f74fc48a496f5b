"""Functions for the setting `secrets`, one for each secret manager."""
