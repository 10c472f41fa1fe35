"""POST /v1/responses/compact: a long line as one item that stands for it.

The summary is written by the model that is named, in a conversation of its own that nobody
finds afterwards; it is asked as it is where a window fills up, with what was said as data. It comes back sealed under the tenant's key: an item that we did not make, or
that somebody changed, is not ours to read.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.asking import Ask
from antiphon.core.blocks import Message, Origin, Role, Status, Text, Trust
from antiphon.core.digests import digest
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.planning.compaction import INSTRUCTIONS, asked_of
from antiphon.core.tree import line as visible
from antiphon.engine.runs.responding import Opening, begin, foreseen, placed
from antiphon.engine.runs.terms import terms
from antiphon.errors import InvalidInput, ProviderFailed
from antiphon.server.http.body import answer, decoded, engine_of
from antiphon.server.http.urls import check_urls
from antiphon.server.responses.ground import of_response
from antiphon.server.responses.output import Said
from antiphon.server.responses.reading import ended, known
from antiphon.server.responses.request import Asked, Create
from antiphon.server.responses.resource import SECOND_MS, usage
from antiphon.server.responses.write import Status as Standing
from antiphon.server.rights.admission import may_ask
from antiphon.server.rights.principals import principal_of

STANDS_FOR: Final = "Summary of what was said before:\n"


class Compact(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be made short; the model has to be named."""

    model: Annotated[str, Meta(min_length=1)]
    prompt_cache_key: str | None = None


class _Sealed(msgspec.Struct, frozen=True):
    """What stands in an item of ours."""

    summary: str
    seal: str


async def compact(request: Request) -> Response:
    """Return an item that stands for a line: send it back instead of what it was made of."""
    body = await decoded(request, Compact)
    engine, principal = engine_of(request), principal_of(request)
    tenant = principal.tenant
    model = engine.world.settings.models.get(body.model)
    may_ask(principal, model.name)
    key = await engine.world.store.tenant_key(tenant)
    items, earlier = _apart(body.input, key)
    parsed = msgspec.structs.replace(body, input=items).parsed()
    before: list[Message] = []
    if body.previous_response_id is not None:
        ground = await of_response(engine, tenant, body.previous_response_id)
        if ground.parent is not None:
            path = await engine.world.store.path(ground.row.id, ground.parent)
            before = visible(path, ground.row.deletions)
    said = [*before, *parsed.messages]
    if not said and earlier is None:
        raise InvalidInput("There is nothing to make short.", code="empty_sequence", at="input")
    row = foreseen(engine, tenant, scheduling=False)
    check_urls(engine.world.settings, parsed.messages)
    ask = Ask(
        model=body.model,
        instructions=INSTRUCTIONS,
        max_output_tokens=engine.world.settings.compact_output_tokens,
        key=principal.id,
        compact=False,
    )
    kept = await terms(engine.world, tenant, ask)
    nodes = placed(engine, row, None, [_question(asked_of(said, earlier))])
    opening = Opening(previous=None, request=Create(model=body.model).echo(), stored=False)
    response = await begin(engine, row, opening, kept, nodes, parent=None, new=True)
    try:
        stretch = await ended(engine, await known(engine, tenant, response))
    finally:
        await engine.erasure.drop(row.id)
    text = "".join(p.text for i in stretch.items if isinstance(i, Said) for p in i.parts)
    if stretch.status is not Standing.COMPLETED or not text.strip():
        raise ProviderFailed(
            "No summary came.", code=stretch.code or "empty_summary", at=body.model
        )
    return answer(
        {
            "id": response.id,
            "object": "response.compaction",
            "created_at": response.created_ms // SECOND_MS,
            "output": [
                {
                    "id": engine.world.new_id("cmp_"),
                    "type": "compaction",
                    "encrypted_content": sealed(text, key),
                }
            ],
            "usage": usage(stretch),
        }
    )


def _question(text: str) -> Message:
    """Return the message that holds what is to be summarised."""
    return Message(
        id=MessageId("question"),
        conversation=ConversationId("request"),
        parent=None,
        role=Role.USER,
        blocks=(Text(text=text),),
        origin=Origin.SYSTEM,
        trust=Trust.USER,
        status=Status.PENDING,
    )


def sealed(summary: str, key: bytes) -> str:
    """Return a summary as the item carries it."""
    seal = digest(key, "compaction", summary.encode())
    return base64.b64encode(msgspec.json.encode(_Sealed(summary, seal))).decode()


def _apart(items: Any, key: bytes) -> tuple[Any, str | None]:  # noqa: ANN401 - as it came
    """Return the input without our own items of compaction, and what they stand for."""
    if not isinstance(items, list):
        return items, None
    held = [summary for item in items if (summary := _summary(item, key)) is not None]
    rest = [item for item in items if _summary(item, key) is None]
    return rest, "\n\n".join(held) if held else None


def unsealed(items: Any, key: bytes) -> Any:  # noqa: ANN401 - the input as it came
    """Return the input with our own items of compaction as the words that they stand for."""
    if not isinstance(items, list):
        return items
    opened = [(item, _summary(item, key)) for item in items]
    return [
        item if summary is None else {"role": "user", "content": STANDS_FOR + summary}
        for item, summary in opened
    ]


def _summary(item: Any, key: bytes) -> str | None:  # noqa: ANN401 - any item
    """Return what an item of compaction stands for; None where it is none of ours."""
    match item:
        case {"type": "compaction", "encrypted_content": str(content)}:
            try:
                held = msgspec.json.decode(base64.b64decode(content, validate=True), type=_Sealed)
            except (binascii.Error, msgspec.DecodeError):
                return None
            genuine = held.seal == digest(key, "compaction", held.summary.encode())
            return held.summary if genuine else None
        case _:
            return None
