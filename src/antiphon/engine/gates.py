"""What stands before a model: so many calls at once, so many a minute, and who waits how long.

A gate is passed before anything of a call is recorded, so a call that waits here has not begun:
it can be canceled, and nothing has to be undone. Each process counts for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from antiphon.core.ids import TenantId
from antiphon.core.traffic.fairness import FairQueue
from antiphon.engine.catalogue.models import Model
from antiphon.engine.ports import Clock
from antiphon.errors import Conflict

MINUTE_MS = 60_000


@dataclass(eq=False, slots=True)
class Ticket:
    """One call that wants to pass."""

    tenant: TenantId
    passed: asyncio.Event = field(default_factory=asyncio.Event)


class Gate:
    """One model's limits, and the calls that wait for them."""

    def __init__(self, model: Model, clock: Clock) -> None:
        self._limits = model.routing
        self._clock = clock
        self._waiting: FairQueue[Ticket] = FairQueue()
        self._within = 0
        self._next_ms = 0.0  # when the next call may pass, by the calls a minute
        self._forget: Callable[[], None] | None = None

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._waiting)

    def full_for(self, tenant: TenantId) -> bool:
        """Whether this tenant has as many calls waiting as it may have."""
        return self._waiting.of(tenant) >= self._limits.max_waiting

    def retry_after_s(self) -> int:
        """Return when it is worth trying again, in whole seconds."""
        wait_ms = max(0.0, self._next_ms - self._clock.now_ms())
        return max(1, round((wait_ms + self._pause_ms * len(self._waiting)) / 1000))

    @property
    def _pause_ms(self) -> float:
        rate = self._limits.requests_per_minute
        return 0.0 if rate is None else MINUTE_MS / rate

    def ask(self, tenant: TenantId) -> Ticket:
        """Let a call wait its turn; it may have come at once."""
        ticket = Ticket(tenant)
        self._waiting.push(tenant, ticket)
        self._let_in()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """The call has ended, or will not be made."""
        if ticket.passed.is_set():
            self._within -= 1
        else:
            self._waiting.drop(ticket.tenant, ticket)
        self._let_in()

    def _let_in(self) -> None:
        most = self._limits.max_concurrent
        while len(self._waiting) and (most is None or self._within < most):
            now_ms = self._clock.now_ms()
            if now_ms < self._next_ms:
                self._look_again((self._next_ms - now_ms) / 1000)
                return
            self._next_ms = max(self._next_ms, now_ms) + self._pause_ms
            self._within += 1
            self._waiting.pop().passed.set()

    def _look_again(self, after_s: float) -> None:
        if self._forget is None:
            self._forget = self._clock.call_later(after_s, self._ring)

    def _ring(self) -> None:
        self._forget = None
        self._let_in()


class Gates:
    """The gate of each model that has limits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gates: dict[str, Gate] = {}

    @property
    def waiting(self) -> int:
        """How many calls wait before all models."""
        return sum(gate.waiting for gate in self._gates.values())

    def check(self, model: Model, tenant: TenantId) -> None:
        """Refuse a run that could only wait behind too many others.

        Raises:
            Conflict: `model_busy`, and when it is worth trying again.
        """
        gate = self._of(model)
        if gate is not None and gate.full_for(tenant):
            raise Conflict(
                "Too many calls wait for this model already. Try again later.",
                code="model_busy",
                at=model.name,
                retryable=True,
                retry_after_s=gate.retry_after_s(),
            )

    @asynccontextmanager
    async def passed(
        self,
        model: Model,
        tenant: TenantId,
        until: Callable[[asyncio.Future[Any]], Awaitable[object]],
    ) -> AsyncIterator[None]:
        """Be past the model's gate within; `until` waits, and gives up where the run was canceled."""
        gate = self._of(model)
        if gate is None:
            yield
            return
        ticket = gate.ask(tenant)
        try:
            if not ticket.passed.is_set():
                turn = asyncio.ensure_future(ticket.passed.wait())
                try:
                    await until(turn)
                finally:
                    turn.cancel()
            yield
        finally:
            gate.leave(ticket)

    def _of(self, model: Model) -> Gate | None:
        if not model.routing.limited:
            return None
        return self._gates.setdefault(model.name, Gate(model, self._clock))
