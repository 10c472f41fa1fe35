"""Asking a provider what a request costs, where an estimate is too near the edge to be believed.

A count is no dispatch: nothing is generated, nothing is recorded as sent, and whatever goes wrong
the estimate stands. It costs a round trip and shows the provider the request before its manifest
is durable, so it is asked for only where the settings say from which fill on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from antiphon.adapters.base import Rendering
from antiphon.adapters.counting import asked_to_count, count_of
from antiphon.core.ids import Digest
from antiphon.core.manifest import WireRequest
from antiphon.engine.catalogue.models import Model
from antiphon.engine.ports import Clock, Cut, NotSent, Transport
from antiphon.engine.settings import Settings

KEPT: Final = 1_024
"""Counts that are remembered: the same request costs the same."""

MOST_BYTES: Final = 64 * 1024

REFUSED: Final = frozenset({404, 405, 501})
"""There is no such endpoint: it is not asked again."""

Count: TypeAlias = Callable[[Rendering], Awaitable[int | None]]


async def nobody_counts(rendering: Rendering) -> int | None:
    """Stand where no provider may be asked."""


class Counts:
    """What providers said of requests, by their digests."""

    def __init__(self, settings: Settings, transport: Transport, clock: Clock) -> None:
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._known: OrderedDict[Digest, int] = OrderedDict()
        self._cannot: set[str] = set()

    def of(self, model: Model) -> Count:
        """Return what counts a request to `model`: its tokens, or None where nobody says."""

        async def count(rendering: Rendering) -> int | None:
            known = self._known.get(rendering.request_digest)
            if known is not None or model.base_url in self._cannot:
                return known
            question = asked_to_count(model.profile, rendering.request)
            told = None if question is None else await self._asked(model, question)
            if told is not None:
                self._known[rendering.request_digest] = told
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
            return told

        return count

    async def _asked(self, model: Model, question: WireRequest) -> int | None:
        """Ask once and shortly; an endpoint that is not there is not asked again."""
        work = asyncio.ensure_future(self._answer(model, question))
        forget = self._clock.call_later(self._settings.count_timeout_s, lambda: _stop(work))
        try:
            await asyncio.wait({work})
            return None if work.cancelled() else work.result()
        finally:
            forget()
            if not work.done():
                work.cancel()

    async def _answer(self, model: Model, question: WireRequest) -> int | None:
        try:
            reply = await self._transport.send(
                question,
                api_key=model.api_key.reveal() if model.api_key else None,
                connect_timeout_s=self._settings.connect_timeout_s,
                on_written=lambda: None,
            )
        except (NotSent, Cut):
            return None
        body = bytearray()
        try:
            async for chunk in reply.chunks():
                body += chunk
                if len(body) > MOST_BYTES:
                    return None
        except Cut:
            return None
        finally:
            await reply.close()
        if reply.status in REFUSED:
            self._cannot.add(model.base_url)
        return count_of(bytes(body)) if reply.status == 200 else None


def _stop(work: asyncio.Future[int | None]) -> None:
    work.cancel()
