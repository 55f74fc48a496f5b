"""Jobs: an API prepares the data of a slice, which are then downloaded.

Spec: AsyncRetriever.
"""
