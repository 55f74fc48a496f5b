"""Run connectors as child processes, one for each verb: spec, check, discover, read, write, probe."""
