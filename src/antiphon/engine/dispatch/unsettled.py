"""What nobody knows the outcome of: dispatches and tool calls, and what may safely be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec.structs import replace

from antiphon.core import recovery
from antiphon.core.dispatch import ACTIVE, State
from antiphon.core.manifest import Purpose
from antiphon.core.records import Attempt, Call, CallState
from antiphon.engine.dispatch.targets import adapter_of
from antiphon.engine.world import World

Action: TypeAlias = Literal["settle", "ended", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """An attempt in flight or unknown, and the next safe thing to do; None is to wait.

    `policy` is its profile's ladder out of UNKNOWN, best first.
    """

    attempt: Attempt
    age_ms: int
    policy: tuple[recovery.Rung, ...]
    action: recovery.NextAction | None

    @property
    def actions(self) -> tuple[Action, ...]:
        """What somebody may safely do: `settle` what is proven, say that it has `ended`, `cancel`."""
        match self.action:
            case None:
                return ("cancel",)
            case recovery.ConfirmEnded():
                return ("settle", "cancel")
            case _:
                return ("ended", "cancel")


async def unsettled(world: World, *, at_work: bool, successor: bool) -> list[Unsettled]:
    """Return every attempt whose outcome is open.

    Args:
        world: The store and the time.
        at_work: Whether some process works in the database: what is in flight is its business.
        successor: Whether who asks holds the database, or might: then whoever held it before
            is dead, and holds no connection.
    """
    return [
        await looked_at(world, attempt, at_work=at_work, successor=successor)
        for attempt in await world.store.attempts_in(ACTIVE)
        # What is asked beside a turn holds up nothing, and the next start drops it.
        if attempt.purpose is Purpose.TURN
    ]


async def looked_at(world: World, attempt: Attempt, *, at_work: bool, successor: bool) -> Unsettled:
    """Return an active attempt with its age and what may be done about it."""
    now_ms = world.clock.now_ms()
    since = attempt.ended_ms or attempt.written_ms or attempt.accepted_ms or now_ms
    manifest, _ = await world.store.manifest(attempt.operation)
    adapter = await adapter_of(world, manifest)
    action = None
    if not at_work or attempt.state is State.UNKNOWN:
        action = recovery.next_action(
            # What is in flight when its process dies becomes UNKNOWN first.
            replace(attempt, state=State.UNKNOWN),
            adapter.recovery,
            recovery.Witness(closed=successor),
            now_ms=now_ms,
            closing_ends=adapter.closing_ends,
        )
    return Unsettled(
        attempt=attempt,
        age_ms=max(0, now_ms - since),
        policy=adapter.recovery,
        action=action,
    )


async def unknown_calls(world: World) -> list[Call]:
    """Return the tool calls of open runs that may or may not have taken effect."""
    return [
        call
        for row in await world.store.open_runs()
        for call in await world.store.calls(row.conversation, row.id)
        if call.state is CallState.UNKNOWN
    ]
