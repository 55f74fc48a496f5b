"""Requests of declarative streams: requesters, authentication, pages, error handling, records and schemas.

environment = Environment(config)
orders = build_retriever(stream.retriever, environment, name=stream.name)
for records in orders.pages(Slice(), ()):
    ...
"""

from connectors.declarative.requests.budgets import Budget
from connectors.declarative.requests.building import (
    build_credentials,
    build_requester,
    build_retriever,
)
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.requester import Requester
from connectors.declarative.requests.retriever import Retriever
from connectors.declarative.requests.schemas import load_schema, open_schema

__all__ = [
    "Budget",
    "Environment",
    "Requester",
    "Retriever",
    "build_credentials",
    "build_requester",
    "build_retriever",
    "load_schema",
    "open_schema",
]
