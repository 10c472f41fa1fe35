"""The old way through a door: what the client sent goes to the provider, and what comes, back.

Nothing is parsed, recorded, retried or answered for: it is the request that would have been made
without us, under the server's own key. While a rollout is in the shadow, ours is built beside it
once the answer is through, compared, and counted; it goes nowhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.responses import StreamingResponse

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Parsed
from antiphon.adapters.requests.conversion import convert
from antiphon.core.blocks import Message, Origin, Role, Text, Trust
from antiphon.core.digests import digest
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.manifest import Policy, WireRequest
from antiphon.core.traffic.rollout import Difference, Kind, Rollout, Way, compare, way
from antiphon.core.traffic.standing import NoteShadow
from antiphon.engine.catalogue.models import Model
from antiphon.engine.dispatch.exchange import times_of
from antiphon.engine.engine import Engine
from antiphon.engine.ports import Cut, NotSent, Reply
from antiphon.errors import AntiphonError, InvalidInput, OutcomeUnknown, ProviderFailed
from antiphon.server.http.body import engine_of
from antiphon.server.http.faults import Broken
from antiphon.server.mending import mended
from antiphon.server.rights.admission import may_ask
from antiphon.server.rights.principals import Principal, principal_of

PASSED: Final = ("anthropic-version", "anthropic-beta", "openai-beta", "accept", "user-agent")
"""Headers of the client's that say something to its provider. Keys and cookies are not among them."""

RETURNED: Final = ("content-type", "retry-after", "request-id", "openai-processing-ms")
LARGEST_RETURNED: Final = 200

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}:,]')

