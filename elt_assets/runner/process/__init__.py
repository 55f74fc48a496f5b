"""Run a program as a child process: its start, its files, its output and its end."""
