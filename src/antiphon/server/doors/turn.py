"""One request at a stateless door: begun, followed to its end, and told in the client's form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from antiphon.adapters import registry
from antiphon.adapters.base import Ending, Parsed, Rendering, Writer
from antiphon.adapters.requests import options
from antiphon.core.answers.deltas import Channel, Usage
from antiphon.core.asking import Ask
from antiphon.core.blocks import Block, Message, Opaque, Reasoning, Role, Status, Text, ToolCall
from antiphon.core.events import Preview
from antiphon.core.ids import MessageId, TenantId
from antiphon.core.planning.tokens import Calibration, scaled
from antiphon.core.records import Call, Conversation, Response, Run, Runner, RunStatus
from antiphon.core.traffic.keys import Right
from antiphon.engine.catalogue.models import Model
from antiphon.engine.catalogue.vocabularies import counter_of
from antiphon.engine.engine import Engine
from antiphon.engine.runs.responding import (
    Opening,
    begin,
    foreseen,
    placed,
    places_of,
    rendered,
    rendered_anew,
)
from antiphon.engine.runs.terms import Terms, terms
from antiphon.errors import Conflict, InvalidInput, OutcomeUnknown, SequenceRejected
from antiphon.handles.events import CallsWaiting, Committed, Ended, RunEvent, Unknown, Withdrawn
from antiphon.handles.run import RunHandle, run_error
from antiphon.library import Local
from antiphon.server.doors.recognising import Recognised, name_of, recognised
from antiphon.server.http.body import engine_of
from antiphon.server.http.sse import EventStream, Streams, left
from antiphon.server.http.urls import check_urls
from antiphon.server.mending import Mended, headers, mended, with_help
from antiphon.server.rights.admission import may_ask
from antiphon.server.rights.principals import principal_of
from antiphon.server.starting import key_of, repeated

T = TypeVar("T")

UNKNOWN_GRACE_S: Final = 2.0
"""How long an unknown outcome may stay so before the client is told. Most are settled at once."""

SESSION_LOG: Final = ("dsh_session_log", "dsh_plugin_packages")
"""What DeepSeek Harness tells its provider of its session, beside the messages: no model reads it."""

LEFT = "client_left"
"""Why a run is canceled whose client hung up: at these doors nobody else can have its answer."""

DONE = "answered"
"""Why a run is closed that waits for results: the client brings them in another request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A run begun for a client that waits for it.

    `lasting` says that the client may come back for it: it brought a key of its own.
    """

    engine: Engine
    response: Response
    run: Run
    handle: RunHandle
    lasting: bool

    async def close(self, reason: str) -> None:
        """Cancel the run where it has not ended."""
        await self.engine.cancel(self.run.conversation, self.run.id, reason=reason)

    def over(self) -> None:
        """Let what was not to be stored go, unless the client may repeat its request."""
        if not self.response.stored:
            self.engine.erasure.forget_later(self.response, had=not self.lasting)


async def begun(request: Request, parsed: Parsed, form: str, *, stored: bool) -> Turn:
    """Return the run that a request of this form started, or that its first sending had started.

    Raises:
        AntiphonError: The request is refused: nothing was sent, and nothing is recorded.
    """
    engine, principal = engine_of(request), principal_of(request)
    key = await key_of(request)
    response = await repeated(engine, key)
    if response is None:
        whole, kept = await _understood(request, parsed, form)
        opening = Opening(
            previous=None, request=b"{}", stored=stored, key=key.key, attach=key.attach
        )
        try:
            response = await _begun(engine, principal.tenant, opening, kept, whole.parsed)
        except SequenceRejected as rejected:
            raise with_help(rejected, parsed) from None
    run = await engine.world.store.run(response.conversation, response.run)
    handle = RunHandle(Local(engine), run, response.since)
    return Turn(engine=engine, response=response, run=run, handle=handle, lasting=key.brought)


async def counted(request: Request, parsed: Parsed, form: str) -> int:
    """Return how many tokens a request would send: exactly where its model's vocabulary is here.

    Raises:
        AntiphonError: It could not be sent at all.
    """
    engine = engine_of(request)
    whole, kept = await _understood(request, parsed, form)
    row = foreseen(engine, principal_of(request).tenant, scheduling=False)
    nodes = _nodes(engine, row, None, whole.parsed.messages)
    rendering = await _check(engine, row, kept, nodes, whole.parsed)
    engine.world.lines.forget(row.id)  # nothing was begun
    counter = counter_of(kept.policy.model)
    tokens = rendering.weigh(counter).total
    return tokens if counter.exact else scaled(tokens, Calibration.BEGINS)


async def _understood(request: Request, parsed: Parsed, form: str) -> tuple[Mended, Terms]:
    """Return a request as it is to be used, and what a run is to keep of it.

    Raises:
        AntiphonError: It is refused.
    """
    engine, principal = engine_of(request), principal_of(request)
    if parsed.findings:
        raise SequenceRejected(parsed.located(parsed.findings))
    for place in parsed.uncarried:
        raise InvalidInput(
            "This is not carried here. Leave it out.", code="unsupported_parameter", at=place
        )
    if any(m.role in (Role.SYSTEM, Role.DEVELOPER) for m in parsed.messages):
        principal.require(Right.INSTRUCT)
    model = engine.world.settings.models.get(parsed.policy.model or None)
    may_ask(principal, model.name)
    check_urls(engine.world.settings, parsed.messages)
    kind = engine.world.rollouts.unknown_kind(
        principal.tenant, model.name, model.profile, parsed.messages
    )
    if kind is not None:
        raise Conflict(
            f"The adapter's version that is pinned for this model does not know blocks of kind {kind}.",
            code="conversation_paused",
            at=model.name,
            retryable=True,
        )
    whole = mended(request, parsed)
    ask = replace(_ask(whole, form, model), key=principal.id)
    try:
        return whole, await terms(engine.world, principal.tenant, ask)
    except SequenceRejected as impossible:
        raise SequenceRejected(parsed.located(impossible.findings)) from None


async def _begun(
    engine: Engine, tenant: TenantId, opening: Opening, kept: Terms, parsed: Parsed
) -> Response:
    """Start the run: where the history stands already, or in a conversation of its own.

    Raises:
        SequenceRejected: It could not be sent; places are those of the request.
    """
    if opening.stored and parsed.messages:
        names = await name_of(engine, tenant, parsed.messages)
        opening = replace(opening, prefix=names[-1])
        base = await recognised(engine, tenant, parsed.messages, names)
        if base is not None:
            try:
                return await _goes_on(engine, base, opening, kept, parsed)
            except Conflict as busy:
                if busy.code != "conversation_busy":
                    raise
    row = foreseen(engine, tenant, scheduling=False)
    nodes = _nodes(engine, row, None, parsed.messages)
    made = await _check(engine, row, kept, nodes, parsed)
    try:
        await _admit(engine, kept, made)
    except SequenceRejected:
        engine.world.lines.forget(row.id)  # nothing was begun
        raise
    return await begin(engine, row, opening, kept, nodes, parent=None, new=True, at_root=True)


async def _goes_on(
    engine: Engine, base: Recognised, opening: Opening, kept: Terms, parsed: Parsed
) -> Response:
    """Add what is new of a history below what of it is stored, and start a run there."""
    world, row, new = engine.world, base.row, parsed.messages[base.shared :]
    adapter = world.rollouts.adapter(row.tenant, kept.options.model, kept.policy)
    warm = await world.lines.line(
        row,
        base.parent,
        adapter=adapter,
        policy=kept.policy,
        tools=kept.tools,
        policy_digest=kept.options.policy_digest,
        toolset_digest=kept.options.toolset_digest,
        key=await world.store.tenant_key(row.tenant),
        goes_on=True,
    )
    nodes = _nodes(engine, row, base.parent, new)
    made = rendered(warm.line.copy(), nodes, places_of(nodes, new, parsed.places))
    await _admit(engine, kept, made)
    return await begin(engine, row, opening, kept, nodes, parent=base.parent)


async def _admit(engine: Engine, kept: Terms, made: Rendering) -> None:
    """Refuse what its model cannot hold. Raises `SequenceRejected`."""
    world = engine.world
    count = world.counts.of(world.settings.models.get(kept.options.model))
    await world.planner.admit(kept.policy, made, "messages", count)


def _ask(whole: Mended, form: str, model: Model) -> Ask:
    """Return what is asked of `model`, its options in the words of the model's own dialect."""
    parsed, policy = whole.parsed, whole.parsed.policy
    extra, _ = options.translate(
        policy, form, registry.form_of(model.profile), registry.options_of(model.profile)
    )
    return Ask(
        model=policy.model or None,
        instructions=policy.instructions,
        tools=parsed.tools,
        tool_choice=policy.tool_choice,
        parallel_tool_calls=policy.parallel_tool_calls,
        temperature=policy.temperature,
        max_output_tokens=policy.max_output_tokens,
        extra=extra,
        repairs=whole.repairs,
        compact=False,
    )


