"""Items that only go back together: reasoning and what came of it.

In the request itself reasoning is followed by what it led to. What earlier answers left says
which reasoning stood before an item that is sent under its name, and in which order they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from antiphon.adapters.base import Parsed
from antiphon.adapters.openai_responses.items import state_of, thought_of
from antiphon.adapters.openai_responses.parse import CLIENTS_OWN
from antiphon.adapters.openai_responses.profile import OPENAI_RESPONSES, reasons
from antiphon.core.blocks import Reasoning, Role, Text, ToolCall, block_id
from antiphon.core.rules.findings import Finding

NAME: Final = OPENAI_RESPONSES.name


class _Sent(NamedTuple):
    """An item of the model's as it stands in the request."""

    at: str
    position: int
    answer: int  # which of the messages it belongs to
    id: str | None
    reasoning: Reasoning | None = None
    called: bool = False
    begins: str = ""  # as the id does that the provider gave it


class _Stored(NamedTuple):
    """An item of an earlier answer, and what of it may not change."""

    id: str
    reasoning: bool
    sealed: object = None


def findings(parsed: Parsed, stored: Mapping[str, object]) -> Iterator[Finding]:
    """Yield what of the model's items was torn apart, or cannot be found again.

    `stored_output_items` are the items of each answer, as names or whole, by its response.
    """
    sent = list(_sent(parsed))
    yield from _ids(sent)
    keeps = bytes(parsed.policy.extra.get("store", b""))
    answers = list(_answers(stored.get("stored_output_items")))
    for number, item in enumerate(sent):
        following = sent[number + 1] if number + 1 < len(sent) else None
        if item.reasoning is not None:
            yield from _alone(item, following, forgotten=keeps == b"false")
    if answers:
        for items in answers:
            yield from _held_against(sent, items)
    elif keeps == b"true" and reasons(parsed.policy.model):
        yield from _unreasoned(sent)


def _sent(parsed: Parsed) -> Iterator[_Sent]:
    position = 0
    for number, message in enumerate(parsed.messages):
        for order, block in enumerate(message.blocks if message.role is Role.ASSISTANT else ()):
            at = block_id(message.id, order)
            place, here = parsed.places.get(at, at), position + order
            if isinstance(block, Reasoning) and block.opaque is not None:
                name = thought_of(block.opaque).id or None
                yield _Sent(
                    place, here, number, name, block, begins="" if block.opaque.work else "rs"
                )
            elif isinstance(block, Text | ToolCall):
                name = state_of(block.opaque, NAME).id
                called = isinstance(block, ToolCall)
                begins = "fc" if called else "msg"
                if isinstance(block, ToolCall) and block.name in CLIENTS_OWN:
                    begins = ""  # each kind has a beginning of its own
                yield _Sent(place, here, number, name, called=called, begins=begins)
            else:
                yield _Sent(place, here, number, None)
        position += len(message.blocks) or 1


def _ids(sent: list[_Sent]) -> Iterator[Finding]:
    """Yield the ids that the provider did not give, and reasoning that stands there twice."""
    told: set[str] = set()
    for item in sent:
        at, name = item.at.partition(".")[0], item.id
        if name is not None and name not in told and not name.startswith(item.begins):
            yield Finding(
                code="malformed_item",
                at=f"{at}.id",
                position=item.position,
                message=f"The id of such an item begins with {item.begins!r}. Send the id that came, or none.",
            )
        elif name in told and item.begins == "rs":
            yield Finding(
                code="message_id_conflict",
                at=at,
                position=item.position,
                message=f"The item {name} stands here twice. Send each item once.",
            )
        if name is not None:
            told.add(name)


def _alone(item: _Sent, following: _Sent | None, *, forgotten: bool) -> Iterator[Finding]:
    """Yield what is wrong with reasoning, or with what the provider did, by itself."""
    opaque = item.reasoning.opaque if item.reasoning is not None else None
    if opaque is None:
        return
    thought = thought_of(opaque)
    if thought.type == "item_reference" and forgotten:
        yield _finding(
            "malformed_item",
            item,
            "Nothing is kept with store set to false, so there is no item of this name. Send the item itself.",
        )
    if opaque.work:
        return
    if following is None or following.answer != item.answer:
        yield _finding(
            "reasoning_unpaired",
            item,
            "Nothing follows this reasoning that it led to. Send the item that came after it, or drop both.",
        )
    elif forgotten and not thought.readable:
        yield _finding(
            "lost_reasoning",
            item,
            "This is only the name of reasoning, and nothing is kept with store set to false. "
            "Send its encrypted_content, or leave it out with the ids of what followed.",
        )


def _unreasoned(sent: list[_Sent]) -> Iterator[Finding]:
    """Yield calls that go out under the name that they were stored under, without reasoning."""
    thought = {item.answer for item in sent if item.reasoning is not None}
    for item in sent:
        if item.called and item.id is not None and item.answer not in thought:
            yield _unpaired(item)


def _held_against(sent: list[_Sent], items: list[_Stored]) -> Iterator[Finding]:
    """Yield what is not as this answer had it."""
    places = {item.id: number for number, item in enumerate(sent) if item.id is not None}
    before: _Stored | None = None  # the reasoning that led to what follows
    last = -1
    for stored in items:
        here = places.get(stored.id)
        if stored.reasoning:
            before = stored
        elif here is not None and before is not None and before.id not in places:
            yield _unpaired(sent[here])
        if here is None:
            continue
        if here < last:
            yield _finding(
                "item_order",
                sent[here],
                "This item stood behind the one that now follows it. Keep the order in which they came.",
            )
        last = max(last, here)
        reasoning = sent[here].reasoning
        if stored.sealed is not None and reasoning is not None and reasoning.opaque is not None:
            now = thought_of(reasoning.opaque).encrypted_content
            if now is not None and now != stored.sealed:
                yield _finding(
                    "thinking_modified",
                    sent[here],
                    "The sealed content is not what came. Send the item that was kept, byte for byte.",
                )


def _answers(value: object) -> Iterator[list[_Stored]]:
    """Yield the items of each answer that was kept."""
    lists = value.values() if isinstance(value, dict) else [value]
    for items in lists:
        if isinstance(items, dict):
            items = items.get("output")
        if isinstance(items, list):
            yield [stored for item in items if (stored := _stored(item)) is not None]


def _stored(item: object) -> _Stored | None:
    match item:
        case str():
            return _Stored(item, item.startswith("rs_"))
        case {"id": str(name), **more}:
            kind = more.get("type")
            reasoning = kind == "reasoning" if kind is not None else name.startswith("rs_")
            return _Stored(name, reasoning, more.get("encrypted_content"))
        case _:
            return None


def _unpaired(item: _Sent) -> Finding:
    return _finding(
        "reasoning_unpaired",
        item,
        "Reasoning led to this item, and it is sent under its name without it. Send the reasoning before it, "
        "or leave out the id.",
    )


def _finding(code: str, item: _Sent, message: str) -> Finding:
    return Finding(code=code, at=item.at, position=item.position, message=message)
