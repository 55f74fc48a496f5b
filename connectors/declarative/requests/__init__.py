"""Requests of declarative streams: requesters, authentication, pages, error handling, records and schemas.

environment = Environment(config)
orders = build_retriever(stream.retriever, environment, name=stream.name)
for records in orders.pages(Slice(), ()):
    ...
"""
