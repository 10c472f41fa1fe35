"""A `Backend` on a server: each question a request, each change a request that may be repeated."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from time import time_ns
from typing import Any, Final
from urllib.parse import quote

from antiphon.client.feed import Feed
from antiphon.client.wire import Wire
from antiphon.core.asking import Ask, ModelTold, Output
from antiphon.core.blocks import Block, Message
from antiphon.core.commands import StartKey
from antiphon.core.events import StreamItem
from antiphon.core.ids import ConversationId, MessageId, RunId, sortable
from antiphon.core.knowledge.kept import File, Remembered, RememberedKind
from antiphon.core.knowledge.retrieval import Beside
from antiphon.core.records import Call, Conversation, Run, Session
from antiphon.core.telling.explanation import Explanation, PlanTold
from antiphon.core.telling.listings import Files, Kept, Messages, Models, Page, Runs, Sessions, Tree

ROOT: Final = "/antiphon/v1"
PAGE: Final = 200


class Remote:
    """A `Backend` on the server that `wire` reaches."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    # Changes.

    async def create(self, *, title: str | None, scheduling: bool | None) -> Conversation:
        """Create a conversation."""
        # Not sent again where it may have arrived: it would stand there twice.
        body = {"title": title, "scheduling": scheduling}
        return await self._wire.change("POST", CONVERSATIONS, body, Conversation, again=False)

    async def send(
        self,
        conversation: ConversationId,
        content: str | Sequence[Block],
        ask: Ask,
        *,
        parent: MessageId | None,
        message: str | None,
        key: StartKey | None,
    ) -> Run:
        """Start a run with a new message, whose id is ours: a repetition is the same run."""
        named = message or new_id("msg_")
        body = {"content": content, "id": named, "parent": parent, **_asked(ask)}
        if ask.steer:
            body["steer"] = True
        path = f"{of(conversation)}/messages"
        return await self._wire.change(
            "POST", path, body, Run, key=key.key if key else None, alone=ask.alone
        )

    async def edit(
        self,
        conversation: ConversationId,
        message: MessageId,
        content: str | Sequence[Block],
        ask: Ask,
    ) -> Run:
        """Start a run with a sibling of a user message."""
        named = new_id("msg_")
        body = {"content": content, "id": named, **_asked(ask)}
        path = f"{of_message(message)}/edit"
        return await self._wire.change(
            "POST", path, body, Run, alone=ask.alone, conversation=conversation
        )

    async def regenerate(self, conversation: ConversationId, message: MessageId, ask: Ask) -> Run:
        """Start a run for another answer."""
        return await self._wire.change(
            "POST",
            f"{of_message(message)}/regenerate",
            _asked(ask),
            Run,
            key=new_id("regenerate_"),
            alone=ask.alone,
            conversation=conversation,
        )

    async def answer(
        self, conversation: ConversationId, run: RunId, outputs: Mapping[str, str | Output]
    ) -> Run:
        """Bring the results of all open calls of a run; the same again change nothing."""
        given = [
            {
                "call_id": call,
                **_output(output if isinstance(output, Output) else Output(text=output)),
            }
            for call, output in outputs.items()
        ]
        return await self._wire.change("POST", f"{of_run(run)}/outputs", {"outputs": given}, Run)

    async def approve(
        self, conversation: ConversationId, run: RunId, call: str, *, arguments: str | None
    ) -> Call:
        """Let a call run that waits for approval; the same approval again changes nothing."""
        body = {"run": run, "arguments": arguments}
        return await self._wire.change("POST", f"{of_call(call)}/approve", body, Call)

    async def refuse(
        self, conversation: ConversationId, run: RunId, call: str, *, reason: str
    ) -> Call:
        """Close a call that waits for approval."""
        body = {"run": run, "reason": reason}
        return await self._wire.change("POST", f"{of_call(call)}/refuse", body, Call)

    async def resolve(
        self, conversation: ConversationId, run: RunId, call: str, output: Output
    ) -> Call:
        """Give a call of unknown fate its result."""
        body = {"run": run, **_output(output)}
        return await self._wire.change("POST", f"{of_call(call)}/resolve", body, Call)

    async def cancel(self, conversation: ConversationId, run: RunId, *, reason: str) -> Run:
        """Cancel a run; canceled twice is canceled once."""
        return await self._wire.change("POST", f"{of_run(run)}/cancel", {"reason": reason}, Run)

    async def move_head(self, conversation: ConversationId, head: MessageId | None) -> Conversation:
        """Look at another line."""
        body = {"head": head}
        return await self._wire.change("PUT", f"{of(conversation)}/head", body, Conversation)

    async def delete(
        self, conversation: ConversationId, messages: Iterable[MessageId]
    ) -> Conversation:
        """Skip messages on every line."""
        row: Conversation | None = None
        for message in messages:
            row = await self._wire.change(
                "DELETE", of_message(message), None, Conversation, conversation=conversation
            )
        return row or await self.conversation(conversation)

    async def keep(self, conversation: ConversationId, message: MessageId) -> Conversation:
        """Keep canceled text as a message."""
        path = f"{of_message(message)}/keep"
        await self._wire.change("POST", path, None, Message, again=False, conversation=conversation)
        return await self.conversation(conversation)

    async def set_title(self, conversation: ConversationId, title: str | None) -> Conversation:
        """Name a conversation."""
        return await self._wire.change("PATCH", of(conversation), {"title": title}, Conversation)

    async def begin_session(self, conversation: ConversationId, goal: str | None) -> Session:
        """Archive the active session and begin another one."""
        # Not sent again where it may have arrived: that would be another session.
        path, body = f"{of(conversation)}/sessions", {"goal": goal}
        return await self._wire.change("POST", path, body, Session, again=False)

    async def undo_switch(self, conversation: ConversationId) -> Session:
        """Go back to the session before; undone twice would be two switches."""
        path = f"{of(conversation)}/sessions/undo"
        return await self._wire.change("POST", path, None, Session, again=False)

    async def schedule(self, conversation: ConversationId, on: bool | None) -> Conversation:
        """Let sessions come and go by themselves, or not."""
        path = f"{of(conversation)}/scheduling"
        return await self._wire.change("PUT", path, {"on": on}, Conversation)

    async def add_file(
        self, conversation: ConversationId, name: str, data: bytes, *, charset: str | None
    ) -> File:
        """Keep a file and look a conversation's questions up in it."""
        body = {"name": name, "data": data, "charset": charset}
        # Not sent again where it may have arrived: it would be there twice.
        return await self._wire.change("POST", f"{of(conversation)}/files", body, File, again=False)

    async def take_file(self, conversation: ConversationId, file: str) -> File:
        """Look nothing more up in a file."""
        path = f"{of(conversation)}/files/{quote(file, safe='')}"
        return await self._wire.change("DELETE", path, None, File)

    async def remember(
        self,
        conversation: ConversationId | None,
        key: str,
        text: str,
        *,
        kind: RememberedKind,
    ) -> Remembered:
        """Keep a text under a key; the same again changes nothing."""
        body = {"text": text, "kind": kind}
        return await self._wire.change("PUT", of_memory(conversation, key), body, Remembered)

    async def forget(
        self, conversation: ConversationId | None, key: str, *, kind: RememberedKind
    ) -> None:
        """Take such a text away."""
        await self._wire.call("DELETE", of_memory(conversation, key), query={"kind": kind})

    # Questions.

    async def files(self, conversation: ConversationId) -> list[File]:
        """Return the files that a conversation's questions are looked up in."""
        return (await self._wire.get(f"{of(conversation)}/files", Files)).data

    async def remembered(self, conversation: ConversationId | None) -> list[Remembered]:
        """Return what is kept for a conversation and for all."""
        return (await self._wire.get(of_memories(conversation), Kept)).data

    async def beside(self, conversation: ConversationId, message: MessageId) -> Beside:
        """Return what stands beside a message for the model."""
        path = f"{of_message(message)}/beside"
        return await self._wire.get(path, Beside, conversation=conversation)

    def feed(self, conversation: ConversationId, after: int) -> Feed:
        """Return a follower of a conversation."""
        return Feed(self._wire, f"{of(conversation)}/events", after)

    def follow(self, conversation: ConversationId, after: int) -> AsyncGenerator[StreamItem, None]:
        """Yield what came after event number `after`, and what comes."""
        return self.feed(conversation, after).items()

    async def conversation(self, conversation: ConversationId) -> Conversation:
        """Return the row."""
        return await self._wire.get(of(conversation), Conversation)

    async def conversations(self, *, limit: int) -> list[Conversation]:
        """Return conversations, last changed first."""
        rows: list[Conversation] = []
        cursor: ConversationId | None = None
        while len(rows) < limit:
            page = await self._wire.get(
                CONVERSATIONS, Page, limit=min(PAGE, limit - len(rows)), cursor=cursor
            )
            rows += page.data
            cursor = page.cursor
            if cursor is None:
                break
        return rows

    async def run(self, run: RunId) -> Run:
        """Return the row."""
        return (await self.explain(run)).run

    async def runs(self, conversation: ConversationId) -> list[Run]:
        """Return a conversation's runs."""
        return (await self._wire.get(f"{of(conversation)}/runs", Runs)).data

    async def calls(self, conversation: ConversationId, run: RunId) -> list[Call]:
        """Return the ledger of a run."""
        return list((await self.explain(run)).calls)

    async def message(self, conversation: ConversationId, message: MessageId) -> Message:
        """Return one message."""
        return await self._wire.get(of_message(message), Message, conversation=conversation)

    async def line(
        self, conversation: ConversationId, leaf: MessageId | None, limit: int | None
    ) -> list[Message]:
        """Return the line that a model may see."""
        path = f"{of(conversation)}/line"
        return (await self._wire.get(path, Messages, leaf=leaf, limit=limit)).data

    async def sessions(self, conversation: ConversationId) -> list[Session]:
        """Return the sessions in their order."""
        return (await self._wire.get(f"{of(conversation)}/sessions", Sessions)).data

    async def tree(self, conversation: ConversationId) -> list[Message]:
        """Return every message."""
        return (await self._wire.get(f"{of(conversation)}/tree", Tree)).messages

    async def children(
        self, conversation: ConversationId, parent: MessageId | None
    ) -> list[Message]:
        """Return the children of a message, or the roots."""
        path = f"{of(conversation)}/children"
        return (await self._wire.get(path, Messages, parent=parent)).data

    async def explain(self, run: RunId) -> Explanation:
        """Return everything that is recorded about a run."""
        return await self._wire.get(of_run(run), Explanation)

    async def request(self, run: RunId) -> bytes:
        """Return the exact body of a run's newest dispatch."""
        return await self._wire.call("GET", f"{of_run(run)}/request/body")

    async def plan(self, run: RunId) -> PlanTold:
        """Return what a run's newest dispatch was made of, and why."""
        return await self._wire.get(f"{of_run(run)}/plan", PlanTold)

    async def models(self) -> list[ModelTold]:
        """Return the models that there are."""
        return (await self._wire.get(f"{ROOT}/models", Models)).data

    async def model(self, name: str) -> str:
        """Return the name of a model as runs are to ask for it."""
        (told,) = (await self._wire.get(f"{ROOT}/models", Models, name=name)).data
        return told.name


