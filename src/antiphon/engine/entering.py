"""What enters the tree in the same transaction that accepts the model call about it.

An input takes its place, or the results of a step do, and the request is made of exactly that:
two changes that want one flush of the disk. So the rows are foreseen here, the request is
rendered on them, and the store carries out all of it or nothing. What was foreseen wrongly is
denied like any other claim, and then the two go one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from antiphon.core.blocks import Message
from antiphon.core.commands import PlaceResults, PlaceRun
from antiphon.core.ids import MessageId
from antiphon.core.ledger import results_message
from antiphon.core.placement import as_placed
from antiphon.core.records import Call, Conversation, Run, RunStatus
from antiphon.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Entering:
    """A command, and how the rows that a dispatch looks at stand once it is carried out.

    `message` is the new leaf of the run's line; None for a run without an input of its own.
    """

    command: PlaceRun | PlaceResults
    run: Run
    conversation: Conversation
    message: Message | None


def input_enters(
    world: World,
    conversation: Conversation,
    run: Run,
    waiting: Message | None,
    parent: MessageId | None,
) -> Entering:
    """Let the `waiting` input of a queued run take its place under `parent`."""
    command = PlaceRun(
        conversation=conversation.id,
        now_ms=world.clock.now_ms(),
        run=run.id,
        parent=parent,
        revision=conversation.revision,
        fence=world.fence,
    )
    message = None
    if waiting is not None:
        message = as_placed(
            waiting,
            conversation=conversation.id,
            session=conversation.session,
            run=run.id,
            parent=parent,
        )
    return Entering(
        command=command,
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
    )


def results_enter(
    world: World, conversation: Conversation, run: Run, calls: Sequence[Call]
) -> Entering:
    """Let the results of the closed `calls` of the run's newest message follow it."""
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
        command=command,
        run=replace(run, status=RunStatus.PENDING, leaf=message.id, end_code=None),
        conversation=replace(conversation, revision=conversation.revision + 1, slot=run.id),
        message=message,
    )
