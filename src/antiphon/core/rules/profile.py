"""Profiles: what one dialect allows, as data, and how a caller may state it otherwise.

A profile holds facts, never code. `antiphon.core.rules.graph` reads them to judge a line, the
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
    KEPT = "kept"
    """What was kept of its own goes back as it came; where nothing was, nothing is missing."""
    WITH_CALLS = "with_calls"
    ALWAYS = "always"


class StrictSubset(msgspec.Struct, frozen=True, kw_only=True):
    """The part of JSON Schema that strict tools may use; objects are closed in any case.

    Attributes:
        forbidden: Keywords that may stand nowhere.
        formats: Formats of strings that are known.
    """

    forbidden: frozenset[str]
    formats: frozenset[str]


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of one dialect.

    A default means "no such rule", for ever: it is left out of the adapter's digest, so that a
    rule which a new dialect brings is no change of the others.

    Attributes:
        name: As in the configuration: `openai-chat`.
        roles: Roles that the wire can say.
        kinds: Kinds of blocks that may stand in a message of each role.
        system_first: System text is one message at the very front, or nowhere.
        alternation: User and assistant take turns; calls and results in between do not count.
        starts_with_user: The first message beside system text is the user's.
        ends_with_user: The last message may not be the assistant's: no prefill.
        prefill_trimmed: A text that the model is to continue may not end in a space.
        merged_neighbours: Neighbours of one role are read as one message.
        one_message_a_turn: Neighbours of one role have to be one message already, as they do
            not where the provider itself joins them.
        system_apart: System text stands apart from the messages, at the top of the request.
        system_last: System text may be the last of several messages.
        after_assistant: Roles that may follow the assistant's message, beside the results of
            its calls; None for any.
        after_tool: Roles that may follow a tool message; None for any.
        text_with_calls: The assistant's message may hold both text and calls.
        image_urls: An image may be given by its address, for the provider to fetch.
        file_ids: A file may be given by an id that its provider gave it.
        files_need_text: A message with a file has a text beside it.
        max_images: Most images in one message.
        max_files: Most files in one message.
        results_in_user: Results are content of a user message.
        results_adjacent: Nothing stands between a call's message and its results.
        results_in_call_order: Results come in the order of their calls.
        results_together: All results of a message stand in one message.
        calls_answer: A message with calls stands behind the user's, or behind results.
        signed_calls: The first call of each message is signed, since the user last spoke.
        result_media: A result may hold images and files.
        failures_speak: A result that is an error has content.
        blank_text: A text may be empty or only spaces.
        empty_text: A text may be empty, where it may be only spaces.
        image_types: Media types of images that are taken as data; None for any.
        file_types: Media types of files that are taken as data; None for any.
        audio_formats: Formats of recorded sound that are taken; None for any.
        call_id_max: Longest call id that is taken; None for any.
        call_id_safe: Longest call id that every deployment takes, where that is less; longer
            ones are respelled when we render.
        call_id_pattern: What a call id has to match as a whole.
        tool_name_pattern: What the name of a tool has to match as a whole.
        max_tools: Most tools in one request.
        max_blocks: Most blocks in one message.
        tools_declared: History with calls needs tool declarations.
        tools_derived: Where none are declared, the adapter declares the tools of the history.
        object_arguments: The arguments of a call are a JSON object.
        object_schemas: The schema of a tool says at its root that it is of type object.
        schemas_without: Keywords that the schema of a tool cannot say, and without which it would
            mean something else.
        strict_schemas: A tool declared strict must keep to the closed subset of JSON Schema.
        strict_subset: What a tool declared strict must keep to otherwise; None for anything.
        reasoning: When reasoning goes back.
        signed_reasoning: Reasoning goes back only as its provider signed it.
        reasoning_leads: The loop of calls that is under way began with signed reasoning.
    """

    name: str
    roles: frozenset[Role]
    kinds: dict[Role, frozenset[str]]
    system_first: bool = False
    alternation: bool = False
    starts_with_user: bool = False
    ends_with_user: bool = False
    prefill_trimmed: bool = False
    merged_neighbours: bool = False
    one_message_a_turn: bool = False
    system_apart: bool = False
    system_last: bool = True
    after_assistant: frozenset[Role] | None = None
    after_tool: frozenset[Role] | None = None
    results_in_user: bool = False
    results_adjacent: bool = True
    results_in_call_order: bool = False
    results_together: bool = False
    calls_answer: bool = False
    signed_calls: bool = False
    text_with_calls: bool = True
    image_urls: bool = True
    file_ids: bool = True
    files_need_text: bool = False
    max_images: int | None = None
    max_files: int | None = None
    result_media: bool = True
    failures_speak: bool = False
    blank_text: bool = True
    empty_text: bool = True
    image_types: frozenset[str] | None = None
    file_types: frozenset[str] | None = None
    audio_formats: frozenset[str] | None = None
    call_id_max: int | None = None
    call_id_safe: int | None = None
    call_id_pattern: str | None = None
    tool_name_pattern: str | None = None
    max_tools: int | None = None
    max_blocks: int | None = None
    tools_declared: bool = False
    tools_derived: bool = False
    object_arguments: bool = False
    object_schemas: bool = False
    schemas_without: frozenset[str] = frozenset()
    strict_schemas: bool = False
    strict_subset: StrictSubset | None = None
    reasoning: Echo = Echo.NEVER
    signed_reasoning: bool = False
    reasoning_leads: bool = False

    def __hash__(self) -> int:
        """Those of one name are told apart by comparing them: few differ in what facts changed."""
        return hash(self.name)

    def spoken_as(self, role: Role) -> Role | None:
        """Return the role that a message of `role` can safely go out in, or None.

        Developer and system text stand for each other. Where there is neither, both are told
        as the user's own: that takes authority away and never gives any.
        """
        if role is Role.TOOL and self.results_in_user:
            return Role.USER
        if role in self.roles:
            return role
        if role is Role.SYSTEM or role is Role.DEVELOPER:
            if self.system_apart:
                return Role.SYSTEM
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
    if "reasoning" in changes:
        # A model that wants its reasoning back takes it, and one that wants none refuses it.
        said = changed.kinds[Role.ASSISTANT] - {"reasoning"}
        told = said if changed.reasoning is Echo.NEVER else said | {"reasoning"}
        changed = msgspec.structs.replace(changed, kinds={**changed.kinds, Role.ASSISTANT: told})
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


