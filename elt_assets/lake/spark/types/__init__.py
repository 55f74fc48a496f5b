"""The engine of types: what a JSON value becomes in a column. `kinds` is its table.

`fields` describes columns, and says to what the decoder decodes their values; `columns` makes columns of the
decoded values. What the decoder refuses goes to `conversion`, and a line that is not quite JSON to `repair`
before. `numbers`, `times` and `json_texts` read and write the forms of values; `changes` records what a row
does not keep.

Spark's Python workers get this code by value, as that of `parsing`. So these modules import nothing but each
other, pyarrow, numpy and msgspec, and they import names, not modules.
"""