CONVERSATIONS: Final = f"{ROOT}/conversations"


def of(conversation: ConversationId) -> str:
    """Return the path of a conversation."""
    return f"{CONVERSATIONS}/{quote(conversation, safe='')}"


def of_run(run: RunId) -> str:
    """Return the path of a run."""
    return f"{ROOT}/runs/{quote(run, safe='')}"


def of_message(message: MessageId) -> str:
    """Return the path of a message."""
    return f"{ROOT}/messages/{quote(message, safe='')}"


def of_call(call: str) -> str:
    """Return the path of a call."""
    return f"{ROOT}/calls/{quote(call, safe='')}"


def of_memories(conversation: ConversationId | None) -> str:
    """Return the path of what is remembered for a conversation, or for all."""
    return f"{ROOT if conversation is None else of(conversation)}/memories"


def of_memory(conversation: ConversationId | None, key: str) -> str:
    """Return the path of one text that is remembered."""
    return f"{of_memories(conversation)}/{quote(key, safe='')}"


def new_id(prefix: str) -> str:
    """Return an id of this client's own, which makes a repetition known as one."""
    return sortable(prefix, time_ns() // 1_000_000, secrets.randbits(80))


def _asked(ask: Ask) -> dict[str, Any]:
    """Return what a run is asked to do, as the server takes it; what is not said is left out."""
    asked: dict[str, Any] = {
        "model": ask.model,
        "instructions": ask.instructions,
        "named": ask.named,
        "tools": ask.tools or None,
        "tool_choice": ask.tool_choice,
        "temperature": ask.temperature,
        "max_output_tokens": ask.max_output_tokens,
        "answer_schema": ask.answer_schema,
        "retry_answer": ask.retry_answer or None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _output(output: Output) -> dict[str, Any]:
    return {"output": output.text, "error": output.error, "code": output.code}
