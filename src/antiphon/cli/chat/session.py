"""A chat under way: the conversation it is in, the runs it follows, what its last line came to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from antiphon.cli.chat.voice import JsonVoice, Voice, spoken
from antiphon.cli.lookup import EVERY
from antiphon.cli.view.run import explained
from antiphon.cli.view.text import clip, one_line, screen_width, short
from antiphon.cli.view.tree import SPEAKERS, Tree, conversation_list, first_words, gist
from antiphon.core.asking import Ask, Output
from antiphon.core.blocks import Message, Role, Status
from antiphon.core.ids import MessageId
from antiphon.core.records import OPEN_RUN, Conversation, Run, RunStatus
from antiphon.engine.catalogue.models import REHEARSAL
from antiphon.engine.edge.clock import SystemClock
from antiphon.errors import InvalidInput, NotFound, Refused
from antiphon.handles.chat import Chat, Conversations
from antiphon.handles.events import CallsWaiting, Committed, Ended
from antiphon.handles.run import RunHandle

RECENT: Final = 6
"""How many messages of a line are shown when it is taken up again."""

_UNANSWERED: Final = OPEN_RUN | {RunStatus.ERROR}


class Session:
    """What the commands of a chat work on.

    Attributes:
        chat: The conversation; None until something was said in a new one.
        model: The model that further messages go to; None is the default one.
        code: The exit code that the last message deserves.
        left: The exit code with which the person left, or None.
    """

    def __init__(
        self,
        app: Conversations,
        voice: Voice,
        *,
        default_model: str,
        model: str | None = None,
        system: str | None = None,
    ) -> None:
        self.app = app
        self.voice = voice
        self.chat: Chat | None = None
        self.model = model
        self.code = 0
        self.left: int | None = None
        self.leaving = asyncio.Event()
        self._default_model = default_model
        self._system = system
        self._runs: asyncio.Queue[RunHandle] = asyncio.Queue()
        self._following: RunHandle | None = None
        self._told = asyncio.Event()
        self._answers: dict[str, str] = {}

    @property
    def ask(self) -> Ask:
        """What further runs are asked to do."""
        return Ask(model=self.model, instructions=self._system)

    @property
    def model_name(self) -> str:
        """The model that further messages go to."""
        return self.model or self._default_model

    @property
    def busy(self) -> bool:
        """Whether an answer is under way, or waits for its turn."""
        return self._following is not None or not self._runs.empty()

    # The conversation.

    async def take_up(self, chat: Chat) -> None:
        """Go on in `chat`: follow what is at work there."""
        self.chat = chat
        self._opened()
        at_work = await chat.open_run()
        if at_work is not None:
            self.follow(at_work)

    async def here(self) -> Chat:
        """Return the conversation, made when the first thing is said in it."""
        if self.chat is None:
            # A program that drives the chat says itself where its sessions begin.
            person = not isinstance(self.voice, JsonVoice)
            real = self.model_name != REHEARSAL
            self.chat = await self.app.create(scheduling=True if real and person else None)
            self._opened()
        return self.chat

    def _opened(self) -> None:
        if isinstance(self.voice, JsonVoice) and self.chat is not None:
            self.voice.opened(self.chat.id, self.model_name)

    def there(self) -> Chat:
        """Return the conversation.

        Raises:
            Refused: Nothing was said yet.
        """
        if self.chat is None:
            raise Refused("Nothing was said here yet.", code="empty_conversation")
        return self.chat

    async def message(self, name: str) -> Message:
        """Return the message of this conversation whose id is, or ends with, `name`.

        Raises:
            NotFound: There is none.
            InvalidInput: `ambiguous`: there are several.
        """
        tree = await self.there().tree()
        name = name.lstrip("…")
        found = [m for m in tree if m.id == name] or [m for m in tree if m.id.endswith(name)]
        match found:
            case [only]:
                return only
            case []:
                raise NotFound("No message here has this id.", at=name)
            case _:
                raise InvalidInput("Several ids end like this.", code="ambiguous", at=name)

    async def last_run(self) -> Run | None:
        """Return the newest run of this conversation."""
        runs = await self.chat.runs() if self.chat else []
        return runs[-1] if runs else None

    async def recent(self) -> list[str]:
        """Return the newest messages of the line, and what the last run left to be said."""
        line = await self.there().line(limit=RECENT)
        ink, width = self.voice.ink, screen_width()
        rows = [
            ink(f"{SPEAKERS[m.role]:>6}  ", "mark" if m.role is Role.USER else "dim")
            + clip(gist(m), width - 8)
            for m in line
        ]
        run = await self.last_run()
        if run is not None and run.status is RunStatus.ERROR:
            rows += [ink(text, "warn") for text in await self._unanswered(run)]
        return rows

    async def _unanswered(self, run: Run) -> list[str]:
        asked = (await (await self.app.run(run.id)).explain()).input
        said = f"“{clip(gist(asked), 40)}”" if asked is not None else "The last question"
        if run.error_code == "outcome_unknown":
            return [
                f"{said} has no answer: it broke off while it was under way.",
                "The provider may have done the work. It was not asked again: /regenerate does.",
            ]
        return [f"{said} has no answer. {explained(run.error_code)}. /regenerate asks again."]

    # Runs.

    def follow(self, run: RunHandle) -> None:
        """Tell what happens in `run`, after the runs before it."""
        self._runs.put_nowait(run)

    async def tell(self) -> None:
        """Tell what happens in every followed run, one after the other, for ever."""
        while True:
            self._following = await self._runs.get()
            self._told.clear()
            try:
                self.code = await self._tell(self._following)
            finally:
                self._following = None
                self._told.set()
                self._runs.task_done()

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._runs.join()

    async def stop(self) -> bool:
        """Cancel the run that is under way; return whether there was one."""
        run = followed = self._following
        if run is None and self.chat is not None:
            run = await self.chat.open_run()
        if run is None:
            return False
        await run.cancel()
        self._answers.clear()
        if followed is None and not self.busy:
            self.voice.note("stopped", "warn")
        return True

    async def stopped(self) -> None:
        """Stop what is under way, and wait until that is told. What is queued stays queued."""
        if self.busy and await self.stop() and self._following is not None:
            await self._told.wait()

    def must_be_free(self) -> None:
        """Return if no answer is under way.

        Raises:
            Refused: There is one.
        """
        if self.busy:
            raise Refused("An answer is under way: wait, or /stop it.", code="conversation_busy")

    async def answer(self, call: str, text: str) -> None:
        """Bring the result of a call; they go to the run when every open call has one.

        Raises:
            Refused: No call waits.
            InvalidInput: It is none of those that wait.
        """
        run = await self.there().open_run()
        waiting = {c.call_id: c.name for c in await run.waiting()} if run is not None else {}
        if run is None or not waiting:
            raise Refused("No call waits for a result.", code="nothing_waits")
        if call not in waiting and len(waiting) == 1:
            (only,) = waiting
            call, text = only, f"{call} {text}".strip()
        if call not in waiting or not text:
            names = ", ".join(f"{one} ({name})" for one, name in waiting.items())
            raise InvalidInput(f"/answer CALL TEXT, where CALL is one of {names}.", code="usage")
        self._answers[call] = text
        missing = [one for one in waiting if one not in self._answers]
        if missing:
            self.voice.note(f"noted; still waits for {', '.join(missing)}")
            return
        answers: dict[str, str | Output] = {one: self._answers[one] for one in waiting}
        self._answers.clear()
        self.follow(await run.answer(answers))

    def leave(self, code: int = 0) -> None:
        """End the chat."""
        self.left = code
        self.leaving.set()

    async def say(self, text: str) -> None:
        """Send a message of the person's."""
        chat = await self.here()
        if self.busy:
            self.voice.note("This waits for its turn.")
        self.follow(await chat.send(text, ask=self.ask))

    async def _tell(self, run: RunHandle) -> int:
        answer: Message | None = None
        async for event in run.events():
            match event:
                case Committed(message=message):
                    answer = message
                    self.voice.event(event, await self._seal(run, event))
                case CallsWaiting():
                    self.voice.event(event)
                    return 4
                case Ended():
                    if event.status is RunStatus.CANCELED:
                        self.voice.stopped(await self._stopped(run))
                    if event.status is RunStatus.ERROR and (reason := await self._reason(run)):
                        self.voice.note(f"the reason given: {reason}", "warn")
                    self.voice.event(event)
                    await self._point_out_branch(answer)
                    return await self._exit_code(run, event)
                case _:
                    self.voice.event(event)
        return 1

    async def _reason(self, run: RunHandle) -> str:
        """Return what was said in place of an answer, in the newest attempt."""
        told = (await run.explain()).operations
        said = told[-1].attempts[-1].said if told and told[-1].attempts else None
        return "" if said is None else one_line(said.message)

    async def _stopped(self, run: RunHandle) -> str:
        """Return what a stopped run had said, as it is stored for people."""
        tree = await self.there().tree()
        said = (m for m in reversed(tree) if m.run == run.id and m.status is Status.CANCELED)
        return spoken(node) if (node := next(said, None)) is not None else ""

    async def _seal(self, run: RunHandle, event: Committed) -> str:
        """Return the line under an answer that says that it is history now."""
        row = await run.row()
        words = [f"saved {short(event.message.id)}"]
        if not event.message.calls and (row.input_tokens or row.output_tokens):
            words.append(f"{row.input_tokens} in, {row.output_tokens} out")
        beside = await self.there().siblings(event.message.id)
        if len(beside) > 1:
            words.append(f"‹ {beside.index(event.message.id) + 1}/{len(beside)} ›")  # noqa: RUF001
        return " · ".join(words)

    async def _point_out_branch(self, answer: Message | None) -> None:
        if answer is None:
            return
        head = (await self.there().row()).head
        if head != answer.id:
            self.voice.note(
                f"It stands on another branch than the one you look at: /switch {short(answer.id)}",
                "warn",
            )

    async def _exit_code(self, run: RunHandle, event: Ended) -> int:
        if event.status is RunStatus.SUCCESS:
            return 0
        return (await run.failure(event.status, event.code)).exit_code

    # What a line offers.

    async def tree(self) -> Tree:
        """Return the conversation's tree."""
        chat = self.there()
        return Tree(await chat.row(), await chat.tree())

    async def to_answer_again(self) -> MessageId:
        """Return what `/regenerate` is about: an answer, or an input that has none.

        Raises:
            Refused: Nothing was asked.
        """
        run = await self.last_run()
        if (
            run is not None
            and run.status in (RunStatus.ERROR, RunStatus.CANCELED)
            and run.leaf is not None
        ):
            return run.leaf
        line = await self.there().line()
        if not line:
            raise Refused("Nothing was asked yet.", code="empty_conversation")
        return line[-1].id

    async def to_edit(self) -> Message:
        """Return the last user message: on the line, or one that came to nothing.

        Raises:
            Refused: There is none.
        """
        run = await self.last_run()
        if run is not None and run.status is RunStatus.ERROR and run.input is not None:
            return await self.there().message(run.input)
        for message in reversed(await self.there().line()):
            if message.role is Role.USER:
                return message
        raise Refused("There is nothing to edit yet.", code="empty_conversation")

    async def to_keep(self) -> Message:
        """Return the newest canceled text.

        Raises:
            Refused: There is none.
        """
        for message in reversed(await self.there().tree()):
            if message.status is Status.CANCELED and spoken(message):
                return message
        raise Refused("No text of a stopped answer is there to keep.", code="nothing_to_keep")

    async def history(self) -> list[str]:
        """Return what the person said in the newest conversations, for the editor's memory."""
        said: list[str] = []
        for row in reversed(await self.app.newest(limit=5)):
            chat = await self.app.conversation(row.id)
            line = await chat.line(limit=200)
            failed = [run.id for run in await chat.runs() if run.status in _UNANSWERED][-1:]
            unanswered = [(await (await chat.run(run)).explain()).input for run in failed]
            said += [m.text for m in (*line, *unanswered) if m and m.role is Role.USER]
        return said[-200:]

    async def rows(self) -> list[str]:
        """Return the list of conversations."""
        rows = await self.app.newest(limit=20)
        abouts = [row.title or await self._first_words(row) for row in rows]
        lines = conversation_list(rows, abouts, self.voice.ink, SystemClock().now_ms())
        here = self.chat.id if self.chat else None
        return [
            ("● " if row.id == here else "  ") + line for row, line in zip(rows, lines, strict=True)
        ] or [one_line("No conversations yet.")]

    async def _first_words(self, row: Conversation) -> str:
        return first_words(await (await self.app.conversation(row.id)).roots())

    async def conversation(self, name: str) -> Chat:
        """Return the conversation whose id is, or ends with, `name`.

        Raises:
            NotFound: There is none.
            InvalidInput: `ambiguous`: there are several.
        """
        with contextlib.suppress(NotFound):
            return await self.app.conversation(name)
        found = [row for row in await self.app.newest(limit=EVERY) if row.id.endswith(name)]
        match found:
            case [only]:
                return await self.app.conversation(only.id)
            case []:
                raise NotFound("There is no conversation with this id.", at=name)
            case _:
                raise InvalidInput("Several ids end like this.", code="ambiguous", at=name)
