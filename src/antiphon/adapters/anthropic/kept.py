"""A request held against what earlier answers left to be sent back: signed thinking.

In the loop of calls that is under way thinking is missed when it does not go back; in older
turns it may be left out. What does go back has to be what came, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from antiphon.adapters.anthropic.parts import cites
from antiphon.adapters.base import Parsed
from antiphon.core.blocks import Message, Reasoning, Role, ToolCall, block_id
from antiphon.core.rules.findings import Finding

Fields: TypeAlias = Mapping[str, object]

SIGNED: Final = frozenset({"thinking", "redacted_thinking"})


class _Thought(NamedTuple):
    """A block of thinking: everything about it that has to go back."""

    type: object
    says: object
    signature: object


class _Answer(NamedTuple):
    """An assistant's message of the request, and where it begins in the sequence."""

    message: Message
    start: int
    open: bool  # whether it belongs to the loop that is under way


def findings(parsed: Parsed, stored: Fields) -> Iterator[Finding]:
    """Yield what of the kept thinking is missing from a request, or other than it came.

    `committed_blocks` are the blocks of answers: a list of them, of messages, or of either by
    place or by any other name. `stored_provider_state` is what single blocks, named by place, had come with.
    """
    answers = list(_answers(parsed.messages))
    for answer, blocks in _committed(parsed, answers, stored.get("committed_blocks")):
        wanted = [_thought(b) for b in blocks if b.get("type") in SIGNED]
        wrong = [*_compare(parsed, answer, wanted)]
        yield from wrong or _moved(parsed, answer, blocks)
    state = stored.get("stored_provider_state")
    for place, fields in state.items() if isinstance(state, dict) else ():
        if isinstance(fields, dict):
            yield from _at(parsed, answers, place, fields)


def _answers(messages: Sequence[Message]) -> Iterator[_Answer]:
    asked = max((n for n, m in enumerate(messages) if m.role is Role.USER), default=-1)
    start = 0
    for number, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            yield _Answer(message, start, number > asked)
        start += len(message.blocks) or 1


def _committed(
    parsed: Parsed, answers: Sequence[_Answer], committed: object
) -> Iterator[tuple[_Answer, list[Fields]]]:
    """Yield the blocks that were kept of each answer."""
    groups: dict[str, list[Fields]] = {}
    match committed:
        case {"type": str()} | {"content": list()} | {"blocks": list()}:
            groups[""] = _blocks(committed)
        case dict():
            for name, value in committed.items():
                groups.setdefault(_message_of(name), []).extend(_blocks(value))
        case [{"type": str()}, *_]:
            groups[""] = _blocks(committed)
        case list():
            for number, item in enumerate(committed):
                name = item.get("at") if isinstance(item, dict) else None
                held = item.get("block", item) if isinstance(item, dict) else item
                place = _message_of(name) if isinstance(name, str) else f"#{number}"
                groups.setdefault(place, []).extend(_blocks(held))
        case _:
            pass
    for name, blocks in groups.items():
        place = name if name.startswith("messages[") else ""
        answer = _belongs(parsed, answers, place, blocks)
        if answer is not None:
            yield answer, blocks


def _message_of(name: str) -> str:
    """Return the place of a message: of one of its blocks, or of its number; else `name`."""
    place = name.partition(".")[0]
    return f"messages[{place}]" if place.isdecimal() else place


def _blocks(value: object) -> list[Fields]:
    if isinstance(value, dict):
        value = value.get("content", value.get("blocks", [value]))
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("type"), str)]


def _belongs(
    parsed: Parsed, answers: Sequence[_Answer], place: str, blocks: Sequence[Fields]
) -> _Answer | None:
    """Return the answer at `place`, or that with a call of the blocks, or else the last one."""
    ids = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    for answer in answers:
        at = answer.message.id
        calls = {b.call_id for b in answer.message.blocks if isinstance(b, ToolCall)}
        if parsed.places.get(at, at) == place or (not place and not ids.isdisjoint(calls)):
            return answer
    return answers[-1] if answers and not place and not ids else None


def _thought(block: Fields) -> _Thought:
    says = block.get("data") if block.get("type") == "redacted_thinking" else block.get("thinking")
    return _Thought(block.get("type"), says, block.get("signature"))


def _is_thinking(block: Reasoning) -> bool:
    """Whether it is thinking, and neither work of the provider's own nor what a text cites."""
    return block.opaque is None or not (block.opaque.work or cites(block.opaque))


def _sent(block: Reasoning) -> _Thought | None:
    """Return thinking as it stands in the request; None where it has no signature."""
    if block.opaque is None:
        return None
    state = msgspec.json.decode(block.opaque.value)
    return _thought(state if "data" in state else {**state, "thinking": block.text})


def _compare(parsed: Parsed, answer: _Answer, wanted: Sequence[_Thought]) -> Iterator[Finding]:
    message = answer.message
    found = [
        (order, _sent(block))
        for order, block in enumerate(message.blocks)
        if isinstance(block, Reasoning) and _is_thinking(block)
    ]
    if len(found) < len(wanted) and (answer.open or found):
        yield Finding(
            code="thinking_missing",
            at=parsed.places.get(message.id, message.id),
            position=answer.start,
            message="Thinking came with this answer, and has to go back with it. Send the blocks that were kept.",
        )
        return
    for (order, sent), came in zip(found, wanted, strict=False):
        if sent is not None and sent != came:
            yield _modified(parsed, answer, order)


def _moved(parsed: Parsed, answer: _Answer, blocks: Sequence[Fields]) -> Iterator[Finding]:
    """Yield the first thinking that stands behind other calls than it came behind."""
    sent = list(answer.message.blocks)
    if [b.get("type") for b in blocks].count("tool_use") != len(answer.message.calls):
        return  # not all of the answer was kept, or not all of it is here
    came = _calls_before(
        [b.get("type") in SIGNED for b in blocks], [b.get("type") == "tool_use" for b in blocks]
    )
    stand = _calls_before(
        [isinstance(b, Reasoning) and _is_thinking(b) for b in sent],
        [isinstance(b, ToolCall) for b in sent],
    )
    for (_, before), (order, here) in zip(came, stand, strict=False):
        if before != here:
            yield _modified(parsed, answer, order)
            return


def _calls_before(thinking: Sequence[bool], calls: Sequence[bool]) -> list[tuple[int, int]]:
    """Return where thinking stands, and how many calls stand before it."""
    return [(n, sum(calls[:n])) for n, thinks in enumerate(thinking) if thinks]


def _at(
    parsed: Parsed, answers: Sequence[_Answer], place: str, fields: Fields
) -> Iterator[Finding]:
    for answer in answers:
        for order, block in enumerate(answer.message.blocks):
            at = block_id(answer.message.id, order)
            if parsed.places.get(at, at) != place:
                continue
            if not isinstance(block, Reasoning) or not _is_thinking(block):
                yield from _compare(parsed, answer, [_thought({"type": "thinking", **fields})])
            elif (sent := _sent(block)) is not None:
                came = _thought(
                    {"type": sent.type, "thinking": sent.says, "data": sent.says, **fields}
                )
                if sent != came:
                    yield _modified(parsed, answer, order)
            return


def _modified(parsed: Parsed, answer: _Answer, order: int) -> Finding:
    at = block_id(answer.message.id, order)
    return Finding(
        code="thinking_modified",
        at=parsed.places.get(at, at),
        position=answer.start + order,
        message="This thinking is not what came. Send the block that was kept, byte for byte and in its place.",
    )
