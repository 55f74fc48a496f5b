"""Places for files: private directories, and files that others name."""
