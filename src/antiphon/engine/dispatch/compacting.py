"""Older talk becomes a checkpoint before a turn, where the window fills up.

The model is asked beside the turn; whatever goes wrong, the turn goes on as if nobody had asked,
and the next one tries again. What is made is content under its digest: the plan of the dispatch
names it, and with it every later dispatch on the same line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from antiphon.core.blocks import Message
from antiphon.core.commands import PutContent
from antiphon.core.manifest import Purpose
from antiphon.core.planning.compaction import (
    INSTRUCTIONS,
    PERCENT,
    Checkpoint,
    Range,
    Verdict,
    asked_of,
    compactable,
    decode_checkpoint,
    encode_checkpoint,
    judged,
    prompt_digest,
    range_digest,
)
from antiphon.core.planning.tokens import scaled
from antiphon.core.planning.trace import Selection
from antiphon.core.planning.trimming import Candidate, candidate
from antiphon.core.questions import Question, Unsaid
from antiphon.core.records import Conversation, Run
from antiphon.engine.catalogue.vocabularies import counter_of
from antiphon.engine.dispatch.questions import Questions
from antiphon.engine.dispatch.target import Target
from antiphon.engine.runs.control import Control
from antiphon.engine.world import World

MADE: Final = "made"
"""What the plan says where there is a new checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What came of it: the part of the path that is sent from here on, or why nothing changed."""

    outcome: str
    selection: Selection | None = None


NOT_TRIED: Final = Compacted(outcome="")


class Compactor:
    """Makes checkpoints. One instance serves all conversations."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._questions = Questions(world)

    async def compact(
        self,
        run: Run,
        conversation: Conversation,
        target: Target,
        total_tokens: int,
        control: Control,
    ) -> Compacted:
        """Ask for a summary of what is older on the run's line, and take it where it is shorter."""
        world, policy = self._world, target.policy
        assert run.leaf is not None
        sent, before = await world.lines.sent(conversation, run.leaf, None)
        line = self._weighed(target, sent)
        begin = next((n for n, m in enumerate(sent) if m.id == before.start), 0)
        window, settings = policy.context_window or 0, world.settings
        found = compactable(
            line,
            begin=begin,
            keep=settings.compact_keep,
            total_tokens=total_tokens,
            threshold_tokens=window * settings.compact_at_percent // PERCENT,
            most_tokens=window - min(settings.compact_output_tokens, window // 4) - window // 8,
        )
        if isinstance(found, Verdict):
            world.lines.stop_compacting(conversation.id)
            return Compacted(outcome=found)
        return await self._asked(run, conversation, target, sent, found, before, control)

    def _weighed(self, target: Target, sent: list[Message]) -> list[Candidate]:
        counter = counter_of(target.policy.model)
        factor = self._world.planner.factor(target.policy, counter)
        return [candidate(message, counter, factor) for message in sent]

    async def _asked(
        self,
        run: Run,
        conversation: Conversation,
        target: Target,
        sent: list[Message],
        found: Range,
        before: Selection,
        control: Control,
    ) -> Compacted:
        world, settings, tenant = self._world, self._world.settings, conversation.tenant
        gone = sent[found.begin : found.end]
        earlier = None
        if before.checkpoint is not None and gone[0].id == before.start:
            earlier = decode_checkpoint(await world.store.content(tenant, before.checkpoint))
        assert run.leaf is not None
        reply = await self._questions.ask(
            Question(
                purpose=Purpose.SUMMARY,
                run=run,
                about=run.leaf,
                instructions=INSTRUCTIONS,
                text=asked_of(gone, earlier.text if earlier is not None else None),
                timeout_s=settings.compact_timeout_s,
                max_output_tokens=min(
                    settings.compact_output_tokens, (target.policy.context_window or 0) // 4
                ),
            ),
            conversation,
            control,
        )
        if isinstance(reply, Unsaid):
            return Compacted(outcome=reply.reason)
        counter = counter_of(target.policy.model)
        factor = world.planner.factor(target.policy, counter)
        tokens = scaled(counter.count([reply.text]), factor)
        replaced = found.tokens + (earlier.tokens if earlier is not None else 0)
        verdict = judged(reply.text, tokens, replaced)
        if verdict is not None:
            return Compacted(outcome=verdict)
        name, stored = encode_checkpoint(
            target.key,
            Checkpoint(
                text=reply.text,
                start=sent[found.end].id,
                first=gone[0].id,
                last=gone[-1].id,
                messages=len(gone),
                range_digest=range_digest(target.key, gone),
                model=world.settings.side_model or target.policy.model,
                operation=reply.operation,
                prompt_digest=prompt_digest(target.key),
                tokens_before=replaced,
                tokens=tokens,
                after=before.checkpoint if earlier is not None else None,
            ),
        )
        await world.store.do(
            PutContent(
                conversation=conversation.id,
                now_ms=world.clock.now_ms(),
                items=((name, stored),),
            )
        )
        return Compacted(
            outcome=MADE, selection=Selection(start=sent[found.end].id, checkpoint=name)
        )
