"""An interaction that the provider keeps, asked after by its handle."""

from __future__ import annotations

from urllib.parse import quote

from antiphon.adapters.gemini_interactions.profile import Wire
from antiphon.core.manifest import Policy, WireRequest


def resume(wire: Wire, policy: Policy, handle: str, after: str | None) -> WireRequest:
    """Return the request for the events behind the one named `after`, or for all of them."""
    behind = "" if after is None else f"&last_event_id={quote(after, safe='')}"
    url = f"{_url(wire, policy, handle)}?stream=true{behind}"
    return _asked(wire, "GET", url, "text/event-stream")


def query(wire: Wire, policy: Policy, handle: str) -> WireRequest:
    """Return the request for the interaction as it stands."""
    return _asked(wire, "GET", _url(wire, policy, handle), "application/json")


def cancel(wire: Wire, policy: Policy, handle: str) -> WireRequest:
    """Return the request to stop."""
    return _asked(wire, "POST", f"{_url(wire, policy, handle)}/cancel", "application/json")


def _url(wire: Wire, policy: Policy, handle: str) -> str:
    return f"{wire.url(policy.endpoint)}/{quote(handle, safe='')}"


def _asked(wire: Wire, method: str, url: str, accept: str) -> WireRequest:
    headers = tuple(sorted({"accept": accept, wire.key_header: ""}.items()))
    return WireRequest(method=method, url=url, headers=headers, chunks=())
