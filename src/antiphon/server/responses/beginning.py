"""POST /v1/responses, up to the moment at which the run is durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from starlette.requests import Request

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed, Rendering
from antiphon.core.blocks import Message, Role, Status, ToolResult, block_id
from antiphon.core.ids import MessageId, ResponseId, TenantId
from antiphon.core.records import Response
from antiphon.core.traffic.keys import Right
from antiphon.core.tree import line as visible
from antiphon.engine.engine import Engine
from antiphon.engine.runs.responding import (
    Moved,
    Opening,
    begin,
    bring,
    placed,
    places_of,
    rendered,
    rendered_anew,
)
from antiphon.engine.runs.terms import Terms, terms
from antiphon.errors import Conflict, InvalidInput, SequenceRejected
from antiphon.server.http.body import engine_of
from antiphon.server.http.urls import check_urls
from antiphon.server.mending import Mended, mended, with_help
from antiphon.server.responses.attaching import without_attached
from antiphon.server.responses.compact import unsealed
from antiphon.server.responses.ground import (
    Ground,
    check_outputs,
    of_conversation,
    of_nothing,
    of_response,
)
from antiphon.server.responses.request import Asked, Create, in_their_words
from antiphon.server.rights.admission import may_ask
from antiphon.server.rights.principals import Principal, principal_of
from antiphon.server.rights.scope import view_of
from antiphon.server.starting import alone, key_of, repeated

TRIES: Final = 3


async def begun(request: Request, body: Create) -> Response:
    """Return the response that a request started, or that its first sending had started.

    Raises:
        AntiphonError: The request is refused; nothing was started and nothing is recorded.
    """
    engine, principal = engine_of(request), principal_of(request)
    key = await key_of(request)
    known = await repeated(engine, key)
    if known is not None:
        return known
    body.check()
    secret = await engine.world.store.tenant_key(principal.tenant)
    parsed = msgspec.structs.replace(body, input=unsealed(body.input, secret)).parsed()
    parsed, files = await without_attached(engine, principal.tenant, parsed)
    if body.instructions is not None or any(
        m.role in (Role.SYSTEM, Role.DEVELOPER) for m in parsed.messages
    ):
        principal.require(Right.INSTRUCT)
    check_urls(engine.world.settings, parsed.messages)
    # What goes on from something stored is held against that; only a history of the client's own
    # can be repaired from itself.
    own = body.previous_response_id is None and body.conversation_id is None
    whole = mended(request, parsed) if own else Mended(parsed=parsed)
    model = engine.world.settings.models.get(body.model)
    may_ask(principal, model.name)
    terms_asked = body.ask(whole.parsed, model.profile, whole.repairs, principal.id)
    opening = Opening(
        previous=_previous(body),
        request=body.echo(),
        stored=body.store is not False,
        files=files,
        key=key.key,
        attach=key.attach,
        alone=alone(request),
    )
    for _ in range(TRIES):
        said = whole.parsed
        ground = await _ground(request, body, principal, said)
        kept = await terms(engine.world, principal.tenant, terms_asked, ground.row.id)
        if not opening.stored and not ground.new:
            ground, said = await _copied(engine, ground, said, principal.tenant)
        try:
            return await _begun_on(engine, ground, opening, kept, said)
        except Moved:
            continue
        except SequenceRejected as rejected:
            raise with_help(rejected, parsed) if own else rejected from None
    raise Conflict("Others are at work here. Try again.", code="conversation_busy", retryable=True)


async def counted(request: Request, body: Asked) -> int:
    """Return how many tokens a request would send: exactly where its model's vocabulary is here.

    It is the request as it would leave that is counted, tools and images included.

    Raises:
        AntiphonError: It could not be sent at all.
    """
    engine, principal = engine_of(request), principal_of(request)
    parsed, _ = await without_attached(engine, principal.tenant, body.parsed())
    create = Create(**{name: getattr(body, name) for name in Asked.__struct_fields__})
    profile = engine.world.settings.models.get(body.model).profile
    ask = create.ask(parsed, profile)
    ground = await _ground(request, create, principal, parsed)
    kept = await terms(engine.world, principal.tenant, ask, ground.row.id)
    nodes = placed(engine, ground.row, ground.parent, parsed.messages[_leading(parsed) :])
    rendering = await _rendered(engine, ground, ground.parent, kept, nodes, {})
    if ground.new:
        engine.world.lines.forget(ground.row.id)  # nothing was begun
    return engine.world.planner.weighed(kept.policy, rendering).total_tokens


def _previous(body: Create) -> ResponseId | None:
    return None if body.previous_response_id is None else ResponseId(body.previous_response_id)


async def _copied(
    engine: Engine, ground: Ground, parsed: Parsed, tenant: TenantId
) -> tuple[Ground, Parsed]:
    """Return the line that a request goes on from as its own, in a conversation to be dropped.

    Raises:
        Refused: Outputs, or calls that wait for some: those belong to the run that asked.
    """
    check_outputs(ground, _outputs(parsed))
    if _outputs(parsed) or ground.parent is None:
        raise InvalidInput(
            "Outputs are kept with the calls that they are for. Leave store out.",
            code="conflicting_parameters",
            at="store",
        )
    path = await engine.world.store.path(ground.row.id, ground.parent)
    line = visible(path, ground.row.deletions)
    return of_nothing(engine, tenant), replace(parsed, messages=(*line, *parsed.messages))


async def _ground(request: Request, body: Create, principal: Principal, parsed: Parsed) -> Ground:
    engine = engine_of(request)
    if body.previous_response_id is not None:
        return await of_response(engine, principal.tenant, body.previous_response_id)
    if body.conversation_id is not None:
        row = await view_of(request).conversation(body.conversation_id)
        return await of_conversation(engine, row, outputs=bool(_outputs(parsed)))
    return of_nothing(engine, principal.tenant)


def _outputs(parsed: Parsed) -> list[tuple[ToolResult, str]]:
    """Return the results that the input begins with, each with its place."""
    outputs: list[tuple[ToolResult, str]] = []
    for message in parsed.messages:
        if message.role is not Role.TOOL:
            break
        outputs += [
            (r, parsed.places.get(block_id(message.id, n), message.id))
            for n, r in enumerate(message.results)
        ]
    return outputs


async def _begun_on(
    engine: Engine, ground: Ground, opening: Opening, kept: Terms, parsed: Parsed
) -> Response:
    outputs = _outputs(parsed)
    if outputs or not ground.settled:
        _check_options(kept)  # otherwise it is rendered, and its options are
    check_outputs(ground, outputs)
    rest = parsed.messages[_leading(parsed) :]
    said = [*rest[:-1], *(_input(message) for message in rest[-1:])]
    parent = ground.parent
    if outputs and ground.waiting is None and ground.answered is not None:
        parent = ground.answered.id
    nodes = placed(engine, ground.row, parent, said)
    places = places_of(nodes, rest, parsed.places)
    if outputs and ground.waiting is not None:
        results = [result for result, _ in outputs]
        return await bring(engine, ground.row, opening, kept, ground.waiting, results, nodes)
    if ground.settled:
        made = await _rendered(engine, ground, parent, kept, nodes, places)
        await _admit(engine, ground, kept, made)
    elif len(nodes) > 1:
        raise Conflict(
            "The conversation is at work; several items can be added once it rests.",
            code="conversation_busy",
        )
    return await begin(
        engine,
        ground.row,
        opening,
        kept,
        nodes,
        parent=parent,
        new=ground.new,
        at_root=ground.settled and parent is None,
    )


async def _admit(engine: Engine, ground: Ground, kept: Terms, made: Rendering) -> None:
    """Refuse what its model cannot hold. Raises `SequenceRejected`."""
    world = engine.world
    count = world.counts.of(world.settings.models.get(kept.options.model))
    try:
        await world.planner.admit(kept.policy, made, "input", count)
    except SequenceRejected:
        if ground.new:
            engine.world.lines.forget(ground.row.id)  # nothing was begun
        raise


def _leading(parsed: Parsed) -> int:
    return next(
        (n for n, m in enumerate(parsed.messages) if m.role is not Role.TOOL),
        len(parsed.messages),
    )


def _input(message: Message) -> Message:
    """Return the last message: pending, if somebody but the model says it."""
    if message.role in (Role.ASSISTANT, Role.TOOL):
        return message
    return msgspec.structs.replace(message, status=Status.PENDING)


def _check_options(kept: Terms) -> None:
    """Refuse options that the model's dialect cannot say."""
    adapter = registry.get(kept.policy.profile, kept.policy.facts)
    try:
        adapter.line(kept.policy, kept.tools, key=b"")
    except InvalidInput as error:
        told = in_their_words(error)
    else:
        return
    raise told


