"""What OpenAI Chat Completions allows, and how servers that speak it differ: facts only.

The rules are those of the published request types and of refusals that people have reported;
`docs/reason-codes.md` names them one by one. A server that only speaks the dialect gets the
spelling that all of them know; OpenAI itself gets its newer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from antiphon.core.blocks import Role
from antiphon.core.profile import Profile
from antiphon.errors import InvalidInput

OPENAI_URL: Final = "https://api.openai.com/v1"

OPENAI_CHAT: Final = Profile(
    name="openai-chat",
    roles=frozenset(Role),
    kinds={
        Role.SYSTEM: frozenset({"text"}),
        Role.DEVELOPER: frozenset({"text"}),
        Role.USER: frozenset({"text", "image", "audio", "file"}),
        Role.ASSISTANT: frozenset({"text", "refusal", "tool_call"}),
        Role.TOOL: frozenset({"tool_result"}),
    },
    result_media=False,
    # 40 was refused by one deployment and 64 seen as the limit of another.
    call_id_max=64,
    call_id_safe=40,
    tool_name_pattern="[a-zA-Z0-9_-]{1,64}",
    max_tools=128,
    strict_schemas=True,
)

LLAMACPP: Final = msgspec.structs.replace(
    OPENAI_CHAT,
    name="llamacpp",
    # Chat templates know no developer role and drop or refuse it.
    roles=frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL}),
    # The grammar is made from the schema itself; nothing asks for it to be closed.
    strict_schemas=False,
)

PROFILES: Final[Mapping[str, Profile]] = {p.name: p for p in (OPENAI_CHAT, LLAMACPP)}


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """How one server spells a request. None: as the host in the address suggests.

    Attributes:
        output_limit: The field that bounds the answer: `max_completion_tokens`, `max_tokens`.
        store: What is said about keeping the completion at the provider; None says nothing.
        stream_usage: Whether a stream is asked for its usage.
    """

    output_limit: str | None = None
    store: bool | None = None
    stream_usage: bool = True

    def at(self, base_url: str) -> Wire:
        """Return the spelling for requests to `base_url`, with nothing left open."""
        openai = is_openai(base_url)
        limit = self.output_limit or ("max_completion_tokens" if openai else "max_tokens")
        store = False if self.store is None and openai else self.store
        return msgspec.structs.replace(self, output_limit=limit, store=store)


WIRE_FACTS: Final = Wire.__struct_fields__


def with_wire_facts(wire: Wire, facts: Mapping[str, object]) -> Wire:
    """Return `wire` as changed by `facts`.

    Raises:
        InvalidInput: `bad_fact`; `at` names the fact.
    """
    merged = {**msgspec.to_builtins(wire), **facts}
    try:
        return msgspec.convert(merged, Wire)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"This value does not fit: {error}.", code="bad_fact", at=f"facts.{'/'.join(facts)}"
        ) from None


def is_openai(base_url: str) -> bool:
    """Return whether requests to `base_url` go to OpenAI itself."""
    return urlsplit(base_url).hostname == "api.openai.com"
