"""When a model is asked about the session, and what is done with what it says.

Three occasions, in the order of a turn: before an input is placed, inside a run whose model asked
for a new session, and after a run. A process that dies in between leaves a run that is looked at
again, or a session that goes on; never a message that is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from antiphon.core.blocks import Message
from antiphon.core.commands import DropWish, NoteDecision, SetGoal, SetTitle
from antiphon.core.dispatch import Denied
from antiphon.core.ids import OperationId
from antiphon.core.manifest import Purpose
from antiphon.core.questions import Question, Reply, Said
from antiphon.core.records import Cause, Conversation, Run
from antiphon.core.sessions import scheduling
from antiphon.core.sessions.handover import without_control
from antiphon.core.sessions.scheduling import Decided, Decision, doubt
from antiphon.core.tree import line as visible
from antiphon.engine.dispatch.questions import CANCELED, MOVED, Questions
from antiphon.engine.runs.control import Control
from antiphon.engine.sessions.switching import Switching
from antiphon.engine.world import World

HOUR_MS: Final = 3_600_000
SWITCH_LIMIT: Final = "switch_limit"
BUSY: Final = "conversation_busy"


class Scheduler:
    """Decides about the sessions of all conversations; it holds nothing of any of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._questions = Questions(world)
        self._switching = Switching(world, self._questions)

    def on(self, conversation: Conversation) -> bool:
        """Whether sessions come and go by themselves here."""
        set_here = conversation.scheduling
        return self._world.settings.scheduling if set_here is None else set_here

    def looks_after(self, conversation: Conversation) -> bool:
        """Whether anything is asked once a run has ended here."""
        untitled = self._world.settings.titles and conversation.title is None
        return untitled or self.on(conversation)

    # Before a message is placed.

    async def before(
        self,
        run: Run,
        conversation: Conversation,
        others: Sequence[Run],
        waiting: Message,
        control: Control,
    ) -> bool:
        """Decide where a queued run's input belongs; say whether anything has changed by that.

        Then the caller looks again: the run may have been canceled, the conversation may stand in
        another session.
        """
        if not self.on(conversation):
            return False
        idle_ms = int(self._world.settings.session_idle_s * 1000)
        match scheduling.look(run, conversation, others, idle_ms=idle_ms):
            case scheduling.GoOn():
                return False
            case scheduling.BeginAnew():
                decided = Decided(decision=Decision.START_NEW, reason="idle")
                return await self._carry_out(run, conversation, decided, Cause.IDLE, control)
            case scheduling.AskFirst():
                reply = await self._ask_before(run, conversation, waiting, control)
                if not isinstance(reply, Said) and reply.reason in (MOVED, CANCELED):
                    return True
                decided = _decided(reply)
                return await self._carry_out(
                    run, conversation, decided, Cause.DECISION, control, reply.operation
                )
            case look:
                assert_never(look)

    async def _ask_before(
        self, run: Run, conversation: Conversation, waiting: Message, control: Control
    ) -> Reply:
        settings = self._world.settings
        assert conversation.head is not None
        session = await self._world.store.session(conversation.id, conversation.session)
        recent = await self._newest(conversation, settings.decision_messages)
        question = self._decision(
            run,
            conversation,
            instructions=scheduling.BEFORE,
            text=scheduling.before_text(session.goal, recent, waiting),
        )
        return await self._questions.ask(question, conversation, control)

    async def _carry_out(
        self,
        run: Run,
        conversation: Conversation,
        decided: Decided,
        cause: Cause,
        control: Control,
        operation: OperationId | None = None,
    ) -> bool:
        """Note a decision, and switch where it says so; both in one transaction."""
        if decided.decision is Decision.START_NEW:
            if await self._too_often(conversation):
                decided = doubt(SWITCH_LIMIT)
            else:
                switched = await self._switching.switch(
                    conversation,
                    cause=cause,
                    goal=decided.goal,
                    control=control,
                    asker=run,
                    first=[self._note(run, conversation, decided, operation)],
                )
                if not isinstance(switched, Denied) or switched.reason != BUSY:
                    return True
                decided = doubt(BUSY)
        await self._world.store.do(self._note(run, conversation, decided, operation))
        return True

    def _note(
        self,
        run: Run,
        conversation: Conversation,
        decided: Decided,
        operation: OperationId | None,
    ) -> NoteDecision:
        return NoteDecision(
            conversation=conversation.id,
            now_ms=self._world.clock.now_ms(),
            run=run.id,
            decision=decided.decision,
            revision=conversation.revision,
            goal=decided.goal,
            reason=decided.reason,
            operation=operation,
        )

    # Inside a run.

    async def inside(self, run: Run, control: Control) -> Run:
        """Settle a run's wish for a new session, and return the run as it stands then.

        All its calls are closed and their results are placed.
        """
        store = self._world.store
        conversation = await store.conversation(run.conversation)
        reason: str | None = None
        if run.switched or not self.on(conversation):
            reason = "not_offered"
        elif await self._too_often(conversation):
            reason = SWITCH_LIMIT
        else:
            switched = await self._switching.switch(
                conversation,
                cause=Cause.TOOL,
                goal=run.wish or None,
                control=control,
                asker=run,
                going=run,
            )
            if isinstance(switched, Denied):
                reason = switched.reason
        if reason is not None:
            await store.do(
                DropWish(
                    conversation=run.conversation,
                    now_ms=self._world.clock.now_ms(),
                    run=run.id,
                    reason=reason,
                )
            )
        return await store.run(run.conversation, run.id)

    # After a run.

    async def after(self, run: Run, control: Control) -> None:
        """Ask for a title, and whether the session still has its goal, where that is wanted.

        What a cancel through `control` cuts short is not made up for: the next message is asked
        about before it is answered.
        """
        store = self._world.store
        conversation = await store.conversation(run.conversation)
        if not scheduling.asks_after(run) or conversation.head != run.leaf:
            return
        if self._world.settings.titles and conversation.title is None:
            await self._name(run, conversation, control)
        if self.on(conversation) and run.decision is None and not run.switched:
            await self._close(run, conversation, control)

    async def _close(self, run: Run, conversation: Conversation, control: Control) -> None:
        session = await self._world.store.session(conversation.id, conversation.session)
        newest = await self._newest(conversation, self._world.settings.closing_messages)
        question = self._decision(
            run,
            conversation,
            instructions=scheduling.AFTER,
            text=scheduling.after_text(session.goal, newest),
        )
        decided = _decided(await self._questions.ask(question, conversation, control))
        match decided.decision:
            case Decision.CONTINUE:
                return
            case Decision.UPDATE_GOAL:
                await self._world.store.do(
                    SetGoal(
                        conversation=conversation.id,
                        now_ms=self._world.clock.now_ms(),
                        session=session.id,
                        goal=decided.goal,
                    )
                )
            case Decision.START_NEW:
                if not await self._too_often(conversation):
                    await self._switching.switch(
                        conversation,
                        cause=Cause.CLOSING,
                        goal=decided.goal,
                        control=control,
                        asker=run,
                    )
            case _:
                assert_never(decided.decision)

    async def _name(self, run: Run, conversation: Conversation, control: Control) -> None:
        """Give the conversation a title, unless somebody has named it meanwhile."""
        settings = self._world.settings
        newest = await self._newest(conversation, settings.decision_messages)
        assert run.leaf is not None
        question = Question(
            purpose=Purpose.TITLE,
            run=run,
            about=run.leaf,
            instructions=scheduling.TITLE,
            text=scheduling.after_text(None, newest),
            timeout_s=settings.title_timeout_s,
            max_output_tokens=settings.title_output_tokens,
        )
        reply = await self._questions.ask(question, conversation, control)
        title = scheduling.read_title(reply.text) if isinstance(reply, Said) else None
        if title is not None:
            await self._world.store.do(
                SetTitle(
                    conversation=conversation.id,
                    now_ms=self._world.clock.now_ms(),
                    title=title,
                    unless_named=True,
                )
            )

    # What a person asks for.

    async def force(self, conversation: Conversation, goal: str | None) -> Conversation | Denied:
        """Begin a new session because a person says so; the limit is for models."""
        asker = await self._last_run(conversation)
        return await self._switching.switch(
            conversation,
            cause=Cause.PERSON,
            goal=goal,
            control=Control(self._world.clock),
            asker=asker,
        )

    async def undo(self, conversation: Conversation) -> Conversation | Denied:
        """Take the last switch back; what was said since is carried along."""
        return await self._switching.undo(conversation)

    # What is read.

    def _decision(
        self, run: Run, conversation: Conversation, *, instructions: str, text: str
    ) -> Question:
        settings = self._world.settings
        assert conversation.head is not None
        return Question(
            purpose=Purpose.DECISION,
            run=run,
            about=conversation.head,
            instructions=instructions,
            text=text,
            timeout_s=settings.decision_timeout_s,
            max_output_tokens=settings.decision_output_tokens,
        )

    async def _newest(self, conversation: Conversation, most: int) -> list[Message]:
        assert conversation.head is not None
        path = await self._world.store.path(conversation.id, conversation.head, limit=most)
        return without_control(visible(path, conversation.deletions))

    async def _last_run(self, conversation: Conversation) -> Run | None:
        """Return the run that the newest message of the head's line came with."""
        store = self._world.store
        if conversation.head is None:
            return None
        for message in reversed(await store.path(conversation.id, conversation.head, limit=20)):
            if message.run is not None:
                return await store.run(conversation.id, message.run)
        return None

    async def _too_often(self, conversation: Conversation) -> bool:
        """Whether this conversation has had its switches of the hour."""
        most = self._world.settings.session_switches_per_hour
        newest = await self._world.store.sessions(conversation.id, most + 1)
        since_ms = self._world.clock.now_ms() - HOUR_MS
        recent = [s for s in newest if s.previous is not None and s.created_ms > since_ms]
        return len(recent) >= most


def _decided(reply: Reply) -> Decided:
    """Return what a reply decides; where there is none, to go on."""
    if not isinstance(reply, Said):
        return doubt(reply.reason)
    return scheduling.read_decision(reply.text)
