"""What OpenAI Chat Completions allows, and how a server may spell it otherwise: facts only.

The rules are those of the published request types and of refusals that people have reported;
`docs/reason-codes.md` names them one by one. A server that only speaks the dialect gets the
spelling that all of them know; OpenAI itself gets its newer one. The dialects that have a name
of their own stand in `dialects`.
"""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import quote, urlsplit

import msgspec

from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Profile

OPENAI_URL: Final = "https://api.openai.com/v1"
NOWHERE: Final = "https://unnamed.invalid"
"""Stands for the address of a provider whose customers each have their own, so that a request can
be shown before anybody names it. The top-level domain is reserved: nothing can be sent there."""

OPENAIS: Final = frozenset({"openai-chat", "azure"})
"""Who reads a request by the letter of OpenAI's types; others are known to take more."""

NOT_IN_NAMES: Final = re.compile(r"[\s<|\\/>]+")
"""What the name of a speaker may not hold at OpenAI."""

DETAILS: Final = frozenset({None, "auto", "low", "high", "original"})
"""How closely OpenAI may be asked to look at an image."""

DETAILS_ARE: Final = "The detail of an image is auto, low, high or original."

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


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one server spells a request. The defaults are OpenAI's own spelling, for ever.

    Attributes:
        home: Where requests go when nobody names an address.
        output_limit: The field that bounds the answer: `max_completion_tokens`, `max_tokens`.
            None: as the host in the address suggests.
        store: What is said about keeping the completion at the provider; None says nothing,
            but to OpenAI itself that it shall not.
        stream_usage: Whether a stream is asked for its usage.
        usage_option: The field that asks for it: `stream_options`, or OpenRouter's `usage`.
        tool_choice: Whether there is a field for it.
        required_word: The word for a choice of any tool.
        parallel_tool_calls: Whether there is a field for it.
        strict_tools: Whether a function's declaration has a field `strict`.
        names: Whether system, user and assistant messages may bear a name.
        result_names: Whether a tool message bears the name of its tool.
        image_objects: Whether an image's address stands in an object; else it is a string.
        empty_answers: Whether an assistant message of nothing is sent; else it is left out.
        reasoning_field: Where reasoning goes back: `reasoning_content`, `reasoning` as text, or
            `reasoning_details` as the kept state.
        options: The fields that a caller may add; None for any.
        key_header: Where the key goes, if not into `authorization`.
        api_version: Query of the path by deployments; None for the path of OpenAI.
    """

    home: str = OPENAI_URL
    output_limit: str | None = None
    store: bool | None = None
    stream_usage: bool = True
    usage_option: Literal["stream_options", "usage"] = "stream_options"
    tool_choice: bool = True
    required_word: str = "required"
    parallel_tool_calls: bool = True
    strict_tools: bool = True
    names: bool = True
    result_names: bool = False
    image_objects: bool = True
    empty_answers: bool = True
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_details"] = (
        "reasoning_content"
    )
    options: frozenset[str] | None = None
    key_header: str | None = None
    api_version: str | None = None

    def at(self, base_url: str) -> Wire:
        """Return the spelling for requests to `base_url`, with nothing left open."""
        openai = is_openai(base_url)
        limit = self.output_limit or ("max_completion_tokens" if openai else "max_tokens")
        store = False if self.store is None and openai else self.store
        return msgspec.structs.replace(self, output_limit=limit, store=store)

    def url(self, base_url: str, model: str) -> str:
        """Return where a request for `model` goes."""
        base_url = (base_url or self.home).rstrip("/")
        if self.api_version is None or base_url.endswith("/openai/v1"):
            return f"{base_url}/chat/completions"
        deployment = f"{base_url.removesuffix('/openai')}/openai/deployments/{quote(model, '')}"
        return f"{deployment}/chat/completions?api-version={quote(self.api_version, '')}"


WIRE_FACTS: Final = Wire.__struct_fields__


def same_upstream(maker: str | None, reader: str) -> bool:
    """Return whether what `maker` kept may be sent to `reader`, as a gateway names models.

    A name of the gateway's own, which may end anywhere, says nothing and is taken for the same.

    Example:
        >>> same_upstream("anthropic/claude-opus-5", "openai/gpt-6-astra")
        False
    """
    if maker is None or "/" not in maker or "/" not in reader or reader.startswith("openrouter/"):
        return True
    return maker.partition("/")[0] == reader.partition("/")[0]


def is_openai(base_url: str) -> bool:
    """Return whether requests to `base_url` go to OpenAI itself."""
    return urlsplit(base_url).hostname == "api.openai.com"
