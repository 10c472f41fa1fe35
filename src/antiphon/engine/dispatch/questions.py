"""Asking a model beside the turn: recorded, sent once, bounded, and never a second time.

What a turn promises of its order holds here too: nothing leaves before its manifest is durable.
But nothing depends on the answer. What was lost is dropped, by the asker or, where its process
died, by the next one at its start (`engine.runs.startup`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from msgspec import structs

from antiphon.adapters import registry
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.answers.assembler import Answer, Assembler
from antiphon.core.asking import Ask
from antiphon.core.blocks import Text
from antiphon.core.commands import (
    Accept,
    AnswerQuestion,
    Close,
    Command,
    DropQuestion,
    Lose,
    Prepare,
    PutContent,
    Refuse,
)
from antiphon.core.digests import digest
from antiphon.core.dispatch import Condition, Denied
from antiphon.core.ids import OperationId
from antiphon.core.listing import NOTHING, continued
from antiphon.core.manifest import (
    Manifest,
    QuestionText,
    WireRequest,
    manifest_digest,
    stored_digest,
)
from antiphon.core.questions import Question, Reply, Said, Unsaid, as_message
from antiphon.core.records import Attempt, Conversation
from antiphon.core.traffic.standing import charged
from antiphon.engine.catalogue.models import Model
from antiphon.engine.dispatch.exchange import (
    Answered,
    Broken,
    Exchange,
    Outcome,
    Rejected,
    Unsent,
    times_of,
)
from antiphon.engine.dispatch.target import Target, compiled
from antiphon.engine.live import LiveRun
from antiphon.engine.runs.control import Control
from antiphon.engine.runs.terms import policy_for
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, NotFound, SequenceRejected

MOVED: Final = "moved"
TIMEOUT: Final = "timeout"
CANCELED: Final = "canceled"
EMPTY: Final = "empty_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A question that has won its acceptance, with the bytes it may send."""

    question: Question
    attempt: Attempt
    manifest: Manifest
    request: WireRequest
    target: Target
    model: Model


