"""Profiles: what one dialect allows, as data, and how a caller may state it otherwise.

A profile holds facts, never code. `antiphon.core.rules` reads them to judge a line, the
adapter of the dialect reads them to map what can be mapped safely. A rule that only one
server has is a fact of that server: refusing what a provider would accept is as much a bug
as letting through what it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from antiphon.core.blocks import Role
from antiphon.errors import InvalidInput


class Echo(StrEnum):
    """Whether the model's reasoning goes back to it."""

    NEVER = "never"
    WITH_CALLS = "with_calls"
    ALWAYS = "always"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one dialect.

    Attributes:
        name: As in the configuration: `openai-chat`.
        roles: Roles that the wire can say.
        kinds: Kinds of blocks that may stand in a message of each role.
        system_first: System text is one message at the very front, or nowhere.
        alternation: User and assistant take turns; calls and results in between do not count.
        starts_with_user: The first message beside system text is the user's.
        ends_with_user: The last message may not be the assistant's: no prefill.
        after_tool: Roles that may follow a tool message; None for any.
        results_adjacent: Nothing stands between a call's message and its results.
        results_in_call_order: Results come in the order of their calls.
        result_media: A result may hold images and files.
        blank_text: A text may be empty or only spaces.
        call_id_max: Longest call id that is taken; None for any.
        call_id_safe: Longest call id that every deployment takes, where that is less; longer
            ones are respelled when we render.
        call_id_pattern: What a call id has to match as a whole.
        tool_name_pattern: What the name of a tool has to match as a whole.
        max_tools: Most tools in one request.
        max_blocks: Most blocks in one message.
        tools_declared: History with calls needs tool declarations.
        strict_schemas: A tool declared strict must keep to the closed subset of JSON Schema.
        reasoning: When reasoning goes back.
    """

    name: str
    roles: frozenset[Role]
    kinds: dict[Role, frozenset[str]]
    system_first: bool = False
    alternation: bool = False
    starts_with_user: bool = False
    ends_with_user: bool = False
    after_tool: frozenset[Role] | None = None
    results_adjacent: bool = True
    results_in_call_order: bool = False
    result_media: bool = True
    blank_text: bool = True
    call_id_max: int | None = None
    call_id_safe: int | None = None
    call_id_pattern: str | None = None
    tool_name_pattern: str | None = None
    max_tools: int | None = None
    max_blocks: int | None = None
    tools_declared: bool = False
    strict_schemas: bool = False
    reasoning: Echo = Echo.NEVER

    def spoken_as(self, role: Role) -> Role | None:
        """Return the role that a message of `role` can safely go out in, or None.

        Developer and system text stand for each other. Where there is neither, both are told
        as the user's own: that takes authority away and never gives any.
        """
        if role in self.roles:
            return role
        if role is Role.SYSTEM or role is Role.DEVELOPER:
            for other in (Role.SYSTEM, Role.DEVELOPER, Role.USER):
                if other in self.roles:
                    return other
        return None


def with_facts(profile: Profile, facts: Mapping[str, object]) -> Profile:
    """Return `profile` as changed by what a caller knows about the model behind it.

    Args:
        profile: The dialect's own table.
        facts: Any of `FACTS`; a value of None is as good as absent.

    Raises:
        InvalidInput: A fact that no profile has (`unknown_fact`), or a value that it cannot
            have (`bad_fact`); `at` names it.
    """
    changes: dict[str, object] = {}
    for fact, value in facts.items():
        if value is None:
            continue
        read = FACTS.get(fact)
        if read is None:
            raise InvalidInput(
                f"No profile has this fact. Known: {', '.join(FACTS)}.",
                code="unknown_fact",
                at=f"model_profile.{fact}",
            )
        try:
            changes |= read(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"This value does not fit: {error}.", code="bad_fact", at=f"model_profile.{fact}"
            ) from None
    changed = msgspec.structs.replace(profile, **changes)
    if changed.alternation and changes.get("alternation"):
        # A template that insists on turns knows one system text at most: the first message.
        changed = msgspec.structs.replace(changed, system_first=True, starts_with_user=True)
    return changed


def _length(value: object) -> dict[str, object]:
    if not isinstance(value, int) or value < 1:
        raise ValueError("a length is a whole number above 0")
    return {"call_id_max": value, "call_id_safe": None}


def _pattern(value: object) -> dict[str, object]:
    try:
        re.compile(str(value))
    except re.error as error:
        raise ValueError(f"no regular expression ({error})") from None
    return {"call_id_pattern": str(value)}


def _roles(value: object) -> dict[str, object]:
    return {"roles": _role_set(value)}


def _after_tool(value: object) -> dict[str, object]:
    return {"after_tool": _role_set([value] if isinstance(value, str) else value)}


def _signatures(value: object) -> dict[str, object]:
    """Thought signatures are a matter of the Gemini wire; a profile without them has no fact."""
    if not isinstance(value, str):
        raise TypeError("a word is expected")
    return {}


def _word(field: str, **words: object) -> Callable[[object], dict[str, object]]:
    """Return a reader of a fact that is one word out of a few, each of them a value of `field`."""

    def read(value: object) -> dict[str, object]:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return {field: words[value]}

    return read


def _role_set(value: object) -> frozenset[Role]:
    if not isinstance(value, list | tuple | set | frozenset) or not value:
        raise TypeError("a list of roles is expected")
    return frozenset(Role(role) for role in value)


FACTS: Final[Mapping[str, Callable[[object], dict[str, object]]]] = {
    "call_id_max": _length,
    "call_id_pattern": _pattern,
    "prefill": _word("ends_with_user", supported=False, unsupported=True),
    "system_position": _word("system_first", anywhere=False, first=True, first_only=True),
    "roles": _roles,
    "alternation": _word("alternation", free=False, none=False, strict=True),
    "after_tool": _after_tool,
    "thought_signatures": _signatures,
    "reasoning_echo": _word(
        "reasoning",
        never=Echo.NEVER,
        none=Echo.NEVER,
        with_calls=Echo.WITH_CALLS,
        required=Echo.WITH_CALLS,
        always=Echo.ALWAYS,
    ),
}
"""What a caller may state about a model, and the facts of the profile that it sets."""
