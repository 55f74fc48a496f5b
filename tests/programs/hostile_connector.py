"""Connectors that attack their reader: each a few lines of Python, and what comes of it.

A script has what `hostile_source` gives it, and `STATE` of `tests.runner.test_faults`; besides SCALE, the
factor of its sizes, and CANARIES, a folder beside it in which nothing may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SECRET = "canary-secret-value"
"""The password in the config of each of these connectors."""
END = "record({'n': 1}); state(1); status('COMPLETE')\n"
STATUS = (
    '{"type":"TRACE","trace":{"type":"STREAM_STATUS","emitted_at":1,"stream_status":{"stream_descriptor":'
    '{"name":"users"},"status":"RUNNING","reasons":[{"type":"RATE_LIMITED","rate_limited":{"quota_reset":%s}}'
    "]}}}"
)
VALUES = "'[' + '[],' * (6_000_000 * SCALE) + '1]'"
"""A JSON text of a few bytes a value: decoded, it takes twenty times as much."""


@dataclass(frozen=True)
class Attack:
    """An attack by a connector.

    Attributes:
        script: what it does.
        error: pattern of the error; None if the sync completes.
        logs: patterns that match the log.
        verb: what is called; `specification` runs the script alone.
        heartbeat: maximum seconds without output.
        rows: the records that are stored.
    """

    script: str
    error: str | None = None
    logs: tuple[str, ...] = ()
    verb: str = "read"
    heartbeat: float = 60
    rows: list[int] = field(default_factory=lambda: [1])


def say(line: str) -> str:
    return f"print({line!r})\n"


def nest(before: str, inner: str, after: str) -> str:
    return f"print({before!r} + {inner} + {after!r})\n"


SECOND_BODY = (
    say(
        f'{{"type":"LOG","log":{{"level":"INFO","message":"{SECRET}"}},"record":{{"stream":"users","data":{{}}}}}}'
    )
    + say(
        '{"type":"LOG","log":{"level":"INFO","message":"x"},"state":{"type":"STREAM","stream":'
        '{"stream_descriptor":{"name":"users"},"stream_state":{"n":9}}}}'
    )
    + say(
        '{"type":"TRACE","trace":{"type":"ANALYTICS","analytics":{"type":"a"}},"generation":'
        '{"stream_descriptor":{"name":"users"},"generation_id":9,"complete":true}}'
    )
)
OF_OTHER_VERBS = "".join(
    say(line)
    for line in (
        '{"type":"SPEC","spec":{"connectionSpecification":{"$ref":"http://127.0.0.1:9/x"}}}',
        '{"type":"CATALOG","catalog":{"streams":[{"name":"../../x","json_schema":{}}]}}',
        '{"type":"CONNECTION_STATUS","connectionStatus":{"status":"FAILED","message":"m"}}',
        '{"type":"PARTITION","partition":{"stream_descriptor":{"name":"users"},"key":"../x","context":{}}}',
        '{"type":"NEWS","news":{"streams":[]}}',
        '{"type":"DESTINATION_CATALOG","destination_catalog":{"operations":[]}}',
    )
)
FOLDER = "folder = os.path.dirname(files['--config'])\n"

ATTACKS: Mapping[str, Attack] = {
    # messages that are two, or that come at another time
    "second_body": Attack(
        SECOND_BODY + END,
        logs=(
            "a LOG message with 'record' too",
            "a LOG message with 'state' too",
            "'generation' too",
        ),
    ),
    "second_body_of_a_catalog": Attack(
        say('{"type":"CATALOG","catalog":{"streams":[]},"control":{"type":"CONNECTOR_CONFIG"}}')
        + END,
        error="malformed CATALOG message: a CATALOG message with 'control' too",
        rows=[],
    ),
    "messages_of_other_verbs": Attack(OF_OTHER_VERBS + END),
    "starts_again_after_its_end": Attack(
        END + "status('STARTED')", error="its last status: STARTED"
    ),
    # floods of what is ignored
    "states_of_other_streams": Attack(
        'say_state = \'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":'
        '{"name":"x%d"},"stream_state":{}}}}\'\n'
        "for n in range(2000 * SCALE): print(say_state % n)\n" + END,
        logs=(r"a state of a stream that is not configured \([\d,]+ times\)",),
    ),
    "states_after_a_failure": Attack(
        "record({'n': 1}); state(1); status('INCOMPLETE')\nfor n in range(2000 * SCALE): state(n)\n",
        error="its last status: INCOMPLETE",
    ),
    "traces_of_unknown_types": Attack(
        f"for n in range(2000 * SCALE): say('TRACE', trace={{'type': '{SECRET}%d' % n, 'emitted_at': 1}})\n"
        + END,
        logs=(
            r"ignored a trace of type '\*\*\*\*0'",
            "warnings and errors of connector hostile were dropped",
        ),
    ),
    "failures_of_other_streams": Attack(
        "for n in range(2000 * SCALE):\n"
        "    body = {'stream_descriptor': {'name': 'u%d' % n}, 'status': 'INCOMPLETE'}\n"
        "    say('TRACE', trace={'type': 'STREAM_STATUS', 'emitted_at': 1, 'stream_status': body})\n",
        error="could not complete stream 'u0', which is not configured",
        rows=[],
    ),
    # words of the protocol that are others
    "status_of_any_text": Attack(
        f"record({{'n': 1}}); state(1); status('{SECRET} \\x1b[31m' + 'x' * 1_000_000)",
        error=r"its last status: \*\*\*\* \\x1b\[31mx{1,100}… \(cut\)\)",
    ),
    "state_of_any_type": Attack(
        f"say('STATE', state={{'type': '{SECRET} ' + 'x' * 1_000_000}})",
        error=r"a state of type \*\*\*\* x{1,100}",
        rows=[],
    ),
    # numbers
    "estimates_of_any_number": Attack(
        "".join(
            say(
                '{"type":"TRACE","trace":{"type":"ESTIMATE","emitted_at":1,"estimate":'
                f'{{"type":"STREAM","name":"users","row_estimate":{number}}}}}}}'
            )
            for number in ("NaN", "-Infinity", "1e999", "1e300", "-1", "9" * 5000)
        )
        + END
    ),
    "quotas_of_any_form": Attack(
        "".join(
            say(STATUS % value)
            for value in ("NaN", "1e300", "-1e300", '"x"', "[" * 700 + "]" * 700, "9" * 5000)
        )
        + END
    ),
    "count_of_any_number": Attack(
        "record({'n': 1}); say('STATE', state={'type': 'STREAM', 'stream': {'stream_descriptor':"
        " {'name': 'users'}, 'stream_state': {}}, 'sourceStats': {'recordCount': -1e300}})",
        error="but 1 were received",
        rows=[],
    ),
    # small texts that take much memory
    "catalog_of_values": Attack(
        nest(
            '{"type":"CATALOG","catalog":{"streams":[{"name":"a","json_schema":{"x":',
            VALUES,
            "}}]}}",
        ),
        error="malformed CATALOG message: it has more than 4,000,000 values",
        verb="discover",
    ),
    "catalog_of_streams": Attack(
        nest(
            '{"type":"CATALOG","catalog":{"streams":[',
            '\'{"name":"a","json_schema":{}},\' * 1_100_000',
            "{}]}}",
        ),
        error="malformed CATALOG message: it has more than 4,000,000 values",
        verb="discover",
    ),
    "specification_of_values": Attack(
        "SCALE = 1\n"
        + nest('{"type":"SPEC","spec":{"connectionSpecification":{"x":', VALUES, "}}}"),
        error="malformed SPEC message: it has more than 4,000,000 values",
        verb="specification",
    ),
    "config_of_values": Attack(
        nest(
            '{"type":"CONTROL","control":{"type":"CONNECTOR_CONFIG","connectorConfig":{"config":{"x":',
            VALUES,
            "}}}}",
        ),
        error="malformed CONTROL message: it has more than 4,000,000 values",
        rows=[],
    ),
    "status_of_reasons": Attack(
        nest(
            '{"type":"TRACE","trace":{"type":"STREAM_STATUS","stream_status":{"stream_descriptor":'
            '{"name":"other"},"status":"RUNNING","reasons":[',
            '\'{"type":""},\' * 2_100_000',
            '{"type":""}]}}}',
        )
        + END,
        logs=("malformed TRACE message .it has more than 4,000,000 values",),
    ),
    "state_of_streams": Attack(
        nest(
            '{"type":"STATE","state":{"type":"GLOBAL","global":{"stream_states":[',
            '\'{"stream_descriptor":{"name":"a"}},\' * 1_400_000',
            '{"stream_descriptor":{"name":"a"}}]}}}',
        ),
        error="malformed STATE message: it has more than 4,000,000 values",
        rows=[],
    ),
    "values_behind_other_text": Attack(
        nest('noise {"type":"LOG","log":{"level":"INFO","message":"a","x":', VALUES, "}}") + END,
        logs=("malformed LOG message .it has more than 4,000,000 values",),
    ),
    "record_of_fields": Attack(
        "say('RECORD', record={'stream': 'users', 'emitted_at': 1,"
        " 'data': {'n': 1, **{'f%d' % n: 1 for n in range(100_000 * SCALE)}}})\n"
        "state(1); status('COMPLETE')\n"
    ),
    "lines_without_an_end": Attack(
        "for out in (sys.stderr, sys.stdout): out.write('x' * (20_000_000 * SCALE)); out.flush()\n"
        "print(); " + END,
        logs=("x{100}",),
    ),
    # what it does with the folder of its private files
    "folder_without_end": Attack(
        FOLDER
        + "os.chdir(folder)\nfor n in range(3000 * SCALE): os.mkdir('d'); os.chdir('d')\nos.chdir('/')\n"
        + END
    ),
    "folder_of_files": Attack(
        FOLDER + "for n in range(1000 * SCALE): open(folder + '/%d' % n, 'w').close()\n" + END
    ),
    "folder_that_is_closed": Attack(
        FOLDER
        + "os.makedirs(folder + '/a/b')\nfor name in ('/a/b', '/a', ''): os.chmod(folder + name, 0)\n"
        + END
    ),
    "folder_that_is_a_link": Attack(
        FOLDER + "import shutil; shutil.rmtree(folder); os.symlink(CANARIES, folder)\n" + END
    ),
    "lock_that_is_a_pipe": Attack(
        FOLDER + "os.remove(folder + '/.elt-scratch'); os.mkfifo(folder + '/.elt-scratch')\n" + END
    ),
    # what it does with its process
    "stopped": Attack(
        "record({'n': 1}); state(1); os.kill(os.getpid(), signal.SIGSTOP)\n",
        error="sent no output for 1 seconds and was stopped",
        heartbeat=1,
    ),
    "killed_group": Attack(
        "record({'n': 1}); state(1); os.killpg(0, 9)\n", error="was terminated by SIGKILL"
    ),
}
