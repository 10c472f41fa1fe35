"""The dialects of OpenAI Chat Completions that have a name: how each differs, and nothing else.

A dialect is never assumed to ignore a field that it does not know: what is not listed for it is
not sent. Facts of one model stand in the configuration, beside its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from antiphon.adapters.openai_chat.profile import NOWHERE, OPENAI_CHAT, Wire
from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What is allowed, and how it is spelled."""

    profile: Profile
    wire: Wire


COMPATIBLE: Final = replace(
    OPENAI_CHAT,
    # Developer text is OpenAI's own; chat templates drop or refuse it.
    roles=frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL}),
    # Nothing asks for a schema to be closed: the grammar is made from the schema itself, or none.
    strict_schemas=False,
)

SAMPLING: Final = frozenset(
    {"frequency_penalty", "presence_penalty", "reasoning_effort", "response_format", "seed"}
    | {"stop", "top_p", "logprobs", "top_logprobs"}
)
"""Options that most dialects have; each says where it lacks one."""


def _kinds(*, user: set[str], assistant: set[str]) -> dict[Role, frozenset[str]]:
    """Return the kinds of blocks per role, where system text is text and a result a result."""
    return {
        Role.SYSTEM: frozenset({"text"}),
        Role.DEVELOPER: frozenset({"text"}),
        Role.USER: frozenset(user),
        Role.ASSISTANT: frozenset(assistant),
        Role.TOOL: frozenset({"tool_result"}),
    }


OPENAI: Final = Dialect(profile=OPENAI_CHAT, wire=Wire())

LLAMACPP: Final = Dialect(
    profile=replace(COMPATIBLE, name="llamacpp"),
    wire=Wire(home="http://127.0.0.1:8080/v1"),
)

QWEN_VLLM: Final = Dialect(
    profile=replace(
        COMPATIBLE,
        name="qwen-vllm",
        kinds=_kinds(user={"text", "image", "audio"}, assistant={"text", "reasoning", "tool_call"}),
        # Ids of its own making are longer than 40 characters.
        call_id_max=None,
        call_id_safe=None,
        max_tools=None,
    ),
    wire=Wire(
        home="http://127.0.0.1:8000/v1",
        output_limit="max_tokens",
        parallel_tool_calls=False,
        strict_tools=False,
        reasoning_field="reasoning",  # `reasoning_content` until version 0.26
        options=SAMPLING
        | {"chat_template_kwargs", "include_reasoning", "logit_bias", "min_p", "min_tokens"}
        | {"repetition_penalty", "structured_outputs", "top_k", "user"},
    ),
)

OLLAMA: Final = Dialect(
    profile=replace(
        COMPATIBLE,
        name="ollama-openai",
        kinds=_kinds(user={"text", "image"}, assistant={"text", "reasoning", "tool_call"}),
        image_urls=False,
        call_id_max=None,
        call_id_safe=None,
        max_tools=None,
    ),
    wire=Wire(
        home="http://127.0.0.1:11434/v1",
        output_limit="max_tokens",
        tool_choice=False,
        parallel_tool_calls=False,
        strict_tools=False,
        reasoning_field="reasoning",
        options=SAMPLING - {"logprobs", "top_logprobs"},
    ),
)

GROQ: Final = Dialect(
    profile=replace(
        COMPATIBLE,
        name="groq",
        # No reasoning: the assistant's message may hold no field that the API does not know.
        kinds=_kinds(user={"text", "image"}, assistant={"text", "tool_call"}),
    ),
    wire=Wire(
        home="https://api.groq.com/openai/v1",
        output_limit="max_completion_tokens",
        stream_usage=False,  # it comes in the last chunk, under `x_groq`, unasked
        strict_tools=False,
        options=SAMPLING
        | {"citation_options", "compound_custom", "disable_tool_validation", "documents"}
        | {"include_reasoning", "logit_bias", "metadata", "reasoning_format", "search_settings"}
        | {"service_tier", "user"},
    ),
)

AZURE: Final = Dialect(
    profile=replace(OPENAI_CHAT, name="azure"),
    wire=Wire(
        home=NOWHERE,
        output_limit="max_completion_tokens",
        options=SAMPLING
        | {"audio", "data_sources", "logit_bias", "metadata", "modalities", "prediction"}
        | {"prompt_cache_key", "safety_identifier", "service_tier", "store", "user", "verbosity"}
        | {"user_security_context"},
        key_header="api-key",
        api_version="2024-10-21",
    ),
)

DEEPSEEK: Final = Dialect(
    profile=replace(
        COMPATIBLE,
        name="deepseek",
        kinds=_kinds(user={"text", "image"}, assistant={"text", "reasoning", "tool_call"}),
        # While it thinks, a message with calls has to bring its reasoning for ever, an empty one
        # where there was none. Of answers without calls it is ignored, so it stays behind. Its
        # first reasoning models refused it: for those, state `reasoning_echo = "never"`.
        reasoning=Echo.WITH_CALLS,
    ),
    wire=Wire(
        home="https://api.deepseek.com",
        output_limit="max_tokens",
        parallel_tool_calls=False,
        strict_tools=False,
        options=(SAMPLING - {"seed"}) | {"thinking"},
    ),
)

MISTRAL: Final = Dialect(
    profile=replace(
        COMPATIBLE,
        name="mistral",
        kinds=_kinds(user={"text", "image"}, assistant={"text", "reasoning", "tool_call"}),
        # Templates up to version 11 take exactly these; later ones take any.
        call_id_max=None,
        call_id_safe=None,
        call_id_pattern="[a-zA-Z0-9]{9}",
        max_tools=None,
        # System text may follow system text or the user's, and nothing else.
        after_assistant=frozenset({Role.ASSISTANT, Role.USER}),
        after_tool=frozenset({Role.ASSISTANT, Role.USER}),
        system_last=False,
        ends_with_user=True,
    ),
    wire=Wire(
        home="https://api.mistral.ai/v1",
        output_limit="max_tokens",
        stream_usage=False,  # it comes in the last chunk, unasked
        required_word="any",  # the word that every version knows
        strict_tools=False,
        names=False,
        result_names=True,
        image_objects=False,
        empty_answers=False,
        options=(SAMPLING - {"seed", "logprobs", "top_logprobs"})
        | {"metadata", "prediction", "prompt_mode", "random_seed", "safe_prompt"},
    ),
)

OPENROUTER: Final = Dialect(
    profile=replace(
        COMPATIBLE,
        name="openrouter",
        kinds=_kinds(
            user={"text", "image", "audio", "file"}, assistant={"text", "reasoning", "tool_call"}
        ),
        # Unchanged and in order, to the upstream that made it: another would refuse its signature.
        reasoning=Echo.KEPT,
    ),
    wire=Wire(
        home="https://openrouter.ai/api/v1",
        output_limit="max_tokens",
        usage_option="usage",
        strict_tools=False,
        reasoning_field="reasoning_details",
        options=SAMPLING
        | {"logit_bias", "metadata", "min_p", "models", "plugins", "prediction", "provider"}
        | {"reasoning", "repetition_penalty", "route", "structured_outputs", "top_a", "top_k"}
        | {"transforms", "user", "verbosity", "web_search_options"},
    ),
)

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.profile.name: dialect
    for dialect in (OPENAI, LLAMACPP, QWEN_VLLM, OLLAMA, GROQ, AZURE, DEEPSEEK, MISTRAL, OPENROUTER)
}
