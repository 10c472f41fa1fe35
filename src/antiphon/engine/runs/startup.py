"""What a process does first with what another one left behind.

It may itself be killed anywhere and begun again: each step is one compared transition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from antiphon.core import recovery
from antiphon.core.commands import ClaimRun, DropQuestion, End, EndRun, Lose, LoseCall, Retry
from antiphon.core.dispatch import ACTIVE, IN_FLIGHT, Denied, State
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Purpose
from antiphon.core.records import OPEN_RUN, Attempt, Call, CallState, Run, RunStatus
from antiphon.engine.dispatch.targets import adapter_of, is_beyond
from antiphon.engine.world import World

log = logging.getLogger("antiphon.recovery")


async def recover(world: World) -> list[ConversationId]:
    """Settle what a dead process had in flight; return the conversations with work to do.

    What was in flight becomes UNKNOWN first, then what the profile's ladder allows. A call
    that may have been sent is not sent again: its run ends in error `outcome_unknown`, unless
    the settings say otherwise. What had not been sent goes on by itself.

    What a newer release has at work is left alone, and said to be.
    """
    await _settle(world, lambda attempt: True)
    return await _go_on(world, await world.store.open_runs())


async def adopt(world: World, runs: Sequence[Run]) -> list[ConversationId]:
    """Do the same with runs of nodes that are gone; the others' are left alone.

    A run that was claimed before may have gone on here meanwhile, since a client's word came. What
    this process has begun in it is at work.
    """
    names = {run.id for run in runs if run.node is not None}
    if names:
        await _settle(world, lambda attempt: attempt.run in names and not _is_ours(world, attempt))
    rows = [await world.store.run(run.conversation, run.id) for run in runs]
    return await _go_on(world, [run for run in rows if run.open])


async def _settle(world: World, left: Callable[[Attempt], bool]) -> None:
    """Settle those attempts that were `left` by somebody who is gone."""
    for attempt in filter(left, await world.store.attempts_in(IN_FLIGHT)):
        if not await is_beyond(world, attempt.operation):
            await _lose(world, attempt, "crash")
    for attempt in filter(left, await world.store.attempts_in({State.UNKNOWN})):
        if attempt.purpose is Purpose.TURN:
            await settle_unknown(world, attempt)
        else:
            await _drop(world, attempt)


async def _go_on(world: World, runs: Iterable[Run]) -> list[ConversationId]:
    busy: dict[ConversationId, None] = {}
    for run in runs:
        if run.operation is not None and await is_beyond(world, run.operation):
            log.warning(
                "%s was taken up by a newer release, whose adapter is not known here: it is left "
                "as it is. Start that release, or cancel the run.",
                run.id,
            )
            continue
        await _take_over(world, run)
        busy[run.conversation] = None
    return list(busy)


async def _drop(world: World, question: Attempt) -> None:
    """Close what a dead process asked beside a turn: it waits for no answer any more."""
    await world.do(
        DropQuestion(
            conversation=question.conversation,
            now_ms=world.clock.now_ms(),
            operation=question.operation,
            fence=world.fence,
            code="crash",
        )
    )


async def recover_own(world: World, conversation: ConversationId) -> None:
    """Settle what this very process was at work on here when its store failed it.

    Its worker has ended, so its connections are closed: what it may have sent and has no answer
    to is UNKNOWN, as after a crash.
    """
    for attempt in await world.store.attempts_in(ACTIVE):
        if attempt.conversation == conversation and attempt.purpose is Purpose.TURN:
            if attempt.state is not State.UNKNOWN:
                await _lose(world, attempt, "interrupted")
            newest = (await world.store.attempts(attempt.operation))[-1]
            if newest.state is State.UNKNOWN:
                await settle_unknown(world, newest)
    for run in await world.store.runs(conversation, OPEN_RUN):
        await _take_over(world, run, ended=True)


async def _lose(world: World, attempt: Attempt, code: str) -> None:
    await world.do(
        Lose(
            conversation=attempt.conversation,
            now_ms=world.clock.now_ms(),
            operation=attempt.operation,
            generation=attempt.generation,
            fence=world.fence,
            code=code,
            shown=True,
        )
    )


async def settle_unknown(world: World, attempt: Attempt) -> recovery.NextAction:
    """Do the next safe thing with an UNKNOWN attempt, and return what that was.

    Where the store is one process's alone, this one is the successor of the one that held the
    socket, on the same machine under the same lock: that one is dead, so its connections are
    closed. So are those of what this process itself has let go of. Of another node's nobody here
    knows anything.
    """
    if await is_beyond(world, attempt.operation):
        return recovery.AskOperator()
    manifest, _ = await world.store.manifest(attempt.operation)
    adapter = await adapter_of(world, manifest)
    action = recovery.next_action(
        attempt,
        adapter.recovery,
        recovery.Witness(closed=_closed(world, attempt)),
        now_ms=world.clock.now_ms(),
        closing_ends=adapter.closing_ends,
    )
    match action:
        case recovery.ConfirmEnded(proof):
            await confirm_ended(world, attempt, proof)
        case recovery.QueryHandle():
            pass  # the conversation's worker reads on
        case recovery.ReplayRequest():
            pass  # no profile of this release has this rung
        case recovery.WaitUntil() | recovery.AskOperator():
            pass  # shown as UNKNOWN until then
        case _:
            assert_never(action)
    return action


async def confirm_ended(world: World, attempt: Attempt, proof: str) -> None:
    """Record why nothing of the attempt can reach us any more, and let its run go on or end."""
    ended = await world.do(
        End(
            conversation=attempt.conversation,
            now_ms=world.clock.now_ms(),
            operation=attempt.operation,
            generation=attempt.generation,
            proof=proof,
        )
    )
    if not isinstance(ended, Denied):
        await _after_end(world, attempt)


async def _after_end(world: World, attempt: Attempt) -> None:
    """Let the run of an attempt whose outcome stayed unknown end, or try once more."""
    witness = recovery.Witness(closed=_closed(world, attempt))
    resend = recovery.may_resend(
        world.settings.resend_after_unknown, witness, resent=attempt.number - 1
    )
    if resend:
        await world.do(
            Retry(
                conversation=attempt.conversation,
                now_ms=world.clock.now_ms(),
                operation=attempt.operation,
                attempts_allowed=world.settings.retries + 1,
            )
        )
        return
    await world.do(
        EndRun(
            conversation=attempt.conversation,
            now_ms=world.clock.now_ms(),
            run=attempt.run,
            status=RunStatus.ERROR,
            fence=world.fence,
            error_code="outcome_unknown",
        )
    )


async def _take_over(world: World, run: Run, *, ended: bool = False) -> None:
    """Claim a run, and give up on calls that are executed by nobody any more.

    `ended` says that what this process itself was at work on has ended, too.
    """
    if run.status is RunStatus.UNKNOWN:
        operations = await world.store.operations(run.conversation, run.id)
        attempt = (await world.store.attempts(operations[-1]))[-1]
        if attempt.state is State.FAILED:
            # The process died after the attempt had been confirmed ended, and before its run was.
            await _after_end(world, attempt)
            return
    if run.status in (RunStatus.PENDING, RunStatus.UNKNOWN):
        await world.do(
            ClaimRun(
                conversation=run.conversation,
                now_ms=world.clock.now_ms(),
                run=run.id,
                fence=world.fence,
            )
        )
    for call in await world.store.calls(run.conversation, run.id):
        ours = _is_ours(world, call)
        if call.state is CallState.EXECUTING and (ended or not ours):
            await world.do(
                LoseCall(
                    conversation=run.conversation,
                    now_ms=world.clock.now_ms(),
                    run=run.id,
                    call_id=call.call_id,
                    fence=world.fence if ours else None,
                )
            )


def _closed(world: World, attempt: Attempt) -> bool:
    """Whether the connection that carried an attempt is known to be closed."""
    return world.alone or _is_ours(world, attempt)


def _is_ours(world: World, work: Attempt | Call) -> bool:
    """Whether this process has begun it, under the epoch that it has now."""
    return (work.node, work.epoch) == (world.fence.node, world.fence.epoch)
