"""pyiceberg's REST catalog, with a limit of time for each request.

`connecting` names the class to pyiceberg, which loads it only for a catalog of this type.

Without a limit, a catalog that accepts a request and never answers would hold the publishing thread for ever.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from requests.adapters import HTTPAdapter

from elt_assets.lake.publish.connecting import CONNECT_SECONDS

ANSWER_SECONDS = 60


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests have a limit of time."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            # An adapter of the longer prefix, which signs requests for example, is kept.
            session.adapters.setdefault(scheme, HTTPAdapter())
            if type(session.adapters[scheme]) is HTTPAdapter:
                session.mount(scheme, _TimedAdapter())
        return session


class _TimedAdapter(HTTPAdapter):
    def send(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = (CONNECT_SECONDS, ANSWER_SECONDS)
        return super().send(*args, **kwargs)
