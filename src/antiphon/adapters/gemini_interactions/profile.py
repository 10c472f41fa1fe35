"""What Gemini's Interactions API allows, and how a request is spelled: facts only."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.adapters.gemini.profile import MEDIA, base_url
from antiphon.adapters.gemini.profile import facts_of as told_by_name
from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo, Profile

INTERACTIONS: Final = Profile(
    name="gemini-interactions",
    # System text is one string beside the steps; results are steps of their own.
    roles=frozenset({Role.USER, Role.ASSISTANT, Role.TOOL}),
    kinds={
        Role.SYSTEM: frozenset({"text"}),
        Role.DEVELOPER: frozenset({"text"}),
        Role.USER: MEDIA,
        Role.ASSISTANT: MEDIA | {"reasoning", "refusal", "tool_call"},
        Role.TOOL: frozenset({"tool_result"}),
    },
    system_apart=True,
    empty_text=False,
    object_arguments=True,
    tool_name_pattern="[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
    reasoning=Echo.KEPT,
)


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request is spelled. The defaults are those of the Gemini API, for ever.

    Attributes:
        store: Whether the provider keeps the interaction. It does where nobody says.
        background: Whether the provider works on when the connection is gone, and keeps the
            answer: then what was cut is asked after by its handle.
        key_header: The header that the key goes into.
    """

    store: bool = False
    background: bool = False
    key_header: str = "x-goog-api-key"

    def url(self, endpoint: str) -> str:
        """Return where requests go.

        Example:
            >>> Wire().url("http://127.0.0.1:9001/v1beta")
            'http://127.0.0.1:9001/v1beta/interactions'
        """
        return f"{base_url(endpoint)}/interactions"


WIRE_FACTS: Final = Wire.__struct_fields__


def facts_of(model: str) -> dict[str, object]:
    """Return what the name of a model says of it. Signatures stand in steps of their own here."""
    return {n: v for n, v in told_by_name(model).items() if n != "thought_signatures"}