def _nodes(
    engine: Engine, row: Conversation, parent: MessageId | None, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """Return a history as nodes to be: the last is pending, if somebody but the model says it."""
    said = list(messages)
    if said and said[-1].role not in (Role.ASSISTANT, Role.TOOL):
        said[-1] = msgspec.structs.replace(said[-1], status=Status.PENDING)
    return placed(engine, row, parent, said)


async def _check(
    engine: Engine,
    row: Conversation,
    kept: Terms,
    nodes: tuple[Message, ...],
    parsed: Parsed,
) -> Rendering:
    """Return the request, or refuse what could not be sent, at its place in the client's.

    Raises:
        SequenceRejected: The findings say why.
        InvalidInput: An option that the model's dialect cannot say.
    """
    key = await engine.world.store.tenant_key(row.tenant)
    adapter = engine.world.rollouts.adapter(row.tenant, kept.options.model, kept.policy)
    try:
        line = adapter.line(kept.policy, kept.tools, key=key, conversation=row.id)
    except InvalidInput as error:
        at = (error.at or "").removeprefix("extra.") or None
        raise InvalidInput(error.message, code=error.code, at=at) from None
    places = places_of(nodes, parsed.messages, parsed.places)
    return rendered_anew(engine, row, kept, line, nodes, places, adapter=adapter.digest)


async def _events(turn: Turn) -> AsyncGenerator[RunEvent, None]:
    """Yield what happens in the run.

    Raises:
        OutcomeUnknown: Nobody knows what the provider did, and it does not show soon.
    """
    events = turn.handle.events()
    unknown = False
    while (event := await (_soon(turn, events) if unknown else anext(events, None))) is not None:
        unknown = isinstance(event, Unknown)
        yield event


async def _soon(turn: Turn, events: AsyncIterator[RunEvent]) -> RunEvent | None:
    """Return what comes after an unknown outcome; raise where it stays unknown for long."""
    coming = asyncio.ensure_future(anext(events, None))
    try:
        done, _ = await asyncio.wait({coming}, timeout=UNKNOWN_GRACE_S)
        if not done:
            status = (await turn.handle.row()).status
            if status is RunStatus.UNKNOWN:  # no longer, where it is being asked again
                raise run_error(turn.run.id, status, "outcome_unknown")
        return await coming
    finally:
        coming.cancel()


# In one piece.


async def whole(request: Request, turn: Turn, writer: Writer) -> HttpResponse:
    """Wait for the answer and return it, or raise why there is none."""
    working = asyncio.ensure_future(_answer(turn))
    leaving = asyncio.ensure_future(left(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not turn.lasting:
            await turn.close(LEFT)  # nobody reads on
        blocks, ending = await working
        usage = await _usage(turn)
    finally:
        leaving.cancel()
        working.cancel()
        turn.over()
    return HttpResponse(
        writer.whole(blocks, ending, usage),
        media_type="application/json",
        headers=headers(turn.run.options.repairs),
    )


async def _answer(turn: Turn) -> tuple[list[Block], Ending]:
    blocks: list[Block] = []
    answer: Message | None = None
    async for event in _events(turn):
        match event:
            case Committed(message=answer):
                blocks += [b for b in answer.blocks if not isinstance(b, ToolCall)]
            case CallsWaiting(calls=rows):
                calls = _asked(answer, rows)
                await turn.close(DONE)
                return [*blocks, *calls], Ending.CALLS
            case Ended(status=RunStatus.CANCELED, code=code) if code == DONE:
                return [*blocks, *_asked(answer, await turn.handle.calls())], Ending.CALLS
            case Ended(status=RunStatus.SUCCESS, code=code):
                return blocks, _ending(code)
            case Ended(status=status, code=code):
                raise await turn.handle.failure(status, code)
            case _:
                pass
    raise run_error(turn.run.id, RunStatus.ERROR, "internal_error")


# As a stream.


def streamed(request: Request, turn: Turn, writer: Writer) -> EventStream:
    """Return the answer as it comes."""
    streams = request.app.state.streams
    assert isinstance(streams, Streams)
    return EventStream(
        _frames(turn, writer),
        streams,
        turn.engine.world.settings,
        headers=headers(turn.run.options.repairs),
    )


async def _frames(turn: Turn, writer: Writer) -> AsyncGenerator[bytes, None]:
    over = False
    try:
        yield writer.begin()
        async for told, over in _told(turn, writer):  # noqa: B007 - what it was at the end counts
            if told:
                yield told
    except OutcomeUnknown as error:
        over = True  # the run stays as it is until somebody knows
        yield writer.fail(error.code, error.message)
    finally:
        if not over and not turn.lasting:
            await turn.close(LEFT)
        turn.over()


async def _told(turn: Turn, writer: Writer) -> AsyncGenerator[tuple[bytes, bool], None]:
    """Yield what each event tells the client, and whether it was the last.

    Text that was shown cannot be taken back at these doors. Where its attempt comes to nothing the
    stream ends with an error, and nothing of another attempt follows it.
    """
    shown: set[int] = set()
    thoughts: set[int] = set()
    answer: Message | None = None
    async for event in _events(turn):
        match event:
            case Preview(message=None, generation=generation) if generation not in shown:
                pass  # nobody looked while it came: the commit that follows tells all of it
            case Preview(generation=generation, channel=channel, text=text):
                shown.add(generation)
                for block, whole_thought, state in _kept(turn, event):
                    if block not in thoughts:
                        thoughts.add(block)
                        yield writer.think(whole_thought, state), False
                yield writer.show(channel, text), False
            case Committed(message=answer, generation=generation):
                seen, thought = generation in shown, len(thoughts)
                for told in _committed(answer, writer, shown=seen, thought=thought):
                    yield told, False
                thoughts.clear()
            case Withdrawn(generation=generation, reason=reason) if generation in shown:
                await turn.close(reason)
                yield writer.fail(reason, "The answer broke off, and was not taken back."), True
                return
            case CallsWaiting(calls=rows):
                calls = _asked(answer, rows)
                usage = await _usage(turn)
                await turn.close(DONE)
                yield writer.ask(calls) + writer.end(Ending.CALLS, usage), True
                return
            case Ended(status=RunStatus.CANCELED, code=code) if code == DONE:
                calls = _asked(answer, await turn.handle.calls())
                yield writer.ask(calls) + writer.end(Ending.CALLS, await _usage(turn)), True
                return
            case Ended(status=RunStatus.SUCCESS, code=code):
                yield writer.end(_ending(code), await _usage(turn)), True
                return
            case Ended(status=status, code=code):
                error = await turn.handle.failure(status, code)
                yield writer.fail(error.code, error.message), True
                return
            case _:
                pass


def _kept(turn: Turn, preview: Preview) -> list[tuple[int, str, Opaque]]:
    """Return the thoughts before a piece of preview that are whole, with their states."""
    live = turn.engine.world.broker.preview(turn.run.id)
    if live is None or live.generation != preview.generation:
        return []
    return live.kept(before=preview.block)


def _committed(message: Message, writer: Writer, *, shown: bool, thought: int) -> Iterator[bytes]:
    """Yield what a commit adds to what was shown of it, and to the thoughts told so far.

    A thought that stands before a text that was shown comes too late: its place is taken.
    """
    texts = [n for n, block in enumerate(message.blocks) if isinstance(block, Text)]
    taken = texts[-1] if shown and texts else -1
    for number, block in enumerate(message.blocks):
        match block:
            case Text(text=text) if not shown and text:
                yield writer.show(Channel.TEXT, text)
            case Reasoning(text=text, opaque=Opaque() as state):
                thought -= 1
                if thought < 0 and number > taken:
                    yield writer.think(text, state)
            case _:
                pass


def _asked(message: Message | None, calls: Sequence[Call]) -> list[ToolCall]:
    """Return the calls that the client is to carry out, as the model asked for them at last."""
    asked = {call.call_id for call in calls if call.runner is Runner.CLIENT}
    return [] if message is None else [call for call in message.calls if call.call_id in asked]


async def _usage(turn: Turn) -> Usage:
    row = await turn.handle.row()
    return Usage(
        input=row.input_tokens,
        output=row.output_tokens,
        cached=row.cached_tokens,
        cache_write=row.cache_write_tokens,
        reasoning=row.reasoning_tokens,
    )


def _ending(code: str | None) -> Ending:
    return Ending.LENGTH if code == "length" else Ending.STOP
