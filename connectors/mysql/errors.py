"""Errors of the server and of the connection, by who must act."""

from __future__ import annotations

from connectors.cdc.texts import RESET_ALL
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError


class UnsafeLogin(RuntimeError):
    """Error raised if a server asks for the password in a way in which others could read it.

    Attributes:
        guidance: what to do.
    """

    def __init__(self, what: str, guidance: str):
        super().__init__(f"the server, or somebody between, asks for the password {what}")
        self.guidance = guidance


class MissingLog(ConfigError):
    """Error raised if the server does not have the part of its log that it is asked for."""


_REFUSED_LOG = 1236
_PERMANENT = {
    1044: "GRANT SELECT ON `DATABASE`.* TO the user",
    1045: "correct `user` and `password`",
    1049: "correct `databases`",
    1054: "a column is gone: run `elt discover`",
    1130: "let the user in from this address: CREATE USER 'USER'@'HOST' …",
    1142: "GRANT SELECT ON `DATABASE`.`TABLE` TO the user",
    1143: "GRANT SELECT ON `DATABASE`.`TABLE` TO the user",
    1146: "the table is gone: run `elt discover`, and remove the stream",
    1227: "grant the right that the message names",
    _REFUSED_LOG: f"if the log was purged, changes are lost: {RESET_ALL}; "
    "and let the server keep its log longer (binlog_expire_logs_seconds)",
    1251: "the server asks for a way to log in that the driver has not: ALTER USER … IDENTIFIED …",
    1345: "GRANT SELECT ON the tables of the view TO the user",
    1356: "correct the view, or leave it out with `exclude`",
    1449: "the definer of the view is gone: create the view again, or leave it out with `exclude`",
    1461: "the server lets clients prepare no more statements: raise its setting max_prepared_stmt_count",
    1698: "correct `user` and `password`, or how the server lets the user log in",
    1820: "the password has expired: ALTER USER … IDENTIFIED BY …",
    1862: "the password has expired: ALTER USER … IDENTIFIED BY …",
    2026: "correct `ssl_mode` and the certificates",
    2059: "the server asks for a way to log in that the driver has not: ALTER USER … IDENTIFIED …",
    3118: "ALTER USER … ACCOUNT UNLOCK",
    3159: "set `ssl_mode` to `required`",
    4151: "ALTER USER … ACCOUNT UNLOCK",
}
"""Numbers of errors that a retry does not help, and what does."""
_TRANSIENT = {
    1020, 1021, 1037, 1038, 1040, 1053, 1077, 1079, 1129, 1135, 1152, 1158, 1159, 1160, 1161, 1176, 1180,
    1203, 1205, 1213, 1226, 1290, 1317, 1412, 1615, 1637, 1836, 1927, 1969, 2002, 2003, 2006, 2013, 2055,
    3024,
}  # fmt: skip
"""Numbers of errors that a later run may not meet: connections, resources, shutdowns, locks, DDL."""
_TEXTS = {
    "Name or service not known": "correct `host`",
    "No address associated": "correct `host`",
    "certificate verify failed": "set `ssl_root_certificate` to the authority that signed the server's, and "
    "`host` to a name of the server's certificate",
    "doesn't support it": "set `ssl_mode` to `preferred`, or switch TLS on in the server",
    "cryptography": "pip install cryptography",
    "local_infile": "check `host`: it asks for a file of this machine, so it is not the server that you "
    "mean, or somebody is between; nothing was sent",
}
"""Parts of messages of the driver that a retry does not help, and what does."""


def translate(error: Exception, purpose: str) -> EltError:
    """Return the error of this product for one of the driver: its class says who must act.

    Args:
        purpose: what fails, such as `shop.a cannot be read`.
    """
    if isinstance(error, UnsafeLogin):
        return ConfigError(f"{purpose}: {error}", guidance=error.guidance)
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = " ".join(str(error.args[-1] if error.args else error).split())
    message = f"{purpose}: {text}"
    for part, guidance in _TEXTS.items():
        if part in text:
            return ConfigError(message, guidance=guidance)
    if number == _REFUSED_LOG:
        return MissingLog(message, guidance=_PERMANENT[number])
    if number in _PERMANENT:
        return ConfigError(message, guidance=_PERMANENT[number])
    if number in _TRANSIENT or isinstance(error, OSError):
        return TransientError(message, guidance="check that the server runs, and run it again")
    return SystemFailure(
        message, guidance="the server refuses a query of this source", detail=f"error {number}"
    )
