"""The engine of types: what a JSON value becomes in a column. `kinds` is its table.

Spark's Python workers get this code by value, as that of `parsing`. So these modules import nothing but each
other, pyarrow, numpy and msgspec, and they import names, not modules.
"""
