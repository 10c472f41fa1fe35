"""Dispatches whose outcome is open, and tool calls of unknown fate: what may safely be done.

Nothing here sends anything. A dispatch that may have been carried out is never sent again
because somebody asked; what can be done is to wait, to prove that it has ended, or to cancel.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core import recovery
from antiphon.core.asking import Output
from antiphon.core.dispatch import ACTIVE, State
from antiphon.core.ids import CallId, ConversationId, OperationId, RunId
from antiphon.core.records import Attempt, Call, Run
from antiphon.core.recovery import Rung
from antiphon.core.traffic.keys import Right
from antiphon.engine.dispatch.unsettled import (
    Action,
    Unsettled,
    looked_at,
    unknown_calls,
    unsettled,
)
from antiphon.engine.runs.startup import confirm_ended, settle_unknown
from antiphon.errors import Conflict, InvalidInput
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Body, Query, answer, decoded, engine_of, queried
from antiphon.server.rights.principals import principal_of
from antiphon.server.rights.scope import view_of

PATH: Final = "/antiphon/v1/dispatches"


class Listing(Query, frozen=True, kw_only=True):
    """Which of the dispatches that are open; all of them by default."""

    state: Literal["UNKNOWN", "DISPATCHING", "SENT", "STREAMING"] | None = None


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """A dispatch whose outcome is open.

    `sent` says whether a byte of it is known to have left, `policy` by which ways, best first, its
    profile leads out of UNKNOWN. `actions` may safely be taken: `settle` where it is proven that nothing of it can reach us
    any more, `ended` where a person knows that, `cancel` always. `next` says so in words.
    """

    operation: OperationId
    conversation: ConversationId
    run: RunId
    attempt: int
    generation: int
    state: State
    code: str | None
    handle: str | None
    age_ms: int
    deadline_ms: int
    sent: bool
    policy: tuple[Rung, ...]
    actions: tuple[Action, ...]
    next: str


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """All that is open: dispatches, oldest first, and tool calls of unknown fate."""

    data: list[Dispatch]
    calls: list[Call]


class Resolve(Body, frozen=True, kw_only=True):
    """What is to be done; `because` says how a person knows that it has ended."""

    action: Action
    because: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class Fate(Body, frozen=True, kw_only=True):
    """What became of a call that may have taken effect."""

    run: RunId
    output: str
    error: bool = False
    code: Annotated[str, Meta(min_length=1, max_length=64)] | None = None


async def _list(request: Request) -> Response:
    """List what nobody knows the outcome of, how long for, and what may be done."""
    query = queried(request, Listing)
    view = view_of(request)
    world = engine_of(request).world
    found = [
        _told(one)
        for one in await unsettled(world, at_work=True, successor=True)
        if query.state in (None, one.attempt.state) and await view.sees(one.attempt.conversation)
    ]
    calls = [call for call in await unknown_calls(world) if await view.sees(call.conversation)]
    return answer(Open(data=found, calls=calls))


async def _resolve(request: Request) -> Response:
    """Do one of the safe things about a dispatch of unknown outcome; returns its run."""
    manifest = await view_of(request).operation(request.path_params["dispatch"])
    wanted = await decoded(request, Resolve)
    engine = engine_of(request)
    attempt = (await engine.world.store.attempts(manifest.operation))[-1]
    match wanted.action:
        case "cancel":
            await engine.cancel(manifest.conversation, manifest.run, reason="operator")
        case "settle":
            await _settle(request, _unknown(attempt))
        case "ended":
            if wanted.because is None:
                raise InvalidInput("Say how it is known that it has ended.", at="because")
            proof = f"{principal_of(request).id} says: {wanted.because}"
            await confirm_ended(engine.world, _unknown(attempt), proof)
    engine.kick(manifest.conversation)
    return answer(await engine.world.store.run(manifest.conversation, manifest.run))


async def _settle(request: Request, attempt: Attempt) -> None:
    world = engine_of(request).world
    one = await looked_at(world, attempt, at_work=True, successor=True)
    if not isinstance(one.action, recovery.ConfirmEnded):
        raise Conflict(
            f"Nothing is proven yet: {_words(one.action)}.",
            code="outcome_unproven",
            at=attempt.operation,
        )
    await settle_unknown(world, attempt)


def _unknown(attempt: Attempt) -> Attempt:
    """Return the attempt, if somebody has to say what became of it."""
    if attempt.state is State.UNKNOWN:
        return attempt
    at_work = attempt.state in ACTIVE
    raise Conflict(
        "It is under way: wait, or cancel its run." if at_work else "Its outcome is known.",
        code="dispatch_not_unknown",
        at=attempt.operation,
    )


def _told(one: Unsettled) -> Dispatch:
    attempt = one.attempt
    return Dispatch(
        operation=attempt.operation,
        conversation=attempt.conversation,
        run=attempt.run,
        attempt=attempt.number,
        generation=attempt.generation,
        state=attempt.state,
        code=attempt.error_code,
        handle=attempt.handle,
        age_ms=one.age_ms,
        deadline_ms=attempt.deadline_ms,
        sent=attempt.written_ms is not None,
        policy=one.policy,
        actions=one.actions,
        next=_words(one.action),
    )


def _words(action: recovery.NextAction | None) -> str:
    match action:
        case None:
            return "wait: it is under way"
        case recovery.ConfirmEnded(proof):
            return f"settle it: {proof}"
        case recovery.WaitUntil():
            return "wait for its deadline, or cancel the run: nothing is proven before"
        case recovery.QueryHandle():
            return "the provider is asked by its handle"
        case recovery.ReplayRequest():
            return "the same bytes are sent again under the same key"
        case recovery.AskOperator():
            return "only a person can say whether it has ended"


async def _resolve_call(request: Request) -> Response:
    """Say what became of a tool call of unknown fate; its run goes on."""
    fate = await decoded(request, Fate)
    run = await view_of(request).run(fate.run)
    call = await engine_of(request).verdicts.resolve(
        run.conversation,
        run.id,
        CallId(request.path_params["call"]),
        Output(text=fate.output, error=fate.error, code=fate.code),
    )
    return answer(call)


routes: Final = [
    Endpoint("GET", PATH, _list, query=Listing, answer=Open),
    Endpoint(
        "POST",
        PATH + "/{dispatch}/resolve",
        _resolve,
        body=Resolve,
        answer=Run,
        right=Right.OPERATE,
    ),
    Endpoint(
        "POST",
        "/antiphon/v1/calls/{call}/resolve",
        _resolve_call,
        body=Fate,
        answer=Call,
        right=Right.OPERATE,
    ),
]
