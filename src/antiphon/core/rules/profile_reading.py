"""What follows from a profile before any message is seen: worked out once, not for every line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from antiphon.core.blocks import (
    Audio,
    File,
    Image,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.core.rules.blocks import particular, particular_messages
from antiphon.core.rules.profile import Echo, Profile
from antiphon.core.rules.steps import StepRules

KIND_NAMES: Final[Mapping[type, str]] = {
    Text: "text",
    Image: "image",
    Audio: "audio",
    File: "file",
    Reasoning: "reasoning",
    Refusal: "refusal",
    ToolCall: "tool_call",
    ToolResult: "tool_result",
}

READINGS: Final = 256
"""Of so many profiles it is remembered what they come to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What follows from a profile alone, in one of its two readings: the same for every line.

    What the profile has no rule about is not looked at, message by message.

    Attributes:
        kinds: Kinds of blocks that may stand in a message of each role, as far as is asked here:
            the graph rules speak of unknown kinds, and of kinds in a foreign role.
        silent: Those of them that there is no more to ask about than where they stand.
        particular: Kinds that the profile has rules of its own about.
        particular_messages: Whether it has any about a message as a whole.
        call_ids: How an id of a call is spelled; None for anyhow.
        names: How the name of a tool is spelled.
        blanks: Whether a text that says nothing is refused.
        echoes: Whether an answer has to hold its reasoning.
        follows: Whether it matters what stands behind the assistant's message, or behind results.
        spoken: The role in which a message of each role goes out; None for none.
        free_roles: Roles that no rule has a word against, wherever they stand.
        steps: Whether the steps of a loop are looked at as such.
        may_follow_results: Whether what the adapter puts behind results is legal there.
    """

    kinds: Mapping[Role, frozenset[type]]
    silent: Mapping[Role, frozenset[type]]
    particular: frozenset[type]
    particular_messages: bool
    call_ids: re.Pattern[str] | None
    names: re.Pattern[str] | None
    blanks: bool
    echoes: bool
    follows: bool
    spoken: Mapping[Role, Role | None]
    free_roles: frozenset[Role]
    steps: bool
    may_follow_results: bool


@lru_cache(maxsize=READINGS)
def reading_of(profile: Profile, mapped: bool) -> Reading:
    """Return what `profile` comes to; `mapped` where its adapter puts right what it safely can."""
    beside = {Unknown, Reasoning, Refusal} if mapped else {Unknown}
    kinds = {
        role: beside.union(
            kind for kind, name in KIND_NAMES.items() if name in profile.kinds.get(role, ())
        )
        for role in Role
    }
    asked_about = {ToolCall, ToolResult, Image, *particular(profile, mapped=mapped)}
    blanks = not (profile.blank_text and profile.empty_text)
    if blanks:
        asked_about.add(Text)
    names = None if mapped else profile.tool_name_pattern
    follows = profile.after_assistant is not None or profile.after_tool is not None
    ordered = (
        profile.system_first
        or profile.system_apart
        or profile.alternation
        or profile.starts_with_user
        or follows
    )
    as_such = frozenset(r for r in Role if mapped and profile.spoken_as(r))
    user_may = profile.after_tool is None or Role.USER in profile.after_tool
    return Reading(
        kinds={role: frozenset(those) for role, those in kinds.items()},
        silent={role: frozenset(those - asked_about) for role, those in kinds.items()},
        particular=particular(profile, mapped=mapped),
        particular_messages=particular_messages(profile, mapped=mapped),
        call_ids=re.compile(profile.call_id_pattern) if profile.call_id_pattern else None,
        names=re.compile(names) if names else None,
        blanks=blanks,
        echoes=not mapped and profile.reasoning in (Echo.WITH_CALLS, Echo.ALWAYS),
        follows=follows,
        spoken={
            role: profile.spoken_as(role) if mapped or role is Role.TOOL else role for role in Role
        },
        free_roles=frozenset() if ordered else profile.roles | as_such,
        steps=StepRules.concern(profile, mapped=mapped),
        may_follow_results=mapped and user_may and not profile.alternation,
    )
