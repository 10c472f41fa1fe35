"""Responses as the engine begins them: one transaction from the request to its acknowledgement.

What a request starts is a stretch of a run, of a new one or of one that waits for outputs. The
response, its content, the messages that it brings and the run are durable together, or none
of them is. A request that is a repetition finds what the first one began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from antiphon.adapters.base import RenderedLine, Rendering
from antiphon.core.blocks import Message, Status, ToolResult, block_id
from antiphon.core.commands import (
    AddMessages,
    Command,
    CreateConversation,
    EndRun,
    FinishCall,
    GiveFile,
    NotePrefix,
    OpenResponse,
    PlaceResults,
    PutContent,
    StartKey,
    StartRun,
)
from antiphon.core.digests import digest
from antiphon.core.dispatch import Denied
from antiphon.core.ids import (
    ConversationId,
    Digest,
    MessageId,
    ResponseId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.records import CallState, Conversation, Response, Run, RunKind, RunStatus
from antiphon.engine.engine import Engine
from antiphon.engine.runs.refusals import refusal
from antiphon.engine.runs.terms import Terms
from antiphon.engine.texts import storable
from antiphon.errors import SequenceRejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A request, as far as its response remembers it, and how it is to be taken.

    See `OpenResponse` for `attach` and `StartRun` for `alone`.
    """

    previous: ResponseId | None
    request: bytes
    stored: bool = True
    key: StartKey | None = None
    attach: bool = True
    alone: bool = False
    files: tuple[str, ...] = ()
    """Files of the tenant's that it names."""
    prefix: Digest | None = None
    """Under which the history that was brought is to be known again."""


class Moved(Exception):
    """What the caller had looked at has moved: it looks again."""


def foreseen(engine: Engine, tenant: TenantId, *, scheduling: bool | None = None) -> Conversation:
    """Return the row of a conversation that is to be created with its first response."""
    world, now_ms = engine.world, engine.world.clock.now_ms()
    return Conversation(
        id=ConversationId(world.new_id("conv_")),
        tenant=tenant,
        session=SessionId(world.new_id("sess_")),
        head=None,
        revision=0,
        cancel_generation=0,
        attempt_generation=0,
        active_operation=None,
        slot=None,
        title=None,
        created_ms=now_ms,
        updated_ms=now_ms,
        last_event=0,
        scheduling=scheduling,
    )


