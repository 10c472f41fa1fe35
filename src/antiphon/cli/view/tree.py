"""A conversation's tree on the screen: every branch, what is on the line, what came to nothing.

A line runs straight down; only a fork indents. So a long talk without branches stays flat, and
a tree of any depth is drawn without recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from antiphon.cli.view.text import (
    Ink,
    ago,
    cells,
    clip,
    count,
    one_line,
    pad,
    screen_width,
    short,
    table,
)
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Origin,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.core.ids import MessageId, SessionId
from antiphon.core.records import Conversation, Run, RunStatus, Session
from antiphon.core.tree import siblings

SPEAKERS: Final = {
    Role.SYSTEM: "system",
    Role.DEVELOPER: "developer",
    Role.USER: "you",
    Role.ASSISTANT: "model",
    Role.TOOL: "tool",
}

ON_LINE, OFF_LINE, FAILED, CANCELED, PENDING, DELETED = "●", "○", "✗", "◌", "◔", "╌"

LEGEND: Final = (
    f"{ON_LINE} on the line  {OFF_LINE} on another branch  {FAILED} failed  {CANCELED} canceled  "
    f"{PENDING} waits  {DELETED} deleted"
)


def gist(message: Message) -> str:
    """Return what a message says, in one line."""
    if message.erased:
        return "(erased)"
    return one_line(" ".join(filter(None, map(_gist, message.blocks)))) or "(empty)"


def _gist(block: Block) -> str:
    match block:
        case Text(text=text):
            return text
        case Refusal(text=text):
            return f"[refusal] {text}"
        case Reasoning():
            return ""
        case ToolCall(name=name, arguments=arguments):
            return f"→ {name} {arguments}"
        case ToolResult(content=content, outcome=outcome):
            said = " ".join(part.text for part in content if isinstance(part, Text))
            return f"← {said}" if outcome is Outcome.SUCCESS else f"← {outcome}: {said}"
        case Image():
            return "[image]"
        case Audio():
            return "[audio]"
        case File(filename=name):
            return f"[file {name or ''}]".replace(" ]", "]")
        case Unknown(name=name):
            return f"[{name}: unknown to this release]"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands among its alternatives: the second of three."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"‹ {self.number}/{self.of} ›"  # noqa: RUF001  # arrows are what they mean


class Tree:
    """Every message of a conversation, with who stands below and beside whom."""

    def __init__(self, conversation: Conversation, messages: Sequence[Message]) -> None:
        self.conversation = conversation
        self.messages = {message.id: message for message in messages}
        self.below: dict[MessageId | None, list[Message]] = {}
        for message in messages:
            self.below.setdefault(message.parent, []).append(message)
        self.line = self._line()

    def _line(self) -> frozenset[MessageId]:
        found, at = [], self.conversation.head
        while at is not None and at in self.messages:
            found.append(at)
            at = self.messages[at].parent
        return frozenset(found)

    def place(self, message: Message) -> Place | None:
        """Return where it stands among its alternatives, or None where it has none."""
        beside = siblings(message, self.below[message.parent])
        if len(beside) < 2:
            return None
        return Place(beside.index(message.id) + 1, len(beside))

    def newest_leaf(self, message: MessageId) -> MessageId:
        """Return the end of the newest committed line below a message, or itself."""
        at = message
        while going_on := self._standing(at):
            at = going_on[-1]
        return at

    @property
    def branches(self) -> int:
        """How many committed lines there are that nothing committed goes on from."""
        return sum(
            1 for m in self.messages.values() if self._stands(m) and not self._standing(m.id)
        )

    def _standing(self, message: MessageId) -> list[MessageId]:
        return [child.id for child in self.below.get(message, ()) if self._stands(child)]

    def _stands(self, message: Message) -> bool:
        return message.status is Status.SUCCESS and message.id not in self.conversation.deletions


def draw(tree: Tree, ink: Ink, width: int, session: SessionId | None = None) -> list[str]:
    """Return the tree as lines, oldest first; or that of one session."""
    rows: list[str] = []
    roots = [m for m in tree.below.get(None, ()) if session in (None, m.session)]
    # (message, what stands before it, what stands before those below it)
    todo = _fork(roots, "") if len(roots) > 1 else [(root, "", "") for root in roots]
    while todo:
        message, before, under = todo.pop()
        rows.append(_row(tree, message, before, ink, width))
        below = tree.below.get(message.id, [])
        if len(below) == 1:
            todo.append((below[0], under, under))
        else:
            todo += _fork(below, under)
    return rows


def _fork(children: Sequence[Message], under: str) -> list[tuple[Message, str, str]]:
    """Return the children of a fork, the last one first."""
    forked = [(child, f"{under}├─", f"{under}│ ") for child in children[:-1]]
    forked += [(child, f"{under}└─", f"{under}  ") for child in children[-1:]]
    return forked[::-1]


def _row(tree: Tree, message: Message, before: str, ink: Ink, width: int) -> str:
    mark, styles = _mark(tree, message)
    notes = _notes(tree, message)
    speaker = pad(SPEAKERS[message.role], 5)
    tail = short(message.id)
    fixed = cells(before) + 2 + cells(speaker) + 1 + 2 + cells(tail) + cells(notes)
    said = clip(gist(message), max(12, width - fixed))
    room = " " * max(0, width - fixed - cells(said))
    return (
        ink(before, "dim")
        + ink(mark, *styles)
        + f" {ink(speaker, *styles)} "
        + (ink(said, *styles) if "dim" in styles else said)
        + room
        + ink(notes, "mark")
        + ink(f"  {tail}", "dim")
    ).rstrip()


def _mark(tree: Tree, message: Message) -> tuple[str, tuple[str, ...]]:
    if message.id in tree.conversation.deletions:
        return DELETED, ("dim",)
    match message.status:
        case Status.ERROR:
            return FAILED, ("bad",)
        case Status.CANCELED:
            return CANCELED, ("dim",)
        case Status.PENDING:
            return PENDING, ("warn",)
        case Status.SUCCESS:
            return (ON_LINE, ("good",)) if message.id in tree.line else (OFF_LINE, ("dim",))


def _notes(tree: Tree, message: Message) -> str:
    notes = []
    if message.error_code:
        notes.append(message.error_code)
    if message.origin in (Origin.KEPT, Origin.COPIED, Origin.IMPORTED):
        notes.append(message.origin.value)
    place = tree.place(message)
    if place is not None:
        notes.append(str(place))
    if message.id == tree.conversation.head:
        notes.append("◀ head")
    return "".join(f"  {note}" for note in notes)


def headline(tree: Tree, ink: Ink) -> str:
    """Return the conversation's name and numbers in one line."""
    row = tree.conversation
    numbers = " · ".join(
        (
            count(len(tree.messages), "message"),
            count(tree.branches, "branch", "branches"),
            f"revision {row.revision}",
        )
    )
    title = f" {one_line(row.title)}" if row.title else ""
    if row.erased_ms is not None:
        numbers += f" · erased {datetime.fromtimestamp(row.erased_ms / 1000).astimezone():%Y-%m-%d}: what was said is gone"
    return f"{ink(row.id, 'bold')}{title}\n{ink(numbers, 'dim')}"


