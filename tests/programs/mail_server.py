"""A small SMTP server that keeps what it gets: for tests of programs that send mail.

Spec: RFC 5321, the commands that every server has, without extensions but AUTH PLAIN.
"""

from __future__ import annotations

import base64
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class _Session(socketserver.StreamRequestHandler):
    """A client's session."""

    server: _Server

    def handle(self) -> None:
        self._is_known = self.server.owner.login is None
        self._recipients: list[str] = []
        self._say("220 ready")
        answers: dict[str, Callable[[str], str]] = {
            "EHLO": self._greet,
            "AUTH": self._log_in,
            "MAIL": lambda _: "250 ok" if self._is_known else "530 log in first",
            "RCPT": self._add_recipient,
            "DATA": self._take,
            "QUIT": lambda _: "221 bye",
        }
        while line := self.rfile.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            answer = answers.get(verb.upper())
            self._say("250 ok" if answer is None else answer(rest))

    def _greet(self, _: str) -> str:
        return "250-hello\r\n250 AUTH PLAIN" if self.server.owner.login else "250 hello"

    def _log_in(self, rest: str) -> str:
        _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
        self._is_known = (user, password) == self.server.owner.login
        return "235 ok" if self._is_known else "535 wrong"

    def _add_recipient(self, rest: str) -> str:
        self._recipients.append(rest.partition("<")[2].rstrip(">"))
        return "250 ok"

    def _take(self, _: str) -> str:
        self._say("354 go on")
        lines = []
        while (line := self.rfile.readline().decode()).rstrip("\r\n") != ".":
            lines.append(line)
        self.server.owner.mails.append("".join(lines))
        self.server.owner.recipients.append(self._recipients)
        self._recipients = []
        return "250 ok"

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    owner: MailServer


@dataclass
class MailServer:
    """A server at a free port of this machine. With `login`, it takes mail of this user alone.

    Attributes:
        mails: the texts of the mails that it took.
        recipients: their recipients.
    """

    login: tuple[str, str] | None = None
    mails: list[str] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)

    def __enter__(self) -> MailServer:
        self._server = _Server(("127.0.0.1", 0), _Session)
        self._server.owner = self
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
