"""Where a request goes on: below which message, and which outputs have to come first.

A response that completed is gone on from below its last message. One that waits takes the
outputs of all its calls, each once; one that failed or was canceled is gone on from the last
closed point of its line. Outputs that came before make another answer beside the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from antiphon.core.blocks import Message, Role, ToolResult
from antiphon.core.ids import CallId, MessageId, TenantId
from antiphon.core.placement import refuses_new_text
from antiphon.core.records import TERMINAL_CALL, Call, Conversation, Run, RunStatus
from antiphon.core.tree import last_closed_point
from antiphon.engine.engine import Engine
from antiphon.engine.keeping.looking import back_to, is_answer
from antiphon.engine.runs.responding import foreseen
from antiphon.errors import Conflict, Erased, NotFound, Refused
from antiphon.server.responses.output import is_clients
from antiphon.server.responses.reading import find, so_far
from antiphon.server.responses.write import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where a request goes on.

    Attributes:
        row: The conversation.
        new: Whether it is still to be created.
        parent: The message below which it goes; None for the root, or where it is not settled.
        settled: Whether `parent` is known now, and not only when the run is placed.
        waiting: The run that waits for outputs here.
        calls: The calls of the newest message of the line, by their ids, where it has any.
        answered: The message that holds the results of those calls, once they have come.
    """

    row: Conversation
    new: bool = False
    parent: MessageId | None = None
    settled: bool = True
    waiting: Run | None = None
    calls: Mapping[CallId, Call] = field(default_factory=dict)
    answered: Message | None = None

    @property
    def ends_in_calls(self) -> bool:
        """Whether nothing but outputs can go here."""
        return any(call.message == self.parent for call in self.calls.values())


def of_nothing(engine: Engine, tenant: TenantId) -> Ground:
    """Return the ground of a request that goes on from nothing: a new conversation."""
    return Ground(row=foreseen(engine, tenant), new=True)


async def of_conversation(engine: Engine, row: Conversation, *, outputs: bool) -> Ground:
    """Return the ground of a request in a conversation: its head, found again at placement.

    `outputs` says that results come first: then the calls that they are for are looked up.
    """
    store = engine.world.store
    waiting = await store.runs(row.id, {RunStatus.WAITING})
    if row.head is None or not (waiting or outputs):
        return Ground(row=row, settled=row.head is None and not await _busy(engine, row))
    begins = _asks if outputs else is_answer
    path = await back_to(store, row, row.head, begins)
    opened = refuses_new_text(path, waiting) if waiting else ()
    asking = next((m for m in reversed(path) if m.calls), None)
    if asking is None or asking.run is None or (not opened and not outputs):
        return Ground(row=row, settled=False)
    calls = await _calls(engine, row, asking)
    if opened:
        run = next((run for run in waiting if run.id == asking.run), None)
        return Ground(row=row, parent=asking.id, waiting=run, calls=calls)
    below = path[path.index(asking) + 1 :]
    return Ground(
        row=row,
        parent=last_closed_point(path),
        calls=calls,
        answered=next((m for m in below if m.role is Role.TOOL), None),
    )


async def _busy(engine: Engine, row: Conversation) -> bool:
    return row.slot is not None or bool(await engine.world.store.runs(row.id, {RunStatus.QUEUED}))


async def of_response(engine: Engine, tenant: TenantId, previous: str) -> Ground:
    """Return the ground of a request that goes on from a response.

    Raises:
        NotFound: `previous_response_not_found`.
        Conflict: `response_not_finished`.
    """
    try:
        known = await find(engine, tenant, previous)
    except (NotFound, Erased):
        known = None
    if known is None or not known.response.stored:
        raise NotFound(
            f"There is no stored response {previous} to go on from.",
            code="previous_response_not_found",
            at="previous_response_id",
        )
    stretch, run = await so_far(engine, known), known.run
    if not stretch.over:
        raise Conflict(
            "The response that this one goes on from is still at work. Wait for its end, or "
            "cancel it.",
            code="response_not_finished",
            at="previous_response_id",
        )
    store = engine.world.store
    row = await store.conversation(known.response.conversation)
    last = stretch.last
    if last is None or stretch.status in (Status.FAILED, Status.CANCELLED):
        return await _closed_point(engine, row, run)
    message = await store.message(row.id, last)
    calls = await _calls(engine, row, message) if message.calls else {}
    if not any(is_clients(call) for call in calls.values()):
        return Ground(row=row, parent=last)
    if run.status is RunStatus.WAITING and run.leaf == last:
        return Ground(row=row, parent=last, waiting=run, calls=calls)
    children = await store.children(row.id, last)
    answered = next((m for m in children if m.role is Role.TOOL and m.run == run.id), None)
    if run.status is RunStatus.CANCELED and (answered is None or answered.id == run.leaf):
        return await _closed_point(engine, row, run, calls, answered)
    return Ground(row=row, parent=last, calls=calls, answered=answered)


async def _closed_point(
    engine: Engine,
    row: Conversation,
    run: Run,
    calls: Mapping[CallId, Call] | None = None,
    answered: Message | None = None,
) -> Ground:
    """Return the last closed point of a run's line; the root where it has none."""
    leaf = run.leaf or run.asked_parent
    if leaf is None:
        return Ground(row=row, settled=run.at_root or row.head is None)
    # Where the newest answer is not closed, what is before it is, from the answer before that on.
    line = await back_to(engine.world.store, row, leaf, is_answer, times=2)
    parent = last_closed_point(line)
    return Ground(row=row, parent=parent, calls=calls or {}, answered=answered)


def _asks(message: Message) -> bool:
    return bool(message.calls)


async def _calls(engine: Engine, row: Conversation, message: Message) -> dict[CallId, Call]:
    if message.run is None:
        return {}
    rows = await engine.world.store.calls(row.id, message.run, message.id)
    return {call.call_id: call for call in rows}


# Outputs.


def check_outputs(ground: Ground, outputs: Sequence[tuple[ToolResult, str]]) -> None:
    """Compare the outputs that a request begins with, each with its place, to the open calls.

    Raises:
        Refused: `orphan_tool_result`, `duplicate_tool_result` or `missing_tool_result`.
    """
    seen: set[CallId] = set()
    for result, at in outputs:
        call = ground.calls.get(result.call_id)
        if call is None:
            raise Refused(
                f"No call {result.call_id!r} waits for an output here.",
                code="orphan_tool_result",
                at=at,
            )
        if result.call_id in seen:
            raise Refused(
                f"The call {result.call_id!r} is answered twice.",
                code="duplicate_tool_result",
                at=at,
            )
        seen.add(result.call_id)
        if call.state in TERMINAL_CALL and call.content != result.content:
            raise Refused(
                f"The call {result.call_id!r} has been answered with other content.",
                code="duplicate_tool_result",
                at=at,
            )
    needed = [
        call.call_id
        for call in ground.calls.values()
        if is_clients(call) and not (ground.waiting and call.state in TERMINAL_CALL)
    ]
    missing = [call_id for call_id in needed if call_id not in seen]
    if missing and (outputs or ground.ends_in_calls):
        raise Refused(
            "Calls wait for their outputs; bring each of them once, or cancel the response. "
            f"Open: {', '.join(missing)}.",
            code="missing_tool_result",
            at="input",
        )