async def _rendered(
    engine: Engine,
    ground: Ground,
    parent: MessageId | None,
    kept: Terms,
    nodes: Sequence[Message],
    places: Mapping[str, str],
) -> Rendering:
    """Render the line as it will stand, so that what could never be sent is refused here.

    Raises:
        SequenceRejected: The findings say why, each at its place in the request.
        InvalidInput: An option that the model's dialect cannot say, at the client's own field.
    """
    try:
        return await _on_its_ground(engine, ground, parent, kept, nodes, places)
    except InvalidInput as error:
        told = in_their_words(error)
    raise told


async def _on_its_ground(
    engine: Engine,
    ground: Ground,
    parent: MessageId | None,
    kept: Terms,
    nodes: Sequence[Message],
    places: Mapping[str, str],
) -> Rendering:
    world = engine.world
    adapter = world.rollouts.adapter(ground.row.tenant, kept.options.model, kept.policy)
    key = await world.store.tenant_key(ground.row.tenant)
    if parent is None:
        line = adapter.line(kept.policy, kept.tools, key=key, conversation=ground.row.id)
        if ground.new:
            return rendered_anew(
                engine, ground.row, kept, line, nodes, places, adapter=adapter.digest
            )
        return rendered(line, nodes, places)
    warm = await world.lines.line(
        ground.row,
        parent,
        adapter=adapter,
        policy=kept.policy,
        tools=kept.tools,
        policy_digest=kept.options.policy_digest,
        toolset_digest=kept.options.toolset_digest,
        key=key,
        goes_on=True,
    )
    return rendered(warm.line.copy(), nodes, places)
