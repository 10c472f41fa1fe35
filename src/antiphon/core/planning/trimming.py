"""Where a line may be cut: at the beginning of a turn, and nowhere else.

What is left out is always the oldest part, in one piece, so that what follows is a talk that
somebody could have had. Instructions stay wherever they stand, and a call is never parted from its
result: a turn is a user's message with all that came of it. A number of messages to keep is an
upper bound: the cut moves on to the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.core.blocks import (
    Message,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from antiphon.core.ids import CallId, MessageId
from antiphon.core.planning.tokens import PERMILLE, TOKENS_A_MESSAGE, Counter, scaled

INSTRUCTING: Final = frozenset({Role.SYSTEM, Role.DEVELOPER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A message as the planner sees it: what it costs and what it is tied to.

    Attributes:
        required: Whether the dispatch is refused rather than made without it.
    """

    id: MessageId
    role: Role
    tokens: int
    calls: tuple[CallId, ...] = ()
    results: tuple[CallId, ...] = ()
    required: bool = False

    @property
    def stays(self) -> bool:
        """Whether it stays whatever is cut: instructions do."""
        return self.required or self.role in INSTRUCTING


def candidate(message: Message, counter: Counter, factor_permille: int = PERMILLE) -> Candidate:
    """Return `message` as the planner sees it.

    Its tokens are a guide to where a line may be cut; what is sent is weighed as it is rendered.
    """
    tokens = TOKENS_A_MESSAGE + 1 + counter.count(list(_texts(message)))
    return Candidate(
        id=message.id,
        role=message.role,
        tokens=scaled(tokens, factor_permille),
        calls=tuple(call.call_id for call in message.calls),
        results=tuple(result.call_id for result in message.results),
    )


def _texts(message: Message) -> Iterator[str]:
    for block in message.blocks:
        match block:
            case Text(text=text) | Refusal(text=text) | Reasoning(text=text):
                yield text
            case ToolCall(name=name, arguments=arguments):
                yield name
                yield arguments
            case ToolResult(content=content):
                yield from (part.text for part in content if isinstance(part, Text))
            case _:
                pass


def turns(line: Sequence[Candidate]) -> Iterator[int]:
    """Yield the places at which a line may begin: each is a user's message with no call open.

    Of users' messages that follow each other only the first begins a turn.
    """
    waiting: set[CallId] = set()
    before: Role | None = None
    for place, message in enumerate(line):
        if message.role is Role.USER and before is not Role.USER and not waiting:
            yield place
        waiting.update(message.calls)
        waiting.difference_update(message.results)
        if message.role not in INSTRUCTING:
            before = message.role


def cut(
    line: Sequence[Candidate], *, tokens: int | None = None, messages: int | None = None
) -> int:
    """Return the place from which on a line is kept: the oldest beginning of a turn that fits.

    The newest turn is kept whatever it costs: whether that may be sent is asked elsewhere. Where
    all of it fits, or nothing begins a turn, nothing is cut.

    Args:
        line: Root first.
        tokens: Most that what is kept may cost, with what stays before the cut; None for any.
        messages: Most messages that are kept, beside those that stay; None for any.

    Example:
        >>> from antiphon.core.blocks import Role
        >>> line = [Candidate(id=str(n), role=role, tokens=10)
        ...         for n, role in enumerate([Role.USER, Role.ASSISTANT] * 3)]
        >>> cut(line, tokens=50), cut(line, messages=3)
        (2, 4)
    """
    costs = sum(message.tokens for message in line)
    kept = sum(not message.stays for message in line)
    beginnings = list(turns(line))
    if not beginnings or (_within(costs, tokens) and _within(kept, messages)):
        return 0
    place = 0
    for beginning in beginnings:
        for message in line[place:beginning]:
            if not message.stays:
                costs -= message.tokens
                kept -= 1
        place = beginning
        if beginning and _within(costs, tokens) and _within(kept, messages):
            break
    return place


def _within(count: int, most: int | None) -> bool:
    return most is None or count <= most


def chosen(path: Sequence[Message], start: MessageId | None) -> list[Message]:
    """Return what of `path` is sent where it begins at `start`: that, and every instruction before.

    All of it where there is no such message on it: the path is another one.
    """
    place = next((n for n, message in enumerate(path) if message.id == start), 0)
    return [*(m for m in path[:place] if m.role in INSTRUCTING), *path[place:]]
