"""Says so, once, where nobody has found out for too long what became of a dispatch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from antiphon.core.dispatch import State
from antiphon.core.events import DispatchChanged, decode_event
from antiphon.core.ids import OperationId
from antiphon.core.manifest import Purpose
from antiphon.core.records import StoredEvent
from antiphon.engine.world import World
from antiphon.errors import StoreError

log = logging.getLogger("antiphon.dispatch")


class Overdue:
    """Watches dispatches from the moment that they become UNKNOWN until they are not any more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limit_s = world.settings.unknown_limit_s
        self._watched: dict[OperationId, Callable[[], None]] = {}
        self._looking: set[asyncio.Task[None]] = set()
        world.store.on_events(self._take)

    async def start(self) -> None:
        """Watch what was unknown before this process began; its time runs from now."""
        for attempt in await self._world.store.attempts_in({State.UNKNOWN}):
            if attempt.purpose is Purpose.TURN:
                self._watch(attempt.operation)

    def close(self) -> None:
        """Watch no longer."""
        for forget in self._watched.values():
            forget()
        self._watched.clear()
        for task in self._looking:
            task.cancel()

    def _take(self, events: list[StoredEvent]) -> None:
        for stored in events:
            event = decode_event(stored.data)
            if not isinstance(event, DispatchChanged):
                continue
            if event.state is State.UNKNOWN:
                self._watch(event.operation)
            elif (forget := self._watched.pop(event.operation, None)) is not None:
                forget()

    def _watch(self, operation: OperationId) -> None:
        if operation not in self._watched:
            ring = self._world.clock.call_later(self._limit_s, lambda: self._ring(operation))
            self._watched[operation] = ring

    def _ring(self, operation: OperationId) -> None:
        self._watched.pop(operation, None)
        task = asyncio.ensure_future(self._look(operation))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look(self, operation: OperationId) -> None:
        """Tell of it, unless another node has settled it meanwhile."""
        try:
            attempt = (await self._world.store.attempts(operation))[-1]
        except StoreError as error:
            log.warning("Whether %s is still unknown cannot be read: %s", operation, error.message)
            return
        if attempt.state is State.UNKNOWN:
            log.warning(
                "The outcome of %s of %s has been unknown for more than %d s (%s). "
                "antiphon recover says what is known of it and what may safely be done.",
                operation,
                attempt.run,
                self._limit_s,
                attempt.error_code,
            )
