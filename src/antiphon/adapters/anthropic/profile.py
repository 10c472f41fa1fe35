"""What Anthropic Messages allows, and how a request is spelled: facts only.

The rules are those of the published request types and of refusals that people have reported;
`docs/reason-codes.md` names them one by one. What differs between models is a fact of the
model; the names that Anthropic gives its models tell some of them.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo, Profile, StrictSubset

HOME: Final = "https://api.anthropic.com"

ANTHROPIC: Final = Profile(
    name="anthropic",
    # Text of system and developer stands apart, at the top; newer models take it in between too.
    roles=frozenset({Role.USER, Role.ASSISTANT}),
    kinds={
        Role.SYSTEM: frozenset({"text"}),
        Role.DEVELOPER: frozenset({"text"}),
        Role.USER: frozenset({"text", "image", "file"}),
        Role.ASSISTANT: frozenset({"text", "reasoning", "refusal", "tool_call"}),
        Role.TOOL: frozenset({"tool_result"}),
    },
    system_apart=True,
    results_in_user=True,
    starts_with_user=True,
    merged_neighbours=True,
    blank_text=False,
    failures_speak=True,
    prefill_trimmed=True,
    object_arguments=True,
    object_schemas=True,
    strict_subset=StrictSubset(
        forbidden=frozenset(
            {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
            | {"minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"}
            | {"minProperties", "maxProperties", "not"}
        ),
        formats=frozenset(
            {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"}
            | {"uuid"}
        ),
    ),
    image_types=frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"}),
    file_types=frozenset({"application/pdf", "text/plain"}),
    call_id_pattern="[a-zA-Z0-9_-]+",
    tool_name_pattern="[a-zA-Z0-9_-]{1,128}",
    tools_declared=True,
    reasoning=Echo.KEPT,
    signed_reasoning=True,
)


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request is spelled. The defaults are Anthropic's own, for ever.

    Attributes:
        api_version: The header `anthropic-version`.
        beta: The header `anthropic-beta`, or none.
        answer_tokens: The bound on an answer where nobody gave one: the wire demands a number,
            and this one is allowed by every model.
    """

    api_version: str = "2026-10-21"
    beta: str | None = None
    answer_tokens: int = 4096


WIRE_FACTS: Final = Wire.__struct_fields__

NAMED: Final = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?\b")
OLD: Final = re.compile(r"claude-(?:instant-|v?[123]\b)")
DATED: Final = re.compile(r"(?:[-@]\d{8}(?:-v\d+(?::\d+)?)?|-latest)\Z")


def facts_of(model: str) -> dict[str, object]:
    """Return what the name of a model says of it; nothing for a name that is not Anthropic's.

    From 4.6 on a text of the model's own is not continued, from 4.8 on Opus takes system text
    between messages.

    Example:
        >>> sorted(facts_of("claude-opus-5"))
        ['prefill', 'roles']
    """
    match = NAMED.search(model)
    if match is None:
        return {"prefill": "supported"} if OLD.search(model) else {}
    version = (int(match["major"]), int(match["minor"] or 0))
    facts: dict[str, object] = {"prefill": "unsupported" if version >= (4, 6) else "supported"}
    if match["family"] == "opus" and version >= (4, 8):
        facts["roles"] = ["system", "user", "assistant"]
    return facts


def same_model(maker: str | None, reader: str) -> bool:
    """Return whether what `maker` signed may be sent to `reader`.

    A name without a date stands for the one with it. A name that is none of Anthropic's, such
    as a gateway's own, says nothing, and is taken for the same.
    """
    if maker is None or "claude" not in maker or "claude" not in reader:
        return True
    return DATED.sub("", maker) == DATED.sub("", reader)