def session_line(session: Session, ink: Ink) -> str:
    """Return what a session is, in one line."""
    why = f", begun by {session.cause}" if session.cause else ""
    state = "active" if session.active else "archived"
    goal = f"  {one_line(session.goal)}" if session.goal else ""
    return ink(f"session {short(session.id)}  {state}{why}", "bold") + goal


def session_list(sessions: Iterable[Session], ink: Ink) -> list[str]:
    """Return each session with what it leaves to the next."""
    lines: list[str] = []
    for session in sessions:
        lines.append(session_line(session, ink))
        left = session.handover
        if left is not None and not session.active:
            told = left.summary or " ".join((*left.facts, *left.open))
            if told:
                lines.append(ink(f"  left: {clip(one_line(told), 100)}", "dim"))
    return lines


def conversation_page(
    tree: Tree, runs: Iterable[Run], sessions: Sequence[Session], ink: Ink, width: int
) -> list[str]:
    """Return a conversation's tree, session by session, and the runs that came to no answer."""
    lines = [headline(tree, ink)]
    if len(sessions) < 2:
        lines += ["", *draw(tree, ink, width)]
    for session in sessions if len(sessions) > 1 else ():
        lines += ["", session_line(session, ink), *draw(tree, ink, width, session.id)]
    if any(name not in tree.line for name in tree.messages):
        lines += ["", ink(LEGEND, "dim")]
    for told in runs:
        if told.status not in (RunStatus.SUCCESS, RunStatus.CANCELED):
            code = told.error_code or told.end_code or ""
            lines.append(f"{told.id}  {told.status}  {code}".rstrip())
    return lines


def conversation_list(
    rows: Iterable[Conversation], abouts: Iterable[str], ink: Ink, now_ms: int
) -> list[str]:
    """Return one line a conversation: id, age, and what it is about."""
    width = screen_width()
    told = [
        (row.id, ago(row.updated_ms, now_ms), one_line(about))
        for row, about in zip(rows, abouts, strict=True)
    ]
    return [
        clip(line, width).replace(row[0], ink(row[0], "bold"), 1)
        for line, row in zip(table(told), told, strict=True)
    ]


def first_words(roots: Iterable[Message]) -> str:
    """Return what a person said first: the best title that nobody gave."""
    return next((root.text for root in roots if root.role is Role.USER), "")
