"""A broken history made legal, where whoever brought it asked for that.

What cannot stand is dropped, what is open is closed, and nothing is made up about what happened:
a call without a result gets one that says that nobody knows its fate. The same history is always
repaired alike, each change is listed with the reason code that asked for it, and a history that
breaks none of these rules comes back as it was.

It knows the rules of the graph. What a dialect wants beside them is mapped when it is rendered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Mapped
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Outcome,
    Role,
    ToolCall,
    ToolResult,
    Trust,
    block_id,
)
from antiphon.core.ids import CallId, MessageId
from antiphon.core.manifest import Mapping
from antiphon.core.rules.findings import Change, Repair
from antiphon.core.tools.ledger import fate_unknown, text_result

RESULT_MISSING: Final = "result_missing"
"""The code of a result that was added: it says that the fate of its call is unknown."""

_is_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A line, and what had to be done to it; nothing for one that was whole.

    `came_from` says of each block whose id is another now which block it was, and of an added
    result which call it closes.
    """

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...]
    came_from: Mapped[str, str]


def listed(one: Repair) -> Mapping:
    """Return a repair as a manifest lists it."""
    detail = f"{one.reason}: {one.call_id}" if one.call_id else one.reason
    return Mapping(rule=f"repair_{one.change}", block=one.at, detail=detail)


def repair(messages: Sequence[Message]) -> Repaired:
    """Return the line as it can be sent, root first, and every change that this took.

    A message keeps its id; one that holds added results is named after the message that asks.

    Example:
        >>> repair([]).repairs
        ()
    """
    return _Line(messages).repaired()


@dataclass(slots=True)
class _Asked:
    """A call as it stands on the line, and the result that answers it, if one does."""

    message: int
    order: int
    call: ToolCall
    answered_by: ToolResult | None = None


@dataclass(slots=True)
class _Line:
    """Pairs calls with results first, then tells the line anew."""

    messages: Sequence[Message]
    repairs: list[tuple[int, Repair]] = field(default_factory=list)
    calls: dict[int, dict[int, _Asked]] = field(default_factory=dict)
    results: dict[tuple[int, int], ToolResult] = field(default_factory=dict)
    early: dict[int, list[tuple[ToolResult, str]]] = field(default_factory=dict)
    came_from: dict[str, str] = field(default_factory=dict)

    def repaired(self) -> Repaired:
        by_id = self._called()
        self._answered(by_id)
        told = tuple(self._chained(self._told()))
        made = (one for _, one in sorted(self.repairs, key=lambda found: found[0]))
        return Repaired(messages=told, repairs=tuple(made), came_from=self.came_from)

    def _note(self, position: int, change: Change, reason: str, at: str, call_id: str = "") -> None:
        self.repairs.append(
            (position, Repair(change=change, reason=reason, at=at, call_id=call_id))
        )

    # Calls: which may stand, and under which id.

    def _called(self) -> dict[CallId, list[_Asked]]:
        """Find the calls that may stand, by the ids that they were brought with."""
        by_id: dict[CallId, list[_Asked]] = {}
        taken = {call.call_id for message in self.messages for call in message.calls}
        for number, message in enumerate(self.messages):
            if message.role is not Role.ASSISTANT:
                continue
            for order, block in enumerate(message.blocks):
                if not isinstance(block, ToolCall):
                    continue
                at = block_id(message.id, order)
                unusable = _unusable(block)
                if unusable is not None:
                    self._note(number, Change.CALL_REMOVED, unusable, at, block.call_id)
                    continue
                same = by_id.setdefault(block.call_id, [])
                named = block
                if same:
                    named = replace(block, call_id=_free(block.call_id, taken))
                    taken.add(named.call_id)
                    self._note(number, Change.CALL_RENAMED, "duplicate_call_id", at, named.call_id)
                asked = _Asked(message=number, order=order, call=named)
                same.append(asked)
                self.calls.setdefault(number, {})[order] = asked
        return by_id

    # Results: which call each of them answers.

    def _answered(self, by_id: dict[CallId, list[_Asked]]) -> None:
        for number, message in enumerate(self.messages):
            for order, block in enumerate(message.blocks):
                if isinstance(block, ToolResult):
                    self._pair(number, order, block, by_id.get(block.call_id, []))

    def _pair(self, number: int, order: int, result: ToolResult, same: list[_Asked]) -> None:
        at = block_id(self.messages[number].id, order)
        waiting = [asked for asked in same if asked.answered_by is None]
        before = [asked for asked in waiting if asked.message < number]
        reason = _removed(self.messages[number], result, same, before, waiting)
        if reason is not None:
            self._note(number, Change.RESULT_REMOVED, reason, at, result.call_id)
            return
        asked = (before or waiting)[0]
        asked.answered_by = replace(result, call_id=asked.call.call_id)
        if before:
            self.results[number, order] = asked.answered_by
        else:
            self.early.setdefault(asked.message, []).append((asked.answered_by, at))
            self._note(number, Change.RESULT_MOVED, "result_before_call", at, result.call_id)

    # The line, told anew.

    def _told(self) -> Iterator[Message]:
        owing: tuple[int, list[tuple[ToolResult, str]]] | None = None  # behind the next results
        last = len(self.messages) - 1
        for number, message in enumerate(self.messages):
            if owing is not None and message.role is not Role.TOOL:
                yield self._added(*owing)
                owing = None
            blocks = tuple(self._blocks(number, message))
            if blocks or not self._left_out(number, message, last):
                yield message if blocks == message.blocks else replace(message, blocks=blocks)
            added = self._owed(number)
            if added:
                owing = (number, added)
        if owing is not None:
            yield self._added(*owing)

    def _blocks(self, number: int, message: Message) -> Iterator[Block]:
        kept = 0
        for order, block in enumerate(message.blocks):
            stays: Block | None = block
            if isinstance(block, ToolResult):
                stays = self.results.get((number, order))
            elif isinstance(block, ToolCall) and message.role is Role.ASSISTANT:
                asked = self.calls.get(number, {}).get(order)
                stays = None if asked is None else asked.call
            if stays is None:
                continue
            if kept != order:
                self.came_from[block_id(message.id, kept)] = block_id(message.id, order)
            kept += 1
            yield stays

    def _left_out(self, number: int, message: Message, last: int) -> bool:
        """Whether a message of which nothing is left goes; noted where no block of it was."""
        if message.blocks:
            return True
        if number == last or message.erased:
            return False  # what is asked last cannot be guessed, nor what is gone
        self._note(number, Change.MESSAGE_REMOVED, "empty_content", message.id)
        return True

    def _owed(self, number: int) -> list[tuple[ToolResult, str]]:
        """Return the results that the message's calls lack where they are due, and whence."""
        owed = list(self.early.get(number, ()))
        for asked in self.calls.get(number, {}).values():
            if asked.answered_by is None:
                at = block_id(self.messages[number].id, asked.order)
                call_id = asked.call.call_id
                self._note(number, Change.RESULT_ADDED, "missing_tool_result", at, call_id)
                owed.append((_unknown(call_id), at))
        return owed

    def _added(self, number: int, results: list[tuple[ToolResult, str]]) -> Message:
        asking = self.messages[number]
        name = MessageId(f"{asking.id}+results")
        self.came_from[name] = asking.id
        for order, (_, at) in enumerate(results):
            self.came_from[block_id(name, order)] = at
        return Message(
            id=name,
            conversation=asking.conversation,
            parent=asking.id,
            role=Role.TOOL,
            blocks=tuple(result for result, _ in results),
            origin=Origin.SYSTEM,
            trust=Trust.TOOL,
            session=asking.session,
        )

    def _chained(self, told: Iterator[Message]) -> Iterator[Message]:
        """Let each message follow the one before it, where something between them has changed."""
        parent = self.messages[0].parent if self.messages else None
        for message in told:
            yield message if message.parent == parent else replace(message, parent=parent)
            parent = message.id


