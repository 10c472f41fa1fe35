"""What can be seen from outside: rows read from the database's file, and bytes that were received.

Lines and ancestors are walked here by hand, from the rows as they are stored, so that a mistake in
the product's own walk is seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from antiphon.core.blocks import Message, Role, Status
from antiphon.core.events import DurableEvent, RunChanged, decode_event
from antiphon.core.ids import ConversationId
from antiphon.core.records import (
    TERMINAL_CALL,
    Attempt,
    Call,
    Conversation,
    Quarantined,
    Run,
    RunStatus,
)
from antiphon.engine.assembly import open_store
from tests.cases.provider import Exchange

PROBE_ANSWER: Final = "(an answer to the probe)"
"""What is answered to whatever is under way when the next request is looked at: in no case."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message as the case tells it: what a request that holds it must say."""

    name: str
    conversation: str
    role: str
    text: str
    calls: tuple[dict[str, Any], ...] = ()
    results: tuple[dict[str, Any], ...] = ()

    @property
    def content(self) -> tuple[Any, ...]:
        """Equal for two messages that a request cannot tell apart."""
        calls = [(c["name"], json.dumps(c["arguments"], sort_keys=True)) for c in self.calls]
        results = [r["call"] for r in self.results]
        return (self.role, self.text, tuple(calls), tuple(results))

    def is_in(self, message: dict[str, Any]) -> bool:
        """Say whether `message` of a request is this one."""
        role: str = message["role"]
        if self.results:
            return bool(role == "tool" and message.get("tool_call_id") == self.results[0]["call"])
        if self.role in ("system", "developer"):
            return role in ("system", "developer") and text_of(message) == self.text
        if role != self.role or text_of(message) != self.text:
            return False
        called = [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ]
        return called == [(c["name"], c["arguments"]) for c in self.calls]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a request's message."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def strings_in(value: Any) -> Iterable[str]:
    """Yield every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings_in(inner)


@dataclass(slots=True)
class Rows:
    """One conversation as it stands in the file."""

    row: Conversation
    tree: list[Message]
    runs: list[Run]
    attempts: dict[str, list[Attempt]]
    calls: list[Call]
    events: list[DurableEvent]
    quarantine: list[Quarantined]

    def message(self, message: str | None) -> Message | None:
        return next((m for m in self.tree if m.id == message), None)

    def ancestors(self, leaf: str | None) -> list[Message]:
        """Return the stored ancestors of `leaf` and itself, root first.

        Raises:
            LookupError: The chain is broken, or a circle.
        """
        path: list[Message] = []
        while leaf is not None:
            message = self.message(leaf)
            if message is None or message in path:
                raise LookupError(f"the ancestors of {leaf} lead nowhere")
            path.append(message)
            leaf = message.parent
        return path[::-1]

    def seen(self, leaf: str | None) -> list[Message]:
        """Return what of a line is not deleted."""
        return [m for m in self.ancestors(leaf) if m.id not in self.row.deletions]

    @property
    def most_active_runs(self) -> int:
        """The most runs that were at work at the same time, from the events that told of them."""
        active: set[str] = set()
        most = 0
        for event in self.events:
            if isinstance(event, RunChanged):
                if event.status in (RunStatus.PENDING, RunStatus.UNKNOWN):
                    active.add(event.run)
                else:
                    active.discard(event.run)
                most = max(most, len(active))
        return most

    @property
    def active_runs(self) -> list[str]:
        at_work = (RunStatus.PENDING, RunStatus.UNKNOWN)
        return [run.id for run in self.runs if run.status in at_work]

    def results(self, call_id: str) -> list[str]:
        """Return the terminal results of a call: those in the tree, else the ledger's."""
        placed = [
            block.outcome.value
            for message in self.tree
            if message.role is Role.TOOL
            for block in message.results
            if block.call_id == call_id
        ]
        closed = [
            call.state.value.lower()
            for call in self.calls
            if call.call_id == call_id and call.state in TERMINAL_CALL
        ]
        return placed or closed