class Questions:
    """Asks them. One instance serves all conversations."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ask(self, question: Question, conversation: Conversation, control: Control) -> Reply:
        """Return what the model says, or why it says nothing.

        The answer is good for `conversation` as the caller has it: where its revision or its
        cancel generation has moved by the time that the answer is here, there is none. A cancel
        through `control` hangs up at once. Only store failures and bugs come out as exceptions.
        """
        asked = await self._accepted(question, conversation)
        if isinstance(asked, Unsaid):
            return asked
        work = asyncio.create_task(
            self._answered(asked), name=f"{question.purpose} {asked.attempt.operation}"
        )
        try:
            done = await control.until(work)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        return work.result() if done else await self._dropped(asked, CANCELED)

    async def _accepted(self, question: Question, conversation: Conversation) -> _Asked | Unsaid:
        """Prepare and accept in one transaction."""
        world, run = self._world, question.run
        if conversation.erased_ms is not None:
            return Unsaid(reason="conversation_erased")
        operation = OperationId(world.new_id("op_"))
        text = QuestionText(blocks=(Text(text=question.text),))
        try:
            model = world.settings.models.get(world.settings.side_model or run.options.model)
            target = await self._target(question, conversation, model)
            line = target.adapter.line(
                target.policy, target.tools, key=target.key, conversation=conversation.id
            )
            line.feed(as_message(conversation.id, operation, text))
            rendering = line.finish()
        except (SequenceRejected, InvalidInput, NotFound) as refused:
            return Unsaid(reason=refused.code)
        question_digest, stored = stored_digest(target.key, text)
        listed, listing = continued(target.key, rendering.mappings, NOTHING)
        manifest = target.manifest(
            rendering,
            conversation,
            operation=operation,
            run=run.id,
            session=conversation.session,
            base_leaf=question.about,
            purpose=question.purpose,
            mappings_digest=listed.digest,
        )
        manifest = structs.replace(manifest, question_digest=question_digest)
        now_ms = world.clock.now_ms()
        commands: list[Command[Any]] = [
            PutContent(
                conversation=conversation.id,
                now_ms=now_ms,
                items=(*target.new_content, (question_digest, stored)),
            )
        ]
        if listing:
            commands.append(
                PutContent(
                    conversation=conversation.id, now_ms=now_ms, items=listing, structure=True
                )
            )
        commands += [
            Prepare(
                conversation=conversation.id,
                now_ms=now_ms,
                manifest=manifest,
                manifest_digest=manifest_digest(target.key, manifest),
                answer=None,
            ),
            Accept(
                conversation=conversation.id,
                now_ms=now_ms,
                operation=operation,
                fence=world.fence,
                deadline_ms=now_ms + int(question.timeout_s * 1000),
            ),
        ]
        done = await world.store.do_all(*commands)
        if isinstance(done, Denied):
            return Unsaid(reason=MOVED if done.reason in _MOVES else done.reason)
        return _Asked(
            question=question,
            attempt=done[-1],
            manifest=manifest,
            request=rendering.request,
            target=target,
            model=model,
        )

    async def _target(self, question: Question, conversation: Conversation, model: Model) -> Target:
        key = await self._world.store.tenant_key(conversation.tenant)
        ask = Ask(instructions=question.instructions, max_output_tokens=question.max_output_tokens)
        policy = policy_for(model, ask)
        tools = () if question.tool is None else (question.tool,)
        stored_policy, stored_tools = stored_digest(key, policy), stored_digest(key, tools)
        return Target(
            adapter=registry.get(policy.profile, policy.facts),
            key=key,
            policy=policy,
            policy_digest=stored_policy[0],
            tools=tools,
            toolset_digest=stored_tools[0],
            checks=await compiled(tools),
            new_content=(stored_policy, stored_tools),
        )

    # On the wire.

    async def _answered(self, asked: _Asked) -> Reply:
        try:
            outcome = await self._exchange(asked).run(
                asked.request,
                api_key=asked.model.api_key.reveal() if asked.model.api_key else None,
                region=asked.model.region,
            )
            return await self._settled(asked, outcome)
        except BaseException:
            # Nobody waits any more, or this is a bug: what is in flight is nobody's from here on.
            self._world.store.submit(self._drop(asked, CANCELED))
            raise

    def _exchange(self, asked: _Asked) -> Exchange:
        world, attempt, target = self._world, asked.attempt, asked.target
        profile = target.adapter.profile
        return Exchange(
            world,
            target.adapter,
            attempt.conversation,
            attempt,
            manifest_digest=partial(manifest_digest, target.key, asked.manifest),
            live=LiveRun(attempt.conversation, attempt.run, attempt.generation),  # shown to nobody
            assembler=Assembler(
                tools=target.checks,
                commit_truncated=False,
                limits=world.settings.limits,
                tool_name_pattern=profile.tool_name_pattern,
                tool_names=ToolNames(profile, target.tools).ours,
                max_output_tokens=target.policy.max_output_tokens,
            ),
            times=times_of(world.settings, asked.model.routing),
            extends=False,
        )

    # What came of it.

    async def _settled(self, asked: _Asked, outcome: Outcome) -> Reply:
        match outcome:
            case Answered(answer) if answer.committable and (answer.text or answer.calls):
                return await self._said(asked, answer)
            case Answered(answer) if answer.committable:
                return await self._refused(asked, EMPTY)
            case Answered(answer) if answer.definite:
                return await self._refused(asked, answer.error or "provider_error")
            case Answered(answer):
                return await self._lost(asked, answer.error or "stream_incomplete")
            case Rejected(verdict=verdict) if verdict.definite:
                return await self._refused(asked, verdict.code)
            case Rejected(verdict=verdict):
                return await self._lost(asked, verdict.code)
            case Unsent(code):
                return await self._refused(asked, code, not_sent=True)
            case Broken(code):
                return await self._lost(asked, TIMEOUT if code == "deadline" else code)

    async def _said(self, asked: _Asked, answer: Answer) -> Reply:
        world, attempt = self._world, asked.attempt
        content = answer.text.encode("utf-8", "surrogatepass")
        name = digest(asked.target.key, "answer", content)
        now_ms, cost = world.clock.now_ms(), asked.model.cost(answer.usage)
        done = await world.store.do_all(
            PutContent(conversation=attempt.conversation, now_ms=now_ms, items=((name, content),)),
            AnswerQuestion(
                conversation=attempt.conversation,
                now_ms=now_ms,
                operation=attempt.operation,
                generation=attempt.generation,
                answer=name,
                usage=answer.usage,
                cost=cost,
                spent=charged(asked.question.run.options.key, cost),
            ),
        )
        if isinstance(done, Denied):
            return await self._dropped(asked, MOVED if done.reason in _MOVES else done.reason)
        return Said(
            operation=attempt.operation,
            text=answer.text,
            calls=answer.calls,
            usage=answer.usage,
        )

    async def _refused(self, asked: _Asked, code: str, *, not_sent: bool = False) -> Unsaid:
        world, attempt = self._world, asked.attempt
        now_ms = world.clock.now_ms()
        await world.store.do_all(
            Refuse(
                conversation=attempt.conversation,
                now_ms=now_ms,
                operation=attempt.operation,
                generation=attempt.generation,
                fence=world.fence,
                code=code,
                not_sent=not_sent,
            ),
            Close(conversation=attempt.conversation, now_ms=now_ms, operation=attempt.operation),
        )
        return Unsaid(reason=code, operation=attempt.operation)

    async def _lost(self, asked: _Asked, code: str) -> Unsaid:
        world, attempt = self._world, asked.attempt
        await world.store.do(
            Lose(
                conversation=attempt.conversation,
                now_ms=world.clock.now_ms(),
                operation=attempt.operation,
                generation=attempt.generation,
                fence=world.fence,
                code=code,
            )
        )
        return await self._dropped(asked, code)

    async def _dropped(self, asked: _Asked, code: str) -> Unsaid:
        await self._world.store.do(self._drop(asked, code))
        return Unsaid(reason=code, operation=asked.attempt.operation)

    def _drop(self, asked: _Asked, code: str) -> DropQuestion:
        return DropQuestion(
            conversation=asked.attempt.conversation,
            now_ms=self._world.clock.now_ms(),
            operation=asked.attempt.operation,
            fence=self._world.fence,
            code=code,
        )


_MOVES: Final = frozenset({Condition.REVISION, Condition.CANCEL_GENERATION})
