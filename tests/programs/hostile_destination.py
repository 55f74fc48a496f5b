"""Destinations that attack the sync that sends them records, and what comes of it.

A script has what `hostile_source` gives it, and ECHO. It is sent two records, each with a state behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ECHO = """
def echo(n, name="a", **stats):
    blob = {"stream_descriptor": {"name": name}, "stream_state": {"n": n}}
    say("STATE", state={"type": "STREAM", "stream": blob, **stats})
"""
READ = "sys.stdin.read()\n"


@dataclass(frozen=True)
class Attack:
    """An attack by a destination.

    Attributes:
        script: what it does.
        error: pattern of the error; None if the sync completes.
        logs: patterns that match the log.
        acknowledged: the states that are acknowledged.
        heartbeat: maximum seconds in which it does nothing.
    """

    script: str
    error: str | None = None
    logs: tuple[str, ...] = ()
    acknowledged: list[int] = field(default_factory=list)
    heartbeat: float = 60


ATTACKS: Mapping[str, Attack] = {
    "acknowledges_before_it_reads": Attack("echo(2)\n" + READ, error="that it did not receive|^$"),
    "acknowledges_for_another_stream": Attack(
        READ + "echo(2, 'b')", error="that it did not receive"
    ),
    "acknowledges_without_end": Attack(
        READ + "for _ in range(2000): echo(2)\n",
        logs=(r"sent back a state once more, or a later one before it \(1,999 times\)",),
        acknowledged=[2],
    ),
    "counts_of_any_number": Attack(
        READ + "echo(2, destinationStats={'recordCount': 1e300, 'rejectedRecordCount': -1e300})",
        error="the destination reports 0 committed or rejected records",
    ),
    "state_of_values": Attack(
        READ + 'print(\'{"type":"STATE","state":{"data":[\' + \'[],\' * 3_000_000 + \'1]}}\')',
        error="malformed STATE message: it has more than 4,000,000 values",
    ),
    "config_with_references": Attack(
        READ + "say('CONTROL', control={'type': 'CONNECTOR_CONFIG', 'connectorConfig': {'config':"
        " {'a': {'env': 'CANARY'}, 'b': '{{ env.CANARY }}', 'c': {'file': '/etc/passwd'}}}})\necho(2)",
        acknowledged=[2],
    ),
    "messages_of_a_source": Attack(
        READ + "record({'n': 9})\n"
        "say('CATALOG', catalog={'streams': []}); say('SPEC', spec={'connectionSpecification': {}})\necho(2)",
        acknowledged=[2],
    ),
    "ends_at_once": Attack(
        "exit(0)", error="without acknowledging|before it read all of its input"
    ),
    "reads_nothing": Attack(
        "os.close(0); time.sleep(600)", error="sent no output for 1 s", heartbeat=1
    ),
}
