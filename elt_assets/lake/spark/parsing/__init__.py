"""The code that parses segments inside Spark's Python workers. It is sent to them by value.

`task` cuts the parts of a segment into blocks of lines, and writes a file of rows and one of rejected
records. `blocks` makes the rows of a block: `records` decodes its lines, `envelopes` reads what stands around
the data in a line, `types.columns` makes the columns, `row_metadata` those of metadata, `rejects` the rows of
the dead letter. `undeclared_fields` finds the fields that no column has, `statistics` describes a written
file to Delta. `job` is what a task gets and returns.

`slices` reads a slice of a stream from its source, and `slice_batches` makes rows of its Arrow batches.

A worker needs pyarrow, numpy and msgspec, but not this project. So these modules import only these, and
names (never modules) from each other and from what `lake.spark.worker_code` sends with them: `task_io`, and
the repair of texts in `protocol.airbyte.recovery`.
"""
