"""Errors of the server and of the connection, by who must act.

The server's texts are in its own language (`lc_messages`). Of a query there is an SQLSTATE, which tells what
it is. Of a connection that cannot be opened there is only a text: those of the client are English, since no
program here sets another language for it, and are all listed. Any other text is an answer of the server. It
is quoted, with the advice that fits it if it is English; what helps against it is a change of the config,
unless it is one of those that pass by themselves.

Test: `tests/connectors/postgres/test_languages.py`
"""

from __future__ import annotations

import re

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError

_QUERY = re.compile(r"\s*Query was:.*", re.DOTALL)
_STATE = re.compile(r"\. SQLSTATE: \w{5}\s*$")
_PREFIX = re.compile(
    r"^([A-Z_]+: )?(\[libpq\] )?(Failed to [a-z ]+: |Execution error \[\w+\]: )?(ERROR:\s*)?"
)
_CONNECTION = re.compile(
    r'^connection to server at "[^"]*"( \([^)]*\))?, port \d+ failed: (FATAL ?:\s*)?'
)

_PERMANENT = (
    ("password authentication failed", "correct `user` and `password`"),
    ("no password supplied", "set `password`"),
    (
        "authentication method requirement",
        (
            "set `ssl_mode` to `verify-full`, or at least to `require`; or let the server ask for a hash "
            "of the password (`scram-sha-256` in pg_hba.conf)"
        ),
    ),
    ("does not exist", "correct `database` and `user`"),
    (
        "no pg_hba.conf entry",
        "let this user and address in by a line of pg_hba.conf, or change `ssl_mode`",
    ),
    ("could not translate host name", "correct `host`"),
    ("does not support SSL", "set `ssl_mode` to `prefer`, or switch `ssl` on in the server"),
    (
        "certificate verify failed",
        "set `ssl_root_certificate` to the authority that signed the server's",
    ),
    (
        "does not match host name",
        "set `host` to a name of the server's certificate, or use `verify-ca`",
    ),
    ("certificate", "correct `ssl_certificate`, `ssl_key` and `ssl_root_certificate`"),
    ("is not permitted to log in", "ALTER ROLE … LOGIN"),
    ("permission denied for database", "GRANT CONNECT ON DATABASE … TO …"),
)
"""Parts of messages about a connection that a retry does not help, and what does."""

_PASSING = re.compile(
    "refused|timeout|timed out|unreachable|no route|is down|closed the connection|connection reset|broken "
    "pipe|could not (receive|send|create socket|connect)|ssl syscall|eof detected|temporary failure|try again"
    "|resource temporarily|terminating connection|server conn|login has been failing"  # a pool of connections
    "|the database system is|too many|remaining connection slots|no more connections",  # an English server
    re.IGNORECASE,
)
"""Texts of the client, of a pool, and of an English server that a later run may not meet."""

_TRANSIENT = ("08", "53", "57P", "58", "40", "55P03", "55006", "25P03", "25P04", "25006")
"""Beginnings of SQLSTATE for what a later run may not meet: connections, resources, shutdowns, locks."""
_CANCELED = "57014"
_CONFLICTS = ("40001", "40P01")
"""What a standby ends because of a change that it must replay. A read has these states of nothing else."""
_CONFLICT_TEXT = "conflict with recovery"
"""What a standby says then. In the middle of a result there is no state; in another language, it is a failure
that is not tried again."""
CONFLICT = (
    "a standby ends reads that would see what it has to replay: on it ALTER SYSTEM SET "
    "hot_standby_feedback = on; or a larger max_standby_streaming_delay; and SELECT pg_reload_conf();"
)
_CUT = re.compile("server closed|connection|SSL SYSCALL|no COPY in progress")
_GUIDANCE = {
    "42501": "grant the right: `elt check` prints the SQL",
    "42704": "the slot or the publication is not there, or was made after the log that is to be read: "
    "compare them with the config; if they were made again, reset the streams of the connection (`elt "
    "reset`)",
    "42P01": "the table is gone: run `elt discover`, and remove the stream",
    "42703": "a column is gone: run `elt discover`",
    "3F000": "correct `schemas`",
    "22007": "correct `lookback`: it is no interval, or reset the stream if its cursor has another type",
    "22P02": "correct `lookback`: it is no number, or reset the stream if its cursor has another type",
}


def connection_error(error: Exception, place: str) -> EltError:
    """Return the error of a connection that could not be opened. `place`: host, port and database."""
    text = _CONNECTION.sub("", _tidy(error))
    message = f"PostgreSQL at {place} cannot be reached: {text}"
    for part, guidance in _PERMANENT:
        if part in text:
            return ConfigError(message, guidance=guidance)
    if _PASSING.search(text) or not text:
        return TransientError(message, guidance="check that the server runs and can be reached")
    return ConfigError(
        f"PostgreSQL at {place} refuses the connection: {text}",
        guidance="this is the answer of the server, in its language: correct `user`, `password`, "
        "`database` or "
        "`ssl_mode` as it says; run it again if it says that the server starts or is full",
    )


def may_be_ended(error: Exception) -> bool:
    """Return whether the server may have ended a statement after its time. In the middle of a result the
    driver gives no state of an error, and its text is in the language of the server."""
    state = getattr(error, "sqlstate", None)
    return state == _CANCELED or (not state and not _CUT.search(_tidy(error)))


def query_error(error: Exception, purpose: str) -> EltError:
    """Return the error of a query. `purpose`: what was to be done, such as `the table public.a is read`."""
    state = getattr(error, "sqlstate", None) or ""
    text = _tidy(error)
    message = f"{purpose}: {text}"
    if state in _GUIDANCE:
        return ConfigError(message, guidance=_GUIDANCE[state])
    if state == _CANCELED or (not state and "canceling statement due to user" in text):
        return TransientError(
            message, guidance="somebody has ended the query: run it again", detail=_CANCELED
        )
    if state in _CONFLICTS or (not state and _CONFLICT_TEXT in text):
        return TransientError(message, guidance=f"run it again; {CONFLICT}", detail=state)
    if state.startswith(_TRANSIENT):
        return TransientError(message, guidance="run it again", detail=state)
    if not state and _CUT.search(text):
        return TransientError(message, guidance="the connection was cut: run it again")
    return SystemFailure(
        message, guidance="the server refuses a query of this source", detail=state
    )


def _tidy(error: Exception) -> str:
    """Return a message of the driver without the query, and on one line."""
    text = _PREFIX.sub("", _STATE.sub("", _QUERY.sub("", str(error))))
    return " ".join(text.split())