def placed(
    engine: Engine, row: Conversation, parent: MessageId | None, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """Return `messages` as nodes to be, one under the other below `parent`, with ids of ours."""
    nodes = []
    for message in messages:
        node = replace(
            message,
            id=MessageId(engine.world.new_id("msg_")),
            conversation=row.id,
            parent=parent,
            session=row.session,
            created_ms=engine.world.clock.now_ms(),
        )
        nodes.append(node)
        parent = node.id
    return tuple(nodes)


def places_of(
    nodes: Sequence[Message], said: Sequence[Message], places: Mapping[str, str]
) -> Mapping[str, str]:
    """Return where in its request each message and block of `nodes` stands.

    Args:
        nodes: As `placed` made them.
        said: What they were made of, with ids that are places of the request.
        places: Of blocks whose place is not their id.
    """
    found: dict[str, str] = {}
    for node, message in zip(nodes, said, strict=True):
        found[node.id] = places.get(message.id, message.id)
        for order in range(len(node.blocks)):
            own = block_id(message.id, order)
            found[block_id(node.id, order)] = places.get(own, own)
    return found


def rendered(line: RenderedLine, nodes: Sequence[Message], places: Mapping[str, str]) -> Rendering:
    """Return the request for `line` with `nodes` behind it; the line is fed.

    Raises:
        SequenceRejected: It could not be sent; the findings are at their places in the request.
    """
    for node in nodes:
        line.feed(node)
    try:
        return line.finish()
    except SequenceRejected as error:
        findings = [replace(f, at=places.get(f.at, f.at)) for f in error.findings]
    raise SequenceRejected(findings)


def rendered_anew(
    engine: Engine,
    row: Conversation,
    terms: Terms,
    line: RenderedLine,
    nodes: Sequence[Message],
    places: Mapping[str, str],
    *,
    adapter: Digest,
) -> Rendering:
    """Return the request for `nodes` on an empty `line` of `adapter`, in a conversation to be.

    The line is kept warm as it stands before the last of them, so that the run on it does not
    begin another, nor render a history that was brought a second time.

    Raises:
        SequenceRejected: As `rendered`.
    """
    lines = engine.world.lines
    before = nodes[:-1]
    for node in before:
        line.feed(node)
    lines.keep(
        row,
        line,
        before[-1].id if before else None,
        adapter=adapter,
        policy_digest=terms.options.policy_digest,
        toolset_digest=terms.options.toolset_digest,
        said=before,
    )
    try:
        return rendered(line.copy(), nodes[-1:], places)
    except SequenceRejected:
        lines.forget(row.id)
        raise


async def begin(
    engine: Engine,
    row: Conversation,
    opening: Opening,
    terms: Terms,
    nodes: Sequence[Message],
    *,
    parent: MessageId | None,
    new: bool = False,
    at_root: bool = False,
) -> Response:
    """Start a run on `nodes` below `parent`, and return its response; it is durable then.

    The last node is the run's input where it is pending; otherwise the run has none of its own
    and answers what stands there. Without nodes it answers `parent` once more.

    Raises:
        Conflict: The key is another request's, the queue is full, or messages came for a
            conversation that is at work.
    """
    commands: list[Command[Any]] = []
    now_ms = engine.world.clock.now_ms()
    if new:
        commands.append(
            CreateConversation(
                conversation=row.id,
                now_ms=now_ms,
                tenant=row.tenant,
                session=row.session,
                scheduling=row.scheduling,
            )
        )
    run = RunId(engine.world.new_id("run_"))
    commands.append(await _opened(engine, row, opening, run, nodes))
    commands += await _content(engine, row, opening, terms)
    commands += _started(engine, row, opening, run, terms, nodes, parent=parent, at_root=at_root)
    end = nodes[-1].id if nodes else parent
    if opening.prefix is not None and end is not None:
        commands.append(
            NotePrefix(conversation=row.id, now_ms=now_ms, digest=opening.prefix, message=end)
        )
    with storable("input"):
        done = await engine.start_run(row, *commands)
    return await _response(engine, row, opening, done)


async def bring(
    engine: Engine,
    row: Conversation,
    opening: Opening,
    terms: Terms,
    run: Run,
    results: Sequence[ToolResult],
    nodes: Sequence[Message] = (),
) -> Response:
    """Bring the outputs that `run` waits for, and return the response; it is durable then.

    Asked on the same terms and told nothing else, the run itself goes on. Otherwise it ends
    with its outputs, and another run answers them, or the `nodes` below them.

    Raises:
        Moved: It waits no longer.
        Conflict: As `begin`; or `conversation_busy`, where other terms meet a run at work.
    """
    now_ms = engine.world.clock.now_ms()
    finished: list[Command[Any]] = [
        FinishCall(
            conversation=row.id,
            now_ms=now_ms,
            run=run.id,
            call_id=result.call_id,
            state=CallState.SUCCESS,
            content=result.content,
        )
        for result in results
    ]
    content = await _content(engine, row, opening, terms)
    if not nodes and run.options == terms.options:
        goes_on = await _opened(engine, row, opening, run.id, (), continues=True)
        return await _carried_out(engine, row, opening, [goes_on, *content, *finished])
    next_run = RunId(engine.world.new_id("run_"))
    opened = await _opened(engine, row, opening, next_run, nodes)
    under = MessageId(engine.world.new_id("msg_"))
    below = tuple(replace(node, parent=under) for node in nodes[:1]) + tuple(nodes[1:])
    commands: list[Command[Any]] = [
        opened,
        *content,
        *finished,
        PlaceResults(
            conversation=row.id, now_ms=now_ms, run=run.id, message=under, fence=engine.world.fence
        ),
        EndRun(
            conversation=row.id,
            now_ms=now_ms,
            run=run.id,
            status=RunStatus.SUCCESS,
            fence=engine.world.fence,
        ),
        *_started(engine, row, opening, next_run, terms, below, parent=under),
    ]
    return await _carried_out(engine, row, opening, commands)


async def _opened(
    engine: Engine,
    row: Conversation,
    opening: Opening,
    run: RunId,
    nodes: Sequence[Message],
    *,
    continues: bool = False,
) -> OpenResponse:
    key = await engine.world.store.tenant_key(row.tenant)
    return OpenResponse(
        conversation=row.id,
        now_ms=engine.world.clock.now_ms(),
        response=ResponseId(engine.world.new_id("resp_")),
        run=run,
        previous=opening.previous,
        request=digest(key, "request", opening.request),
        input=tuple(node.id for node in nodes),
        stored=opening.stored,
        key=opening.key,
        attach=opening.attach,
        continues=continues,
    )


async def _content(
    engine: Engine, row: Conversation, opening: Opening, terms: Terms
) -> list[Command[Any]]:
    key = await engine.world.store.tenant_key(row.tenant)
    request = (digest(key, "request", opening.request), opening.request)
    now_ms = engine.world.clock.now_ms()
    return [
        PutContent(conversation=row.id, now_ms=now_ms, items=(*terms.content, request)),
        *(
            GiveFile(conversation=row.id, now_ms=now_ms, file=file, lent=not opening.stored)
            for file in opening.files
        ),
    ]


def _started(
    engine: Engine,
    row: Conversation,
    opening: Opening,
    run: RunId,
    terms: Terms,
    nodes: Sequence[Message],
    *,
    parent: MessageId | None,
    at_root: bool = False,
) -> list[Command[Any]]:
    """Return the commands that add what came before, and start a run on it."""
    now_ms = engine.world.clock.now_ms()
    pending = nodes[-1] if nodes and nodes[-1].status is Status.PENDING else None
    before = tuple(nodes[:-1] if pending else nodes)
    commands: list[Command[Any]] = []
    if before:
        commands.append(AddMessages(conversation=row.id, now_ms=now_ms, messages=before, head=None))
        parent, at_root = before[-1].id, False
    commands.append(
        StartRun(
            conversation=row.id,
            now_ms=now_ms,
            run=run,
            kind=RunKind.REGENERATE if pending is None else RunKind.SEND,
            options=terms.options,
            input=pending,
            asked_parent=parent,
            at_root=at_root,
            max_queued=engine.world.settings.max_queued,
            alone=opening.alone,
        )
    )
    return commands


async def _carried_out(
    engine: Engine, row: Conversation, opening: Opening, commands: Sequence[Command[Any]]
) -> Response:
    """Carry out commands that bring something to a run that is there."""
    try:
        with storable("input"):
            done = await engine.world.store.do_all(*commands)
    finally:  # a broken connection does not say whether it was kept
        engine.kick(row.id)
    return await _response(engine, row, opening, done)


async def _response(
    engine: Engine, row: Conversation, opening: Opening, done: tuple[Any, ...] | Denied
) -> Response:
    """Return the response that was begun, or that a repetition of its request is answered by."""
    if not isinstance(done, Denied):
        return next(one for one in done if isinstance(one, Response))
    engine.world.lines.forget(row.id)  # it may end in what did not enter
    if done.reason == "response_known" and opening.key is not None:
        known = await engine.world.store.response_of_key(
            opening.key.scope, opening.key.key, engine.world.clock.now_ms()
        )
        if known is not None:
            return known[0]
    if done.reason in ("run_waiting", "call_state", "no_results", "response_known"):
        raise Moved
    raise _busy(done)


def _busy(denied: Denied) -> Exception:
    """Tell of a claim that lost: somebody is at work where this request wanted to be."""
    if denied.reason in ("slot", "no_active_operation", "open_calls"):
        return refusal(Denied("conversation_busy"))
    return refusal(denied)
