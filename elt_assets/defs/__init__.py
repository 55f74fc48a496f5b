"""The connections of this project."""
