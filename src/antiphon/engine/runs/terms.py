"""What a run is asked to do, and how that is kept: by digests, so that any process can go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from antiphon.adapters import registry
from antiphon.adapters.requests import options
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.asking import Ask
from antiphon.core.commands import PutContent
from antiphon.core.digests import digest
from antiphon.core.ids import ConversationId, Digest, TenantId
from antiphon.core.manifest import Policy, ToolDeclaration, stored_digest
from antiphon.core.records import Fallback, RunOptions
from antiphon.core.rules.options import check_options
from antiphon.engine.catalogue.models import Model
from antiphon.engine.knowledge.context import with_knowledge
from antiphon.engine.texts import storable
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, NotFound, SequenceRejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """An `Ask` as a run keeps it."""

    options: RunOptions
    policy: Policy
    tools: tuple[ToolDeclaration, ...]
    content: tuple[tuple[Digest, bytes], ...]

    def stored(self, conversation: ConversationId, now_ms: int) -> PutContent:
        """Return the command that keeps what the options name."""
        return PutContent(conversation=conversation, now_ms=now_ms, items=self.content)


def policy_for(model: Model, ask: Ask) -> Policy:
    """Return what shapes the requests to `model`, where it is asked like this."""
    return Policy(
        model=model.model,
        profile=model.profile,
        endpoint=model.base_url,
        facts={k: msgspec.Raw(msgspec.json.encode(v)) for k, v in model.facts.items()},
        instructions=ask.instructions,
        max_output_tokens=ask.max_output_tokens or model.max_output_tokens,
        tool_choice=ask.tool_choice,
        parallel_tool_calls=ask.parallel_tool_calls,
        temperature=ask.temperature,
        extra=dict(ask.extra),
        context_window=model.window,
        truncation=ask.truncation or "disabled",
        compact=ask.compact,
    )


async def terms(
    world: World, tenant: TenantId, ask: Ask, conversation: ConversationId | None = None
) -> Terms:
    """Return what a run of this tenant is to keep of `ask`.

    With a `conversation`, maybe one that is about to be created, what is remembered for it and
    for the tenant is kept as it stands now. Without one the client brings all that counts.

    Raises:
        NotFound: `model_not_found`, `no_such_instructions`.
        Conflict: `model_busy`: too many calls of this tenant wait for it.
        SequenceRejected: An option asks for what cannot be; `at` is its name here.
        InvalidInput: Text that cannot be stored;
            `tool_name_conflict`: a tool of the caller's has the name of another one that runs here;
            `schema_unsupported`: what the answer is to be judged by is no schema.
    """
    for tool in ask.tools:
        ours = world.functions.get(tool.name)
        if ours is not None and ours.declaration != tool:
            raise InvalidInput(
                "A tool of this name runs here; give yours another.",
                code="tool_name_conflict",
                at=tool.name,
            )
    tools = ask.tools or tuple(f.declaration for f in world.functions.values())
    impossible = check_options(
        tool_choice=ask.tool_choice,
        max_output_tokens=ask.max_output_tokens,
        temperature=ask.temperature,
        tools=tools,
    )
    if found := tuple(impossible):
        raise SequenceRejected(found)
    model = world.settings.models.get(ask.model)
    world.gates.check(model, tenant)
    key = await world.store.tenant_key(tenant)
    policy = await with_knowledge(world, tenant, policy_for(model, ask), ask.named, conversation)
    with storable("instructions or tools"):
        stored_policy, stored_tools = stored_digest(key, policy), stored_digest(key, tools)
        others = {
            other.name: stored_digest(key, spoken)
            for other, spoken in _elsewhere(world, ask, model, policy)
        }
    schema = None if ask.answer_schema is None else await _schema(key, ask.answer_schema)
    return Terms(
        options=RunOptions(
            model=model.name,
            policy_digest=stored_policy[0],
            toolset_digest=stored_tools[0],
            max_model_calls=world.settings.max_model_calls,
            max_tool_calls=world.settings.max_tool_calls,
            steer=ask.steer,
            answer_schema=None if schema is None else schema[0],
            retry_answer=ask.retry_answer,
            repairs=ask.repairs,
            key=ask.key,
            fallbacks=tuple(
                Fallback(model=name, policy_digest=stored[0]) for name, stored in others.items()
            ),
        ),
        policy=policy,
        tools=tools,
        content=(
            stored_policy,
            stored_tools,
            *others.values(),
            *(() if schema is None else (schema,)),
        ),
    )


async def _schema(key: bytes, schema: msgspec.Raw) -> tuple[Digest, bytes]:
    """Return digest and content of the schema that an answer is to be judged by."""
    # The first question loads the schema library and compiles.
    misfit = await asyncio.to_thread(compile_schema(schema).misfit, "null")
    if misfit is not None and misfit.rule == "$schema":
        raise InvalidInput(f"{misfit.message}.", code="schema_unsupported", at="answer_schema")
    return digest(key, "stored", bytes(schema)), bytes(schema)


def _elsewhere(
    world: World, ask: Ask, model: Model, policy: Policy
) -> Iterator[tuple[Model, Policy]]:
    """Yield the model's fallbacks that can be asked for the very same.

    One that has no word for an option, or lacks its key, is passed over: an answer to something
    else would be no help.
    """
    source = registry.form_of(model.profile)
    for name in model.routing.fallbacks:
        try:
            other = world.settings.models.get(name)
            extra, _ = options.translate(
                policy, source, registry.form_of(other.profile), registry.options_of(other.profile)
            )
        except (InvalidInput, NotFound):
            continue
        spoken = policy_for(other, replace(ask, extra=extra))
        yield (
            other,
            msgspec.structs.replace(
                spoken,
                instructions=policy.instructions,
                instructions_from=policy.instructions_from,
                context=policy.context,
            ),
        )
