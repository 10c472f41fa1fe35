"""What a request of `useChat` asks for, done: a run begun, one branched off, one decided about."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from antiphon.core.asking import Ask, Output
from antiphon.core.blocks import Block, Message, Status
from antiphon.core.digests import digest
from antiphon.core.events import RunChanged, decode_event
from antiphon.core.ids import CallId, ConversationId, MessageId, RunId, message_id, sortable
from antiphon.core.records import TERMINAL_CALL, Approval, Conversation, Run, Runner, RunStatus
from antiphon.engine.engine import Engine
from antiphon.errors import Conflict, InvalidInput, NotFound
from antiphon.server.http.body import engine_of
from antiphon.server.http.urls import check_block_urls
from antiphon.server.resources.messages import ask_of
from antiphon.server.rights.principals import principal_of
from antiphon.server.rights.scope import view_of
from antiphon.server.starting import start_key
from antiphon.server.uistream.request import Chat, Part, UIMessage, blocks_of, output_of


@dataclass(frozen=True, slots=True)
class Begun:
    """A run, and the number of the event after which its client is told of it."""

    run: Run
    since: int


async def conversation_of(request: Request, chat: str, *, create: bool = False) -> Conversation:
    """Return the conversation that a chat is: the one of this id, or the one made for this chat.

    Raises:
        NotFound: There is none, and it is not to be created.
    """
    view = view_of(request)
    name = chat if chat.startswith("conv_") else await _made_for(request, chat)
    try:
        return await view.conversation(name)
    except NotFound:
        if chat.startswith("conv_") or not create:
            raise NotFound("There is no such chat.", at=chat) from None
    return await engine_of(request).create_conversation(
        conversation=name, tenant=principal_of(request).tenant
    )


async def _made_for(request: Request, chat: str) -> str:
    """Return the id of the conversation of a chat whose id the client made: always the same."""
    tenant = principal_of(request).tenant
    secret = await engine_of(request).world.store.tenant_key(tenant)
    number = int(digest(secret, "chat", chat.encode())[:32], 16)
    return sortable("conv_", number >> 80, number)


async def begun(request: Request, chat: Chat) -> Begun:
    """Return the run that a request is about. The same request again is about the same run.

    Raises:
        AntiphonError: It is refused: nothing was changed.
    """
    engine = engine_of(request)
    ask = ask_of(request, chat.asking())
    last = chat.messages[-1]
    if last.role == "system":
        raise InvalidInput("Say it in `instructions`.", at="messages")
    if last.role == "assistant":
        return await _decided(engine, await conversation_of(request, chat.id), last)
    row = await conversation_of(request, chat.id, create=True)
    if chat.trigger == "regenerate-message":
        asked = await _shown(engine, row.id, last)
        key = await start_key(request)
        run = await engine.regenerate(row.id, asked.id, ask, key=key)
    else:
        run = await _said(engine, row, chat, last, ask)
    return Begun(run, run.seq - 1)


# Something said.


async def _said(engine: Engine, row: Conversation, chat: Chat, last: UIMessage, ask: Ask) -> Run:
    """Send the last message; one that stands there with other words was edited."""
    blocks = blocks_of(last)
    check_block_urls(engine.world.settings, blocks)
    parent = await _parent(engine, row.id, chat.messages[:-1])
    try:
        return await engine.send(row.id, blocks, ask, parent=parent, message=last.id)
    except Conflict as error:
        if error.code != "message_id_conflict":
            raise
    return await _edited(engine, row.id, message_id(last.id), blocks, ask)


async def _edited(
    engine: Engine,
    conversation: ConversationId,
    message: MessageId,
    blocks: tuple[Block, ...],
    ask: Ask,
) -> Run:
    """Add a version beside a message; the same words again are the version that has them."""
    versions = await _versions(engine, conversation, message)
    newest = versions[-1]
    name = newest.id if newest.blocks == blocks else _numbered(message, len(versions) + 1)
    return await engine.edit(conversation, message, blocks, ask, message=name)


async def _versions(
    engine: Engine, conversation: ConversationId, message: MessageId
) -> list[Message]:
    """Return a user's message and what it was edited into, in their order: one id on the screen.

    Raises:
        NotFound: It is not in the tree.
    """
    versions = [await engine.world.store.message(conversation, message)]
    while True:
        following = _numbered(message, len(versions) + 1)
        try:
            versions.append(await engine.world.store.message(conversation, following))
        except NotFound:
            return versions


def _numbered(message: MessageId, number: int) -> MessageId:
    """Return the id of a version of a message that its client keeps under one id."""
    return message_id(f"{message.partition('--')[0]}--{number}")


async def _parent(
    engine: Engine, conversation: ConversationId, before: list[UIMessage]
) -> MessageId | None:
    """Return where the newest message of the client's own line belongs.

    None is the last closed point of the head: where it shows nothing that was saved, or where
    what it shows last is still being answered.

    Raises:
        InvalidInput: `unknown_message`: it shows what was never said here.
    """
    for shown in reversed(before):
        if shown.role == "assistant":
            try:
                run = await engine.world.store.run(conversation, RunId(shown.id))
            except NotFound:
                raise _unknown(shown) from None
            if run.open:
                return None
            if run.committed > 0:
                return run.leaf
        elif shown.role == "user":
            try:
                node = await _shown(engine, conversation, shown)
            except NotFound:
                return None  # it waits for its turn
            if node.status is Status.SUCCESS:
                return node.id
            if node.status is Status.PENDING:
                return None
    return None


def _unknown(message: UIMessage) -> InvalidInput:
    return InvalidInput(
        "This answer was not given here. History is what the server has: begin with its messages.",
        code="unknown_message",
        at=message.id,
    )


async def _shown(engine: Engine, conversation: ConversationId, message: UIMessage) -> Message:
    """Return the node that says what a user's message on the screen says: its newest version.

    Raises:
        NotFound: It is not in the tree.
    """
    blocks = blocks_of(message)
    versions = await _versions(engine, conversation, message_id(message.id))
    return next((node for node in reversed(versions) if node.blocks == blocks), versions[0])


# Something decided.


async def _decided(engine: Engine, row: Conversation, last: UIMessage) -> Begun:
    """Take what a person decided, and what the page carried out, about calls of an answer."""
    store = engine.world.store
    try:
        run = await store.run(row.id, RunId(last.id))
    except NotFound:
        raise _unknown(last) from None
    since = await _waited(engine, run)
    calls = {call.call_id: call for call in await store.calls(row.id, run.id)}
    outputs: dict[str, Output] = {}
    for part in last.parts:
        call = calls.get(CallId(part.call or ""))
        if call is None or call.state in TERMINAL_CALL:
            continue
        if call.approval is Approval.NEEDED:
            await _decide(engine, run, part)
        elif call.runner is Runner.CLIENT and part.state == "output-available":
            outputs[call.call_id] = Output(text=output_of(part))
        elif call.runner is Runner.CLIENT and part.state == "output-error":
            outputs[call.call_id] = Output(text=part.error or "error", error=True)
    if outputs:
        await engine.answer(row.id, run.id, outputs)
    return Begun(run, since)


async def _decide(engine: Engine, run: Run, part: Part) -> None:
    approval = part.approval
    if part.state != "approval-responded" or approval is None or part.call is None:
        return
    if approval.approved:
        await engine.verdicts.approve(run.conversation, run.id, part.call)
    else:
        await engine.verdicts.refuse(
            run.conversation, run.id, part.call, reason=approval.reason or ""
        )


async def _waited(engine: Engine, run: Run) -> int:
    """Return the number of the event that said that the run waits: its client has all up to it."""
    since = run.seq - 1
    for row in await engine.world.store.events(run.conversation, since):
        match decode_event(row.data):
            case RunChanged(run=run.id, status=RunStatus.WAITING):
                since = row.seq
            case _:
                pass
    return since