Parse = Callable[[Mapping[str, Any]], Parsed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A request as it came to a door, and the rollout that holds for it."""

    principal: Principal
    form: str
    body: dict[str, Any]
    raw: bytes
    model: Model
    rollout: Rollout
    shadowed: bool


async def relayed(
    request: Request, form: str, body: dict[str, Any], parse: Parse
) -> HttpResponse | None:
    """Return the answer of the old way, or None where the request goes ours.

    Raises:
        InvalidInput: `rollout_form_mismatch`: the model's provider does not speak the client's form.
    """
    engine, principal = engine_of(request), principal_of(request)
    name = body.get("model")
    model = engine.world.settings.models.get(name if isinstance(name, str) else None)
    await engine.world.rollouts.refresh()
    rollout = engine.world.rollouts.of(principal.tenant, model.name)
    if rollout is None:
        return None
    chosen = way(rollout, tools=_has_tools(body), bucket=await _bucket(engine, principal, body))
    if chosen is Way.OURS:
        await _note(engine, principal, model.name, "ours")
        return None
    may_ask(principal, model.name)
    if registry.form_of(model.profile) != form:
        raise InvalidInput(
            f"The old way is what the client sends, and {model.name} speaks {model.profile}. "
            "Set the rollout to a stage that is ours.",
            code="rollout_form_mismatch",
            at="model",
        )
    asking = Asking(
        principal=principal,
        form=form,
        body=body,
        raw=await request.body(),
        model=model,
        rollout=rollout,
        shadowed=chosen is Way.SHADOWED,
    )
    return await _passed_on(request, engine, asking, parse)


async def _passed_on(
    request: Request, engine: Engine, asking: Asking, parse: Parse
) -> HttpResponse:
    outgoing = _outgoing(request, asking)
    times = times_of(engine.world.settings, asking.model.routing)
    key = asking.model.api_key
    try:
        if asking.model.region is not None:
            outgoing = await engine.world.signer.signed(outgoing, asking.model.region)
        async with asyncio.timeout(times.first_byte_s or times.idle_s):
            reply = await engine.world.transport.send(
                outgoing,
                api_key=key.reveal() if key else None,
                connect_timeout_s=times.connect_s,
                on_written=lambda: None,
            )
    except NotSent as error:
        failed = ProviderFailed("No byte left for the provider.", code=error.code)
    except (Cut, TimeoutError):
        raise OutcomeUnknown("The provider fell silent before it answered.") from None
    else:
        compared = BackgroundTask(_shadow, request, engine, asking, outgoing, parse)
        return StreamingResponse(
            _chunks(reply, times.idle_s),
            status_code=reply.status,
            headers=_returned(reply.headers),
            background=compared,
        )
    raise failed


def _outgoing(request: Request, asking: Asking) -> WireRequest:
    """Return the client's request as its provider gets it."""
    made = _address(registry.get(asking.model.profile, asking.model.facts), asking.model)
    theirs = {n: request.headers[n] for n in PASSED if n in request.headers}
    headers = {**dict(made.headers), **theirs, "content-type": "application/json"}
    return WireRequest(
        method="POST",
        url=made.url,
        headers=tuple(sorted(headers.items())),
        chunks=(renamed(asking.raw, asking.model.model),),
    )


def _address(adapter: Adapter, model: Model) -> WireRequest:
    """Return a request to the model, for where it goes and the headers that its dialect wants."""
    line = adapter.line(
        Policy(
            model=model.model,
            profile=model.profile,
            endpoint=model.base_url,
            max_output_tokens=1,
            stream=False,
        ),
        (),
        key=b"",
    )
    line.feed(
        Message(
            id=MessageId("m"),
            conversation=ConversationId("c"),
            parent=None,
            role=Role.USER,
            blocks=(Text(text="."),),
            origin=Origin.CLIENT,
            trust=Trust.USER,
        )
    )
    return line.finish().request


async def _chunks(reply: Reply, idle_s: float) -> AsyncIterator[bytes]:
    """Yield what the provider says as it comes. What breaks there breaks here.

    Raises:
        Broken: The provider's answer has no end.
    """
    chunks = aiter(reply.chunks())
    try:
        while True:
            async with asyncio.timeout(idle_s):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
    except (Cut, TimeoutError):
        raise Broken from None
    finally:
        await reply.close()


def _returned(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the provider's headers that a client has a use for, none of which can be another's."""
    found = {name: headers[name][:LARGEST_RETURNED] for name in RETURNED if name in headers}
    printable = {n: v for n, v in found.items() if v.isascii() and v.isprintable()}
    return {**printable, "antiphon-way": "old"}


def renamed(raw: bytes, model: str) -> bytes:
    r"""Return a body with another name of the model, and every other byte as it was.

    Example:
        >>> renamed(b'{ "m": {"model": "x"}, "model" : "alias" }', "real")
        b'{ "m": {"model": "x"}, "model" : "real" }'
    """
    depth, key, found = 0, b"", None
    expects_key = True
    for token in _TOKEN.finditer(raw):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
            case b"," if depth == 1:
                expects_key = True
            case b":" if depth == 1:
                expects_key = False
            case text if depth == 1 and text[:1] == b'"':
                if expects_key:
                    key = text
                elif key == b'"model"':
                    found = token.span()  # the last one counts, as it does for who reads it
            case _:
                pass
    if found is None:
        return raw
    return raw[: found[0]] + msgspec.json.encode(model) + raw[found[1] :]


# Beside it, ours.


async def _shadow(
    request: Request, engine: Engine, asking: Asking, outgoing: WireRequest, parse: Parse
) -> None:
    """Build ours, compare it with what was sent, and count what came of it."""
    if not asking.shadowed:
        await _note(engine, asking.principal, asking.model.name, "old")
        return
    outcome, differences = _compared(request, engine, asking, outgoing.body, parse)
    await _note(engine, asking.principal, asking.model.name, outcome, differences)


def _compared(
    request: Request, engine: Engine, asking: Asking, sent: bytes, parse: Parse
) -> tuple[str, tuple[Difference, ...]]:
    model = asking.model
    try:
        whole = mended(request, parse(asking.body)).parsed
        adapter = engine.world.rollouts.adapter(
            asking.principal.tenant,
            model.name,
            Policy(
                model=model.model,
                profile=model.profile,
                facts={k: msgspec.Raw(msgspec.json.encode(v)) for k, v in model.facts.items()},
            ),
        )
        ours = convert(
            whole, adapter, source=asking.form, model=model.model, endpoint=model.base_url
        )
        differences = compare(sent, ours.request.body)
    except AntiphonError as error:
        kind = Kind.REFUSED if not isinstance(error, InvalidInput) else Kind.FAILED
        told = Difference(kind=kind, cause=error.code, example=(error.at or "")[:100])
        return kind.value, (told,)
    except ValueError as error:
        return "failed", (Difference(kind=Kind.FAILED, cause=type(error).__name__),)
    if not differences:
        return "equal", ()
    if any(one.kind is not Kind.BYTES for one in differences):
        return "meaning", differences
    return "bytes", differences


async def _note(
    engine: Engine,
    principal: Principal,
    model: str,
    outcome: str,
    differences: tuple[Difference, ...] = (),
) -> None:
    """Count a request; a cause and an example fit a row, however long a client's names are."""
    await engine.world.store.change(
        NoteShadow(
            tenant=principal.tenant,
            model=model,
            outcome=outcome,
            differences=tuple(
                msgspec.structs.replace(one, cause=one.cause[:200], example=one.example[:400])
                for one in differences
            ),
            now_ms=engine.world.clock.now_ms(),
        )
    )


def _has_tools(body: Mapping[str, Any]) -> bool:
    """Whether a request offers tools, or its history holds calls."""
    if body.get("tools") or body.get("functions"):
        return True
    items = body.get("messages") or body.get("input")
    return isinstance(items, list) and any(_calls(item) for item in items)


def _calls(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    kinds = {part.get("type") for part in (item, *parts) if isinstance(part, dict)}
    of_tools = {"tool_use", "tool_result", "function_call", "function_call_output"}
    return bool(item.get("tool_calls")) or item.get("role") == "tool" or bool(kinds & of_tools)


async def _bucket(engine: Engine, principal: Principal, body: Mapping[str, Any]) -> int:
    """Return a number below 100 that all requests of one conversation share: by how it began."""
    items = body.get("messages") or body.get("input")
    if isinstance(items, list):
        asked = (n for n, m in enumerate(items) if isinstance(m, dict) and m.get("role") == "user")
        items = items[: next(asked, 0) + 1]
    key = await engine.world.store.tenant_key(principal.tenant)
    return int(digest(key, "bucket", msgspec.json.encode(items))[-8:], 16) % 100
