"""A program as a child process: its start, its files, its output, its end."""