async def read_rows(db: Path, conversations: Iterable[str]) -> dict[str, Rows]:
    """Return what stands in the file, read beside whatever process serves it."""
    store = await open_store(str(db), read_only=True)
    try:
        found = {}
        for name in conversations:
            conversation = ConversationId(name)
            runs = await store.runs(conversation)
            attempts: dict[str, list[Attempt]] = {}
            for run in runs:
                for operation in await store.operations(conversation, run.id):
                    attempts.setdefault(run.id, []).extend(await store.attempts(operation))
            found[name] = Rows(
                row=await store.conversation(conversation),
                tree=await store.tree(conversation),
                runs=runs,
                attempts=attempts,
                calls=[c for run in runs for c in await store.calls(conversation, run.id)],
                events=[decode_event(e.data) for e in await store.events(conversation, 0, 100_000)],
                quarantine=await store.quarantine(conversation),
            )
        return found
    finally:
        await store.close()


@dataclass(slots=True)
class Asked:
    """A request to look at, or why there is none."""

    exchange: Exchange | None = None
    error: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [] if self.exchange is None else self.exchange.messages


@dataclass(slots=True)
class Facts:
    """Everything that an assertion may look at, at one moment.

    Attributes:
        rows: Per conversation, what is stored.
        names: Message ids of the case to those stored; a message that was never stored is absent.
        said: Every message that the case tells of.
        committed: Names of those that stand in history, or stood in the case from the start.
        runs: Runs of the case to the stored ones, first to last: a run that ended and was asked
            for again has more than one.
        asked: Requests of runs, and under `next` that of a plain follow-up.
        bodies: All that the provider received so far, per request with the run it was for.
        repeated: Whether something was done again that no step had asked for.
        executions: How often each call was really begun.
        screens: Per client, the text it shows.
        screen_problems: What clients were told twice, or not at all.
        errors: Codes of what was refused since the last look.
        at_the_door: Late events that met a connection which the engine had closed.
    """

    rows: dict[str, Rows]
    names: dict[str, str]
    said: dict[str, Said]
    committed: set[str]
    runs: dict[str, list[str]]
    refused_runs: dict[str, str]
    asked: dict[str, Asked]
    bodies: list[bytes]
    repeated: bool
    executions: dict[str, int]
    screens: dict[str, str]
    screen_problems: list[str]
    errors: list[str]
    at_the_door: int
    kept_texts: dict[str, str] = field(default_factory=dict)

    def run(self, name: str) -> Run | None:
        """Return the newest stored run under a run's name."""
        ids = self.runs.get(name) or [""]
        found = [run for rows in self.rows.values() for run in rows.runs if run.id == ids[-1]]
        return found[0] if found else None

    def calls(self, call_id: str) -> list[Call]:
        return [c for rows in self.rows.values() for c in rows.calls if c.call_id == call_id]

    def rows_of(self, message: str) -> Rows | None:
        """Return the conversation that holds a message."""
        stored = self.names.get(message, message)
        return next((r for r in self.rows.values() if r.message(stored)), None)

    def message(self, name: str) -> Message | None:
        rows = self.rows_of(name)
        return None if rows is None else rows.message(self.names.get(name, name))

    def name_of(self, message: Message) -> str | None:
        """Return the case's name of a stored message; None for results, which have none there.

        A copy that the engine made goes by the name of what it copies.
        """
        by_id = {stored: name for name, stored in self.names.items()}
        for stored in (message.id, message.copied_from):
            if stored is not None and stored in by_id:
                return by_id[stored]
        return None if message.role is Role.TOOL else message.id

    def canonical(self, name: str) -> int:
        """Return how many committed assistant messages stand below a message."""
        rows = self.rows_of(name)
        tree = [] if rows is None else rows.tree
        parents = {m.id for m in tree if self.name_of(m) == name}
        below = [m for m in tree if m.parent in parents]
        return sum(m.role is Role.ASSISTANT and m.status is Status.SUCCESS for m in below)
