"""All code that is sent to Spark workers by value.

A worker needs pyarrow, numpy and msgspec, and not this project. So these modules import only these, and names
(never modules) from each other and from the repair of texts in `protocol.wire`. `slices` also imports
`storage.staging`: its worker has the source, and so this project.
"""
