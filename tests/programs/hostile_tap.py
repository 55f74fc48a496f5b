"""Taps that attack their reader: scripts of Python, and what comes of each.

A script has `discover`, whether the catalog is asked for, and `say`, which prints a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PRELUDE = """#!{python} -IS
import json, sys
discover = "--discover" in sys.argv
if "--help" in sys.argv: sys.exit(2)
if "--about" in sys.argv: sys.exit(2)
def say(kind, **body): print(json.dumps({{"type": kind, **body}}), flush=True)
schema = {{"properties": {{"n": {{"type": "integer"}}}}}}
"""
VALUES = "'[' + '[],' * 6_000_000 + '1]'"
END = (
    "say('SCHEMA', stream='users', schema=schema, key_properties=[])\n"
    "say('RECORD', stream='users', record={'n': 1})\n"
    "say('STATE', value={'bookmarks': {'users': {'n': 1}}})\n"
)


@dataclass(frozen=True)
class Attack:
    """An attack by a tap.

    Attributes:
        script: what it does.
        error: pattern of the error; None if the sync completes.
        verb: what is called.
    """

    script: str
    error: str | None = None
    verb: str = "read"


ATTACKS: Mapping[str, Attack] = {
    "catalog_of_values": Attack(
        f"print('{{\"streams\":' + {VALUES} + '}}')",
        "it has more than 4,000,000 values",
        "discover",
    ),
    "schema_of_values": Attack(
        f'print(\'{{"type":"SCHEMA","stream":"users","schema":{{"x":\' + {VALUES} + \'}}}}\')',
        "malformed SCHEMA message: it has more than 4,000,000 values",
    ),
    "state_of_values": Attack(
        f'print(\'{{"type":"STATE","value":{{"x":\' + {VALUES} + \'}}}}\')',
        "malformed STATE message: it has more than 4,000,000 values",
    ),
    "names_without_end": Attack(
        "for n in range(40):\n"
        "    name = str(n) + 'x' * 4_000_000\n"
        "    say('SCHEMA', stream=name, schema=schema, key_properties=[])\n"
        "    say('RECORD', stream=name, record={}, version=n)\n" + END
    ),
}
