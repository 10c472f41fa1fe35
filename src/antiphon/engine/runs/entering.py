"""What enters the tree in the same transaction that accepts the model call about it.

An input takes its place, or the results of a step do, and the request is made of exactly that:
two changes that want one flush of the disk. So the rows are foreseen here, the request is
rendered on them, and the store carries out all of it or nothing. What was foreseen wrongly is
denied like any other claim, and then the two go one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from antiphon.core.blocks import Message
from antiphon.core.commands import Command, FinishCall, PlaceResults, PlaceRun, PutContent
from antiphon.core.ids import MessageId
from antiphon.core.inputs import InputBlock
from antiphon.core.ledger import results_message
from antiphon.core.loop import lasting
from antiphon.core.placement import as_placed
from antiphon.core.records import Call, Conversation, Run, RunStatus
from antiphon.core.retrieval import Beside, stored_beside
from antiphon.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Entering:
    """Commands, and how the rows that a dispatch looks at stand once they are carried out.

    `message` is the new leaf of the run's line, with the `inputs` that are to stand beside it;
    None for a run without an input of its own. The last command lets it enter; before it may stand the result of a call that has just ended.
    """

    commands: tuple[Command[Any], ...]
    run: Run
    conversation: Conversation
    message: Message | None
    inputs: tuple[InputBlock, ...] = ()


def input_enters(
    world: World,
    conversation: Conversation,
    run: Run,
    waiting: Message | None,
    parent: MessageId | None,
    beside: Beside | None = None,
    *,
    key: bytes = b"",
) -> Entering:
    """Let the `waiting` input of a queued run take its place under `parent`, and what is `beside` it.

    The latter is stored by its digest under the tenant's `key`.
    """
    now_ms = world.clock.now_ms()
    commands: list[Command[Any]] = []
    digest = None
    if beside is not None:
        digest, data = stored_beside(key, beside)
        commands.append(
            PutContent(conversation=conversation.id, now_ms=now_ms, items=((digest, data),))
        )
    command = PlaceRun(
        conversation=conversation.id,
        now_ms=now_ms,
        run=run.id,
        parent=parent,
        revision=conversation.revision,
        fence=world.fence,
        beside=digest,
    )
    message = None
    if waiting is not None:
        message = as_placed(
            waiting,
            conversation=conversation.id,
            session=conversation.session,
            run=run.id,
            parent=parent,
            beside=digest,
        )
    return Entering(
        commands=(*commands, command),
        run=replace(
            run,
            status=RunStatus.PENDING,
            session=conversation.session,
            leaf=parent if message is None else message.id,
            head_left=conversation.head,
        ),
        conversation=replace(
            conversation, revision=conversation.revision + (message is not None), slot=run.id
        ),
        message=message,
        inputs=beside.inputs if beside is not None else (),
    )


def with_result(calls: Sequence[Call], last: FinishCall) -> list[Call]:
    """Return `calls` as they stand once the result of one of them is stored."""
    return [
        replace(call, state=last.state, content=last.content, code=last.code)
        if call.call_id == last.call_id
        else call
        for call in calls
    ]


def results_enter(
    world: World,
    conversation: Conversation,
    run: Run,
    calls: Sequence[Call],
    last: FinishCall | None = None,
) -> Entering:
    """Let the results of the closed `calls` of the run's newest message follow it.

    `last` is the result that closed them, where it is not stored yet.
    """
    command = PlaceResults(
        conversation=conversation.id,
        now_ms=world.clock.now_ms(),
        run=run.id,
        message=MessageId(world.new_id("msg_")),
        fence=world.fence,
    )
    message = results_message(
        calls,
        message=command.message,
        parent=run.leaf,
        session=run.session,
        created_ms=command.now_ms,
    )
    return Entering(
        commands=(command,) if last is None else (last, command),
        run=replace(run, status=RunStatus.PENDING, leaf=message.id, end_code=lasting(run.end_code)),
        conversation=replace(conversation, revision=conversation.revision + 1, slot=run.id),
        message=message,
    )
