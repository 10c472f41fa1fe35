"""State that a provider had sent with a block, as a file of ours tells it.

A file gives it as `provider_state`, with the profile that it came from as `origin`. Where nobody
says whose it is, its fields do; what nobody could have made is left out, and no provider is shown
what it did not make itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from antiphon.adapters.registry import KNOWN
from antiphon.core.blocks import Block, Message, Opaque, ToolCall, ToolResult
from antiphon.core.ids import CallId

Fields = Mapping[str, object]

MAKERS: Final = (
    ("thoughtSignature", "gemini"),
    ("encrypted_content", "openai-responses"),
    ("summary", "openai-responses"),
    ("signature", "anthropic"),
    ("data", "anthropic"),
    ("id", "openai-responses"),
)
"""Fields that only one provider's state has; the first that is there decides."""

THOUGHTS: Final[Mapping[str, Fields]] = {
    "openai-responses": {"type": "reasoning", "summary": []},
    "anthropic": {"type": "thinking"},
    "gemini-interactions": {"type": "thought"},
}
"""What reasoning of each says of itself, where a file leaves that out."""


def kept_state(fields: Fields, *, thought: bool = False) -> Opaque | None:
    """Return the state that stands beside a block, or None; `thought` says that it is reasoning.

    Example:
        >>> kept_state({"provider_state": {"thoughtSignature": "c2ln"}}).profile
        'gemini'
    """
    state, origin = fields.get("provider_state"), fields.get("origin")
    if not isinstance(state, dict) or not state:
        return None
    profile = origin if origin in KNOWN else None
    profile = profile or next((maker for mark, maker in MAKERS if mark in state), None)
    if not isinstance(profile, str):
        return None
    whole = {**THOUGHTS.get(profile, {}), **state} if thought else state
    if thought and profile == "anthropic":
        if state.get("data"):
            whole = {"type": "redacted_thinking", **state}
        elif not state.get("signature"):
            return None  # it signs what it thinks: this it did not make
    return Opaque(profile=profile, value=msgspec.Raw(msgspec.json.encode(whole)))


def with_call_ids(messages: Iterable[Message], stored: Fields) -> tuple[Message, ...]:
    """Return messages with the ids that a provider gave their calls, where those were kept.

    `provider_call_ids` tells them by the ids that the graph has. A call that it does not name
    keeps its own, and so do calls that it names alike: some servers begin again with each answer.
    """
    given = stored.get("provider_call_ids")
    if not isinstance(given, dict):
        return tuple(messages)
    line = tuple(messages)
    told = {own: kept for own, kept in given.items() if isinstance(kept, str) and kept}
    calls = [call.call_id for message in line for call in message.calls]
    meant = Counter(told.get(own, own) for own in calls)
    ids = {own: CallId(told[own]) for own in calls if own in told and meant[told[own]] == 1}

    def named(block: Block) -> Block:
        if not isinstance(block, ToolCall | ToolResult) or block.call_id not in ids:
            return block
        return msgspec.structs.replace(block, call_id=ids[block.call_id])

    return tuple(
        msgspec.structs.replace(message, blocks=tuple(map(named, message.blocks)))
        for message in line
    )


def artifacts(value: object) -> dict[str, list[Fields]]:
    """Return what was kept of blocks and nodes, by their ids, each with its origin."""
    found: dict[str, list[Fields]] = {}
    for profile, states in value.items() if isinstance(value, dict) else ():
        for name, state in states.items() if isinstance(states, dict) else ():
            found.setdefault(name, []).append({"provider_state": state, "origin": profile})
    return found