def _word(field: str, **words: object) -> Callable[[object], dict[str, object]]:
    """Return a reader of a fact that is one word out of a few, each of them a value of `field`."""

    def read(value: object) -> dict[str, object]:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return {field: words[value]}

    return read


def _flag(field: str) -> Callable[[object], dict[str, object]]:
    """Return a reader of a fact that is so or not."""

    def read(value: object) -> dict[str, object]:
        if not isinstance(value, bool):
            raise TypeError("true or false is expected")
        return {field: value}

    return read


def _role_set(value: object) -> frozenset[Role]:
    if not isinstance(value, list | tuple | set | frozenset) or not value:
        raise TypeError("a list of roles is expected")
    return frozenset(Role(role) for role in value)


FACTS: Final[Mapping[str, Callable[[object], dict[str, object]]]] = {
    "call_id_max": _length,
    "call_id_pattern": _pattern,
    "prefill": _word(
        "ends_with_user", supported=False, allowed=False, unsupported=True, forbidden=True
    ),
    "system_position": _word(
        "system_first", anywhere=False, any=False, first=True, first_only=True, start=True
    ),
    "roles": _roles,
    "alternation": _word("alternation", free=False, none=False, strict=True, required=True),
    "after_tool": _after_tool,
    "text_with_calls": _flag("text_with_calls"),
    "image_urls": _flag("image_urls"),
    "thinking": _word("reasoning_leads", optional=False, required=True),
    "thought_signatures": _word(
        "signed_calls",
        first_call_of_each_step=True,
        required=True,
        enforced=True,
        optional=False,
        none=False,
    ),
    "reasoning_echo": _word(
        "reasoning",
        never=Echo.NEVER,
        none=Echo.NEVER,
        forbidden=Echo.NEVER,
        kept=Echo.KEPT,
        optional=Echo.KEPT,
        with_calls=Echo.WITH_CALLS,
        with_tool_calls=Echo.WITH_CALLS,
        tool_calls=Echo.WITH_CALLS,
        required=Echo.WITH_CALLS,
        always=Echo.ALWAYS,
    ),
}
"""What a caller may state about a model, and the facts of the profile that it sets."""
