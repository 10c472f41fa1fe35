"""What the engine needs from the world, as protocols: clock, ids, transport.

Real ones live in `engine.edge`; a test brings its own, so that simulated time and faults
need no patching. The store's protocol is `antiphon.stores.base.Store`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from antiphon.core.manifest import WireRequest


class Clock(Protocol):
    """Time. Milliseconds are wall time since 1970; waiting follows a monotonic clock."""

    def now_ms(self) -> int:
        """Return the wall time."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once after `seconds`; call what is returned to forget it."""


class Entropy(Protocol):
    """Randomness, so that a seed can replay a run."""

    def bits(self, count: int) -> int:
        """Return a random number of `count` bits; good enough for ids and keys."""

    def fraction(self) -> float:
        """Return a number from 0 up to, not including, 1; for jitter."""


class Reply(Protocol):
    """A provider's answer, from its head on."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> dict[str, str]:
        """Response headers with lower-case names; the last one wins."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, decoded from transfer and content encoding.

        Raises:
            Cut: The connection broke before the body's own end.
        """

    async def close(self) -> None:
        """Hang up if the body has not ended; afterwards nothing of it can reach us."""


class Transport(Protocol):
    """Sends one request once. It never retries, never follows a redirect."""

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        """Send `request` and return once the head of the answer is here.

        `on_written` is called when the first byte may have left this process: from there on
        nobody can say that it was not sent.

        Raises:
            NotSent: It is certain that no byte left: name, connection or TLS failed.
            Cut: Bytes may have left and no head came back.
        """

    async def close(self) -> None:
        """Close every connection."""


class Signer(Protocol):
    """Proves to a provider who asks, where that is more than a key."""

    async def signed(self, request: WireRequest, region: str) -> WireRequest:
        """Return `request` with further headers, and its bytes as they are.

        Raises:
            NotSent: It cannot be signed.
        """


class NotSent(Exception):
    """No byte left this process.

    `code` is `dns`, `connect`, `tls`, `connect_timeout` or `credentials`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Cut(Exception):
    """The exchange broke after bytes may have left. What the provider did is not known."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
