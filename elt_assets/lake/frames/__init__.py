"""Tables and results as Arrow data, and as the data frames of other libraries, without Spark."""
