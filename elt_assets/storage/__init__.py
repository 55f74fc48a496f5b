"""Storage of files: locations, private directories and scratch directories."""
