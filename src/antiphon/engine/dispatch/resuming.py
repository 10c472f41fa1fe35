"""An answer that its provider keeps, asked after by its handle until it is whole or known to be lost.

The call itself is never made again here: what is asked for is what the one call came to. Each
time that the provider begins to answer, the attempt is STREAMING again, in our hands; each time
that it is cut, nobody knows again. When nobody has answered by the attempt's deadline, the next
rung of the profile's ladder says what is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from antiphon.adapters.base import Resumable
from antiphon.core import recovery
from antiphon.core.answers.answer import Answer
from antiphon.core.commands import Refuse
from antiphon.core.dispatch import Denied
from antiphon.core.records import Attempt, Run
from antiphon.engine.dispatch.exchange import (
    Answered,
    Exchange,
    Outcome,
    Overtaken,
    Rejected,
    Watchdog,
)
from antiphon.engine.dispatch.settlement import (
    Accepted,
    Again,
    GaveUp,
    Kept,
    Settled,
    Settlement,
    Stepped,
)
from antiphon.engine.ports import Cut, NotSent, Reply
from antiphon.engine.runs.control import Control
from antiphon.engine.world import World

GONE: Final = frozenset({404, 410})
"""Statuses of a provider that knows of no such response: it has expired, or was never kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked after, and with what.

    Attributes:
        accepted: The attempt as it was accepted, or as it was found.
        api_key: For the provider.
        fresh: Makes an exchange that has read nothing yet.
        saw_cut: Whether this process saw the connection break.
    """

    accepted: Accepted
    api_key: str | None
    fresh: Callable[[], Exchange]
    saw_cut: bool


class Resuming:
    """Reads on what was cut. One instance serves all conversations."""

    def __init__(self, world: World, settlement: Settlement) -> None:
        self._world = world
        self._settlement = settlement

    async def settle(
        self, asked: Asked, kept: Kept, exchange: Exchange, control: Control
    ) -> Stepped | Run | Again | GaveUp:
        """Ask until the answer is settled, and return how the run goes on.

        Whatever comes of it, the run is not left UNKNOWN before its deadline: it is answered,
        ended, canceled or in other hands.
        """
        accepted, attempt, tries = asked.accepted, kept.attempt, 0
        while not control.canceled:
            settled, exchange = await self._ask(asked, attempt, exchange, control)
            if not isinstance(settled, Kept):
                return settled
            attempt, tries = settled.attempt, tries + 1
            policy = self._world.settings.retry_policy
            over = self._world.clock.now_ms() >= attempt.deadline_ms
            if over and tries > policy.retries:
                witness = recovery.Witness(closed=True, saw_cut=asked.saw_cut, unanswered=True)
                settled = await self._settlement.descend(accepted, attempt, witness)
                assert not isinstance(settled, Kept)
                return settled
            wait_ms = recovery.backoff_ms(
                replace(policy, retries=tries),
                made=tries,
                fraction=self._world.entropy.fraction(),
                retry_after_ms=None,
            )
            await control.pause((wait_ms or 0) / 1000)
        return await self._world.store.run(accepted.conversation, accepted.run)

    async def stop(self, asked: Asked, handle: str) -> None:
        """Tell the provider that nobody waits any more; whether it listens is its own affair."""
        world, target = self._world, asked.accepted.target
        if not isinstance(target.adapter, Resumable):
            return
        wait_s = world.settings.connect_timeout_s
        deadline_ms = world.clock.now_ms() + int(wait_s * 1000)
        reply: Reply | None = None
        try:
            with Watchdog(world, idle_s=wait_s, deadline_ms=deadline_ms) as scope:
                async with scope:
                    reply = await world.transport.send(
                        target.adapter.cancel(target.policy, handle),
                        api_key=asked.api_key,
                        connect_timeout_s=wait_s,
                        on_written=lambda: None,
                    )
        except (NotSent, Cut, TimeoutError):
            pass
        finally:
            if reply is not None:
                await reply.close()

    async def _ask(
        self, asked: Asked, attempt: Attempt, exchange: Exchange, control: Control
    ) -> tuple[Settled, Exchange]:
        """Ask once. What is still unknown then comes with the exchange to go on with."""
        accepted, adapter = asked.accepted, asked.accepted.target.adapter
        assert isinstance(adapter, Resumable)
        assert attempt.handle is not None
        policy = accepted.target.policy
        if exchange.position is None:
            exchange = asked.fresh()
        request = adapter.resume(policy, attempt.handle, after=exchange.position)
        try:
            with control.over(exchange):
                outcome = await exchange.resume(request, api_key=asked.api_key)
        except BaseException:
            if exchange.taken_up:
                lost = self._settlement.lost(accepted, "interrupted", shown=exchange.live.shown)
                self._world.store.submit(lost)
            raise
        match outcome:
            case Overtaken():
                return await self._world.store.run(accepted.conversation, accepted.run), exchange
            case Answered(answer) if answer.committable:
                return await self._settlement.commit(accepted, answer), exchange
            case Answered(answer) if answer.definite:
                return await self._ended(asked, answer, exchange), exchange
            case Answered():
                goes_on = exchange.position is not None
                again = await self._settlement.settle(
                    accepted, outcome, exchange.live, goes_on=goes_on
                )
                return again, exchange
            case Rejected(status=status) if status in GONE:
                witness = recovery.Witness(saw_cut=asked.saw_cut, queried_ended=True)
                return await self._settlement.descend(accepted, attempt, witness), exchange
            case Rejected(verdict=verdict) if verdict.definite and not verdict.retryable:
                return await self._look(asked, attempt, control), exchange
            case _:
                return await self._unread(asked, attempt, exchange, outcome), exchange

    async def _unread(
        self, asked: Asked, attempt: Attempt, exchange: Exchange, outcome: Outcome
    ) -> Settled:
        """Return how an attempt stands that was perhaps taken up, and then cut while it was read."""
        accepted = asked.accepted
        now = (await self._world.store.attempts(accepted.attempt.operation))[-1]
        if now.state is attempt.state:
            return Kept(attempt)  # nobody answered
        goes_on = exchange.position is not None
        return await self._settlement.settle(accepted, outcome, exchange.live, goes_on=goes_on)

    async def _look(self, asked: Asked, attempt: Attempt, control: Control) -> Settled:
        """Ask for the answer in one piece, since the provider will not stream it."""
        accepted, adapter = asked.accepted, asked.accepted.target.adapter
        assert isinstance(adapter, Resumable)
        assert attempt.handle is not None
        exchange = asked.fresh()
        request = adapter.query(accepted.target.policy, attempt.handle)
        with control.over(exchange):
            outcome = await exchange.look(request, api_key=asked.api_key)
        match outcome:
            case Answered(answer) if answer.committable:
                return await self._settlement.commit(accepted, answer, found=True)
            case Answered(answer) if answer.definite:
                return await self._confirmed(asked, attempt, answer)
            case Rejected(verdict=verdict) if verdict.definite and not verdict.retryable:
                witness = recovery.Witness(saw_cut=asked.saw_cut, queried_ended=True)
                return await self._settlement.descend(accepted, attempt, witness)
            case _:
                return Kept(attempt)

    async def _ended(self, asked: Asked, answer: Answer, exchange: Exchange) -> Settled:
        """The provider has finished, with what may not be committed: that proves the end."""
        accepted = asked.accepted
        unknown = await self._world.do(
            Refuse(
                conversation=accepted.conversation,
                now_ms=self._world.clock.now_ms(),
                operation=accepted.attempt.operation,
                generation=accepted.attempt.generation,
                fence=self._world.fence,
                code=answer.error or "provider_error",
                shown=exchange.live.shown,
            )
        )
        if isinstance(unknown, Denied):
            return await self._world.store.run(accepted.conversation, accepted.run)
        return await self._confirmed(asked, unknown, answer)

    async def _confirmed(self, asked: Asked, unknown: Attempt, answer: Answer) -> Settled:
        saw_cut = asked.saw_cut and answer.retryable
        witness = recovery.Witness(saw_cut=saw_cut, queried_ended=True)
        code = answer.error or "provider_error"
        return await self._settlement.descend(asked.accepted, unknown, witness, code)
