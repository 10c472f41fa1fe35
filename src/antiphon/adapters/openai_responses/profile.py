"""What OpenAI Responses allows, and how a request is spelled: facts only.

The rules are those of the published request types and of refusals that people have reported;
`docs/reason-codes.md` names them one by one.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo, Profile

INPUT_KINDS: Final = frozenset({"text", "image", "file"})

OPENAI_RESPONSES: Final = Profile(
    name="openai-responses",
    roles=frozenset(Role),
    kinds={
        Role.SYSTEM: INPUT_KINDS,
        Role.DEVELOPER: INPUT_KINDS,
        Role.USER: INPUT_KINDS,
        Role.ASSISTANT: frozenset({"text", "reasoning", "refusal", "tool_call"}),
        Role.TOOL: frozenset({"tool_result"}),
    },
    # An output answers its call from anywhere behind it.
    results_adjacent=False,
    call_id_max=64,
    tool_name_pattern="[a-zA-Z0-9_-]{1,128}",
    strict_schemas=True,
    reasoning=Echo.KEPT,
)


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request is spelled. The defaults are OpenAI's own, for ever.

    Attributes:
        home: Where requests go when nobody names an address.
        background: Whether the provider works on when the connection is gone, and keeps the
            answer: then what was cut is asked after by its handle.
    """

    home: str = "https://api.openai.com/v1"
    background: bool = False

    def url(self, base_url: str) -> str:
        """Return where a request goes."""
        return f"{(base_url or self.home).rstrip('/')}/responses"


WIRE_FACTS: Final = Wire.__struct_fields__

NAMED: Final = re.compile(r"(?:gpt|chatgpt|codex|o\d)[-.\w]*")
DATED: Final = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|latest)\Z")
PLAIN: Final = re.compile(r"(?:chatgpt-)?(?:gpt-)?(?:3\.5|4)")


def same_model(maker: str | None, reader: str) -> bool:
    """Return whether what `maker` thought may be sent to `reader`.

    A name without a date stands for the one with it. A name that is none of OpenAI's, such as a
    gateway's own, says nothing, and is taken for the same.

    Example:
        >>> same_model("gpt-6-astra-2026-09-01", "gpt-6-astra"), same_model("gpt-6", "gpt-7")
        (True, False)
    """
    if maker is None or not (NAMED.fullmatch(maker) and NAMED.fullmatch(reader)):
        return True
    return DATED.sub("", maker) == DATED.sub("", reader)


def reasons(model: str) -> bool:
    """Return whether a model may think before it answers: all may but the older ones."""
    return PLAIN.match(model) is None
