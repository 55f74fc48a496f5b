"""The session: messages in, segments and acknowledged states out. No Spark, no Dagster."""
