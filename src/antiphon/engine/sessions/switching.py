"""The switch from one session to the next: read, hand over, then one compared transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.blocks import Message, Role
from antiphon.core.commands import Command, PutContent, SwitchSession, UndoSwitch
from antiphon.core.dispatch import Denied
from antiphon.core.ids import Digest, MessageId, SessionId
from antiphon.core.knowledge.retrieval import read_beside, stored_beside
from antiphon.core.manifest import Purpose
from antiphon.core.questions import Question, Said
from antiphon.core.records import Cause, Conversation, HandOver, Run, Session
from antiphon.core.sessions.handover import (
    ASKED,
    carried,
    copies,
    precis,
    structural,
    summarized,
    with_precis,
    without_control,
)
from antiphon.core.sessions.scheduling import told
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.questions import Questions
from antiphon.engine.runs.control import Control
from antiphon.engine.world import World

HANDED_OVER: Final = 60
"""How many of a session's newest messages its hand-over is made of."""


class Switching:
    """Builds the command of a switch, and of taking one back."""

    def __init__(self, world: World, questions: Questions) -> None:
        self._world = world
        self._questions = questions

    async def switch(
        self,
        conversation: Conversation,
        *,
        cause: Cause,
        goal: str | None,
        control: Control,
        asker: Run | None,
        going: Run | None = None,
        first: Sequence[Command[Any]] = (),
    ) -> Conversation | Denied:
        """Open the next session in one transaction, which compares what was read here.

        Args:
            conversation: As the caller has it; where it has moved the switch is denied.
            cause: Why.
            goal: The new session's goal, where it has one yet.
            control: Lets a cancel reach the question for a summary.
            asker: The run that pays for that question; without one it is not asked.
            going: A placed run that goes along.
            first: What is done before, in the same transaction.
        """
        store = self._world.store
        old = await store.session(conversation.id, conversation.session)
        leaf = conversation.head if going is None else going.leaf
        path = [] if leaf is None else await store.path(conversation.id, leaf)
        # What the session is about, not what every one of its branches said.
        line = visible(path, conversation.deletions)
        handover = structural(old.goal, line[-HANDED_OVER:])
        if asker is not None and line:
            handover = await self._summarized(conversation, asker, old, line, handover, control)
        new = SessionId(self._world.new_id("sess_"))
        taken = carried(
            line,
            self._world.settings.session_carry_messages,
            current=None if going is None else going.input,
        )
        text = precis(handover, old.precis) or None
        nodes, content = await self._told(
            conversation, self._copies(conversation, taken, new), new, text
        )
        command = SwitchSession(
            conversation=conversation.id,
            now_ms=self._world.clock.now_ms(),
            session=new,
            previous=old.id,
            cause=cause,
            revision=conversation.revision,
            fence=self._world.fence,
            goal=goal,
            precis=text,
            handover=handover,
            copies=nodes,
            run=None if going is None else going.id,
        )
        done = await store.do_all(*first, *content, command)
        if isinstance(done, Denied):
            return done
        self._world.lines.forget(conversation.id)
        row: Conversation = done[-1]
        return row

    async def undo(self, conversation: Conversation) -> Conversation | Denied:
        """Go back to the session before the active one, with what was said since."""
        store = self._world.store
        active = await store.session(conversation.id, conversation.session)
        if active.previous is None:
            return Denied("no_switch")
        before = await store.session(conversation.id, active.previous)
        path = (
            []
            if conversation.head is None
            else await store.path(conversation.id, conversation.head)
        )
        line = visible(path, conversation.deletions)
        own = next((n for n, m in enumerate(line) if m.copied_from is None), len(line))
        done = await store.do(
            UndoSwitch(
                conversation=conversation.id,
                now_ms=self._world.clock.now_ms(),
                session=active.id,
                revision=conversation.revision,
                copies=self._copies(conversation, line[own:], before.id, under=before.head),
            )
        )
        if not isinstance(done, Denied):
            self._world.lines.forget(conversation.id)
        return done

    async def _told(
        self,
        conversation: Conversation,
        nodes: Sequence[Message],
        session: SessionId,
        text: str | None,
    ) -> tuple[tuple[Message, ...], list[PutContent]]:
        """Let the précis stand beside the first input of a new session, and beside no other.

        There it stays, so that it moves no prefix of a request again.
        """
        key = await self._world.store.tenant_key(conversation.tenant)
        stored = await self._world.store.contents(
            conversation.tenant, sorted({node.beside for node in nodes if node.beside})
        )
        told: list[Message] = []
        content: dict[Digest, bytes] = {}
        for node in nodes:
            held = None if node.beside is None else read_beside(stored[node.beside])
            if node.role is Role.USER:
                beside = with_precis(held, session, text)
                text = None  # it is told once
                if beside is not None:
                    digest, data = stored_beside(key, beside)
                    content[digest] = data
                    node = replace(node, beside=digest)
            told.append(node)
        put = PutContent(
            conversation=conversation.id,
            now_ms=self._world.clock.now_ms(),
            items=tuple(content.items()),
        )
        return tuple(told), [put] if content else []

    def _copies(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        session: SessionId,
        *,
        under: MessageId | None = None,
    ) -> tuple[Message, ...]:
        return copies(
            messages,
            conversation=conversation.id,
            session=session,
            under=under,
            new_id=lambda: MessageId(self._world.new_id("msg_")),
        )

    async def _summarized(
        self,
        conversation: Conversation,
        asker: Run,
        old: Session,
        line: Sequence[Message],
        handover: HandOver,
        control: Control,
    ) -> HandOver:
        """Return the hand-over in a model's words too, where it finds some in time."""
        settings = self._world.settings
        text = json.dumps(
            {
                "goal": old.goal,
                "handed_over_before": old.precis,
                "messages": told(without_control(line)[-HANDED_OVER:]),
            },
            ensure_ascii=False,
        )
        reply = await self._questions.ask(
            Question(
                purpose=Purpose.SUMMARY,
                run=asker,
                about=line[-1].id,
                instructions=ASKED,
                text=text,
                timeout_s=settings.handover_timeout_s,
                max_output_tokens=settings.handover_output_tokens,
            ),
            conversation,
            control,
        )
        if isinstance(reply, Said) and reply.text.strip():
            return summarized(handover, reply.text, reply.operation)
        return handover