def _unknown(call_id: CallId) -> ToolResult:
    return ToolResult(
        call_id=call_id,
        content=text_result(fate_unknown()),
        outcome=Outcome.ERROR,
        code=RESULT_MISSING,
    )


def _unusable(call: ToolCall) -> str | None:
    """Return why a call cannot stand, or None."""
    if not call.call_id or not call.name:
        return "malformed_item"
    if call.closed and (not call.arguments.strip() or _parses(call.arguments)):
        return None
    return "unclosed_arguments"


def _parses(arguments: str) -> bool:
    try:
        _is_json(arguments)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _removed(
    message: Message,
    result: ToolResult,
    same: Sequence[_Asked],
    before: Sequence[_Asked],
    waiting: Sequence[_Asked],
) -> str | None:
    """Return why a result answers nothing, or None where it answers the first that waits."""
    if not result.call_id or message.role is not Role.TOOL:
        return "malformed_item"
    if not same:
        return "orphan_tool_result"
    if not waiting:
        return "duplicate_tool_result"
    open_ones = before or waiting
    if any(_differ(open_ones[0].call, other.call) for other in open_ones[1:]):
        return "duplicate_call_id"  # nobody can say which of them it is the result of
    call = open_ones[0].call
    if result.name is not None and result.name != call.name:
        return "tool_mismatch"
    if None is not result.generation != call.generation is not None:
        return "generation_mismatch"
    return None


def _differ(one: ToolCall, other: ToolCall) -> bool:
    return (one.name, one.arguments) != (other.name, other.arguments)


def _free(call_id: CallId, taken: set[CallId]) -> CallId:
    """Return an id made of `call_id` that no call has."""
    number = 2
    while f"{call_id}_{number}" in taken:
        number += 1
    return CallId(f"{call_id}_{number}")
