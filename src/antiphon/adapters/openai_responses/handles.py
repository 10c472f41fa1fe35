"""An answer that the provider keeps, asked after by its handle."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from antiphon.adapters.openai_responses.profile import Wire
from antiphon.core.manifest import Policy, WireRequest

STREAM: Final = (("accept", "text/event-stream"),)
WHOLE: Final = (("accept", "application/json"),)


def resume(wire: Wire, policy: Policy, handle: str, after: str | None) -> WireRequest:
    """Return the request for the events behind number `after`, or for all of them."""
    behind = "" if after is None else f"&starting_after={after}"
    url = f"{_url(wire, policy, handle)}?stream=true{behind}"
    return WireRequest(method="GET", url=url, headers=STREAM, chunks=())


def query(wire: Wire, policy: Policy, handle: str) -> WireRequest:
    """Return the request for the response as it stands."""
    return WireRequest(method="GET", url=_url(wire, policy, handle), headers=WHOLE, chunks=())


def cancel(wire: Wire, policy: Policy, handle: str) -> WireRequest:
    """Return the request to stop."""
    url = f"{_url(wire, policy, handle)}/cancel"
    return WireRequest(method="POST", url=url, headers=WHOLE, chunks=())


def _url(wire: Wire, policy: Policy, handle: str) -> str:
    return f"{wire.url(policy.endpoint)}/{quote(handle, safe='')}"
