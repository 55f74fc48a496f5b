"""The session: it turns messages into segments and acknowledged states, without Spark or Dagster."""
