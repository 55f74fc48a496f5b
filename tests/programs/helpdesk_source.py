"""A source of a helpdesk, as the first part of docs/writing-a-connector.md says to write one."""
# ruff: noqa: RUF012 - as authors write it

import sys

from pydantic import BaseModel, SecretStr

from connectors.sdk import Parent, Source, run
from connectors.sdk.http import HttpClient, HttpStream, OAuth2RefreshToken

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
TIME = {"type": "string", "format": "date-time"}


class Config(BaseModel):
    url: str
    client_id: str
    client_secret: SecretStr
    refresh_token: SecretStr
    start_date: str | None = None


class Tickets(HttpStream):
    name, path, records_path = "tickets", "tickets", "tickets"
    primary_key, replication_key = ("id",), "updated_at"
    params = {"updated_since": "{start:epoch}", "limit": 3}
    deleted = {"type": ["string", "null"], "format": "date-time"}
    json_schema = {"properties": {"id": NUMBER, "updated_at": TIME, "_ab_cdc_deleted_at": deleted}}


class Comments(HttpStream):
    name, path, records_path = "comments", "tickets/{tickets.id}/comments", "comments"
    primary_key = ("ticket_id", "id")
    parent = Parent(Tickets, fields={"id": "ticket_id"}, only_changed=True)
    json_schema = {"properties": {"id": NUMBER, "text": TEXT}}


class Helpdesk(Source):
    name, config_type = "helpdesk", Config

    def streams(self, config: Config) -> list[HttpStream]:
        token = OAuth2RefreshToken(
            f"{config.url}/token",
            client_id=config.client_id,
            client_secret=config.client_secret.get_secret_value(),
            refresh_token=config.refresh_token.get_secret_value(),
        )
        client = HttpClient(config.url, authenticator=token)
        return [Tickets(client), Comments(client)]


if __name__ == "__main__":
    sys.exit(run(Helpdesk(), sys.argv[1:]))
