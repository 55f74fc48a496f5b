"""Where alerts go: Slack, Teams and e-mail, by the settings `[tool.elt.alerts]`.

`orchestration.alert_sensor` sends with them. Addresses and passwords are references, which are read when an
alert is sent; an error of a target names neither.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Literal
from urllib.parse import urlsplit

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.protocol.messages import printable
from elt_assets.runner.references import resolve_references
from elt_assets.settings import AlertSettings, EmailSettings

SECONDS = 10
"""Time for each answer of a target."""


@dataclass(frozen=True)
class Alert:
    """A text for people: a title of one line, and paragraphs."""

    title: str
    paragraphs: Sequence[str]


@dataclass(frozen=True)
class AlertTarget:
    """A place where people read alerts. `send` raises an `EltError` if the alert has not arrived."""

    name: str
    send: Callable[[Alert], None]


def list_targets(settings: AlertSettings) -> list[AlertTarget]:
    """Return the targets of the settings."""
    email, targets = settings.email, list[AlertTarget]()
    for name, reference, form in (
        ("slack", settings.slack, _make_slack_message),
        ("teams", settings.teams, _make_teams_message),
    ):
        if reference is not None:
            targets.append(AlertTarget(name, _Webhook(name, reference, form)))
    if email is not None:
        targets.append(AlertTarget("email", _Mailer(email)))
    return targets


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the address is a secret, and another server would get the message."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class _Webhook:
    """Posts alerts as JSON to an address that is a secret."""

    name: str
    reference: Mapping[Literal["env", "file", "secret"], str]
    form: Callable[[Alert], dict[str, Any]]

    def __call__(self, alert: Alert) -> None:
        where = f"alerts.{self.name}"
        resolved, _ = resolve_references({self.name: dict(self.reference)}, where="alerts")
        url = resolved[self.name]
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(
                f"{where} is not the URL of a webhook", guidance="write the URL, https://…, into it"
            )
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            url,
            json.dumps(self.form(alert)).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=SECONDS):
                return
        except urllib.error.HTTPError as error:
            refuses = 400 <= error.code < 500 and error.code not in (408, 429)
            message = f"{self.name} answered with status {error.code}"
            if refuses or error.code < 400:
                hint = f"make a new webhook, and write its URL where `{where}` refers to"
                raise ConfigError(message, guidance=hint) from None
            raise TransientError(message) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise TransientError(f"{self.name} does not answer: {reason}") from None


def _make_slack_message(alert: Alert) -> dict[str, Any]:
    """Return a message of Slack, in which three characters are escaped.

    Spec: Slack, Formatting text for app surfaces.
    """
    text = "\n\n".join([f"*{_escape(alert.title)}*", *map(_escape, alert.paragraphs)])
    return {"text": text}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _make_teams_message(alert: Alert) -> dict[str, Any]:
    """Return a message of a workflow of Teams: an adaptive card."""
    title = {"type": "TextBlock", "text": alert.title, "weight": "Bolder", "wrap": True}
    blocks = [{"type": "TextBlock", "text": text, "wrap": True} for text in alert.paragraphs]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [title, *blocks],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


@dataclass(frozen=True)
class _Mailer:
    """Sends alerts by an SMTP server."""

    settings: EmailSettings

    def __call__(self, alert: Alert) -> None:
        settings = self.settings
        login = {"user": settings.user, "password": settings.password}
        resolved, _ = resolve_references(login, where="alerts.email")
        message = EmailMessage()
        message["Subject"] = printable(alert.title, keep="")
        message["From"], message["To"] = settings.sender, ", ".join(settings.to)
        message.set_content("\n\n".join([alert.title, *alert.paragraphs]))
        try:
            with self._connect() as server:
                if resolved["user"] is not None:
                    server.login(resolved["user"], resolved["password"] or "")
                server.send_message(message)
        except EltError:
            raise
        except (smtplib.SMTPAuthenticationError, smtplib.SMTPNotSupportedError) as error:
            raise ConfigError(
                f"the mail server {settings.host} refuses the login: {type(error).__name__}",
                guidance="correct `user`, `password` and `security` in [tool.elt.alerts.email]",
            ) from None
        except (OSError, smtplib.SMTPException) as error:
            raise TransientError(
                f"the mail server {settings.host} has not taken the alert: {type(error).__name__}"
            ) from None

    def _connect(self) -> smtplib.SMTP:
        settings, context = self.settings, ssl.create_default_context()
        place = settings.host, settings.port
        if settings.security == "tls":
            return smtplib.SMTP_SSL(*place, timeout=SECONDS, context=context)
        server = smtplib.SMTP(*place, timeout=SECONDS)
        if settings.security == "starttls":
            server.starttls(context=context)
        return server
