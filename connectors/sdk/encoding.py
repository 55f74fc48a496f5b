"""JSON as all messages and requests have it: a `Decimal` is a number, with all its digits."""

import msgspec

_ENCODER = msgspec.json.Encoder(decimal_format="number")

encode = _ENCODER.encode
"""Returns a value as JSON."""
encode_lines = _ENCODER.encode_lines
"""Returns several values as JSON, each with a newline after it."""
