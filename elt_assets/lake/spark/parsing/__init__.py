"""The code that parses segments inside Spark's Python workers. It is sent to them by value.

A worker needs pyarrow, numpy and msgspec, but not this project. So these modules import nothing else, and
import names from each other, not modules.
"""
