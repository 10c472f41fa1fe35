"""What Ollama's own chat API allows, and how a request is spelled: facts only.

The rules are those of the published request types. The server refuses little and forgets much:
what it does not understand it leaves out in silence, so that has to be refused here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo, Profile

HOME: Final = "http://127.0.0.1:11434"

OLLAMA: Final = Profile(
    name="ollama",
    roles=frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL}),
    kinds={
        Role.SYSTEM: frozenset({"text"}),
        Role.DEVELOPER: frozenset({"text"}),
        Role.USER: frozenset({"text", "image"}),
        Role.ASSISTANT: frozenset({"text", "reasoning", "tool_call"}),
        Role.TOOL: frozenset({"tool_result"}),
    },
    image_urls=False,
    result_media=False,
    # A template tells results by the name of their tool, and two of one name by their order.
    results_in_call_order=True,
    object_arguments=True,
    reasoning=Echo.KEPT,
)


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the server.

    Attributes:
        num_ctx: The context window to load the model with. Without it the server has one of its
            own, and a history that is longer loses its beginning in silence.
    """

    num_ctx: int | None = None


WIRE_FACTS: Final = Wire.__struct_fields__


def same_model(maker: str | None, reader: str) -> bool:
    """Return whether `maker` is the model that is asked. A name without a tag means the latest."""
    if not maker:
        return True
    return maker.removesuffix(":latest") == reader.removesuffix(":latest")
