"""Whose request is this? Seven forms, told apart by what only some of them can hold.

A request bears marks: fields, kinds of parts, ways to write a call. Each mark is known to one
form or to several. The form that knows most of the marks is taken; others that know as many
could be meant as well, and that is said rather than guessed away. A dialect of Chat Completions
looks like any other, so it is never recognised, only named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from antiphon.errors import InvalidInput

CHAT: Final = "openai-chat"
RESPONSES: Final = "openai-responses"
ANTHROPIC: Final = "anthropic"
GEMINI: Final = "gemini"
INTERACTIONS: Final = "gemini-interactions"
BEDROCK: Final = "bedrock"
OLLAMA: Final = "ollama"

SAYING: Final[Mapping[str, tuple[str, ...]]] = {
    "messages": (CHAT, ANTHROPIC, BEDROCK, OLLAMA),
    "input": (RESPONSES, INTERACTIONS),
    "contents": (GEMINI,),
}
"""Where a request keeps what was said."""

CONTAINERS: Final[Mapping[str, tuple[str, ...]]] = {
    **SAYING,
    "previous_response_id": (RESPONSES,),
    "conversation": (RESPONSES,),
    "prompt": (RESPONSES,),
    "previous_interaction_id": (INTERACTIONS,),
}
"""Where it keeps that, or names who has it; one of them it has to have."""

Forms = frozenset[str]
Fields = Mapping[str, object]


def _table(*rows: tuple[str, tuple[str, ...]]) -> Mapping[str, Forms]:
    """Return words with the forms that know them, from rows of words."""
    found: dict[str, set[str]] = {}
    for words, forms in rows:
        for word in words.split():
            found.setdefault(word, set()).update(forms)
    return {word: frozenset(forms) for word, forms in found.items()}


FIELDS: Final = _table(
    ("max_completion_tokens stream_options n logprobs top_logprobs logit_bias", (CHAT,)),
    ("frequency_penalty presence_penalty seed stop response_format modalities", (CHAT,)),
    ("prediction reasoning_effort verbosity functions function_call", (CHAT,)),
    ("parallel_tool_calls top_p temperature", (CHAT, RESPONSES)),
    ("temperature top_p top_k", (ANTHROPIC,)),
    ("max_tokens thinking", (CHAT, ANTHROPIC)),
    ("stop_sequences anthropic_version anthropic_beta mcp_servers container", (ANTHROPIC,)),
    ("output_config", (ANTHROPIC,)),
    ("toolConfig", (BEDROCK, GEMINI)),
    ("inferenceConfig guardrailConfig modelId promptVariables", (BEDROCK,)),
    ("generationConfig systemInstruction safetySettings cachedContent", (GEMINI,)),
    ("additionalModelRequestFields additionalModelResponseFieldPaths", (BEDROCK,)),
    ("performanceConfig requestMetadata outputConfig", (BEDROCK,)),
    ("options keep_alive format think template", (OLLAMA,)),
    ("instructions previous_response_id conversation include text reasoning", (RESPONSES,)),
    ("max_output_tokens max_tool_calls truncation prompt_cache_key", (RESPONSES,)),
    ("system_instruction generation_config previous_interaction_id agent", (INTERACTIONS,)),
    ("agent_config response_modalities response_mime_type", (INTERACTIONS,)),
)
ROLES: Final = _table(("developer function", (CHAT,)), ("tool", (CHAT, OLLAMA)))
ITEM_ROLES: Final = _table(
    ("developer system user assistant", (RESPONSES,)), ("model", (INTERACTIONS,))
)
MESSAGE: Final = _table(
    ("tool_calls tool_call_id", (CHAT, OLLAMA)),
    ("tool_name images thinking", (OLLAMA,)),
    ("refusal audio function_call reasoning_content reasoning_details name", (CHAT,)),
)
PARTS: Final = _table(
    ("text", (CHAT, ANTHROPIC)),
    ("image_url input_audio refusal file", (CHAT,)),
    ("tool_use tool_result redacted_thinking server_tool_use image document", (ANTHROPIC,)),
    ("search_result", (ANTHROPIC,)),
)
BLOCKS: Final = frozenset(
    {"text", "image", "document", "video", "audio", "toolUse", "toolResult", "reasoningContent"}
    | {"cachePoint", "guardContent", "citationsContent", "searchResult"}
)
"""What a block of Converse is named by, since it has no type."""

ITEMS: Final = _table(
    ("message reasoning function_call_output item_reference compaction", (RESPONSES,)),
    ("custom_tool_call custom_tool_call_output", (RESPONSES,)),
    ("input_text input_image input_file output_text", (RESPONSES,)),
    ("user_input model_output thought function_result", (INTERACTIONS,)),
    ("text image audio document video", (INTERACTIONS,)),
)


@dataclass(frozen=True, slots=True)
class Recognised:
    """The form of a request.

    Attributes:
        form: The profile that it is read with.
        rivals: Forms that it could be as well, for all that it says.
        foreign: Places of what the form does not know, and other forms do.
    """

    form: str
    rivals: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def recognise(request: Fields) -> Recognised:
    """Return the form of a request, by its marks; of one that says nothing by those that are left.

    Raises:
        InvalidInput: `unrecognised`: it could be none that we know.

    Example:
        >>> recognise({"messages": [{"role": "tool", "content": "1", "tool_name": "f"}]}).form
        'ollama'
    """
    forms = [form for name, known in CONTAINERS.items() if name in request for form in known]
    if not forms and any(_marks(request)):
        forms = [form for known in SAYING.values() for form in known]
    if not forms:
        raise InvalidInput(
            "This is no request of a provider that we know, and no graph. "
            "Name its dialect with --from.",
            code="unrecognised",
        )
    marks: dict[str, tuple[str, Forms]] = {}
    for word, at, known in _marks(request):
        if not known.isdisjoint(forms):
            marks.setdefault(word, (at, known))
    scores = {form: sum(form in known for _, known in marks.values()) for form in forms}
    leaning = _leaning(request)
    best = max(scores, key=lambda form: (scores[form], form == leaning, -forms.index(form)))
    return Recognised(
        form=best,
        rivals=tuple(f for f in scores if f != best and scores[f] == scores[best]),
        foreign=tuple(at for at, known in marks.values() if best not in known),
    )


def _leaning(request: Fields) -> str | None:
    """Return the form that the model's name speaks for where nothing else does.

    A gateway may take any name in any form, so this only settles a tie. Anthropic insists on a
    limit: without one it is more likely meant for a gateway.
    """
    model = request.get("model")
    if not isinstance(model, str):
        return None
    if "claude" in model and "max_tokens" in request:
        return ANTHROPIC
    return INTERACTIONS if "gemini" in model else None


def _marks(request: Fields) -> Iterator[tuple[str, str, Forms]]:
    """Yield each mark by a name, its place, and the forms that know it."""
    for name in request:
        if name in FIELDS:
            yield name, name, FIELDS[name]
    match request.get("system"):
        case str():
            yield "system", "system", frozenset({ANTHROPIC})
        case [dict(first), *_]:
            yield "system", "system", frozenset({ANTHROPIC if "type" in first else BEDROCK})
        case _:
            pass
    yield from _choice(request.get("tool_choice"))
    for number, tool in enumerate(_objects(request.get("tools"))):
        yield from _tool(f"tools[{number}]", tool)
    for number, message in enumerate(_objects(request.get("messages"))):
        yield from _message(f"messages[{number}]", message, first=not number)
    for number, item in enumerate(_objects(request.get("input"))):
        yield from _item(f"input[{number}]", item)


def _choice(choice: object) -> Iterator[tuple[str, str, Forms]]:
    match choice:
        case str():
            yield "tool choice", "tool_choice", frozenset({CHAT, RESPONSES})
        case {"type": "function" | "custom" | "allowed_tools"}:
            yield "tool choice", "tool_choice", frozenset({CHAT, RESPONSES})
        case {"type": "auto" | "any" | "none" | "tool"}:
            yield "tool choice", "tool_choice", frozenset({ANTHROPIC})
        case _:
            pass


def _tool(at: str, tool: Fields) -> Iterator[tuple[str, str, Forms]]:
    if "input_schema" in tool:
        yield "tool schema", at, frozenset({ANTHROPIC})
    elif "function" in tool:
        yield "tool function", at, frozenset({CHAT, OLLAMA})
    elif "strict" in tool:
        yield "flat strict tool", at, frozenset({RESPONSES})
    elif "name" in tool and tool.get("type") != "function":
        yield "hosted tool", at, frozenset({ANTHROPIC})


def _message(at: str, message: Fields, *, first: bool) -> Iterator[tuple[str, str, Forms]]:
    role, content = message.get("role"), message.get("content")
    if isinstance(role, str) and role in ROLES:
        yield f"role {role}", at, ROLES[role]
    if role == "system" and first:
        yield "system first", at, frozenset({CHAT, OLLAMA})
    for name in message:
        if name in MESSAGE:
            yield f"message {name}", f"{at}.{name}", MESSAGE[name]
    for number, call in enumerate(_objects(message.get("tool_calls"))):
        yield from _call(f"{at}.tool_calls[{number}]", call)
    if isinstance(content, str):
        yield "content text", f"{at}.content", frozenset({CHAT, ANTHROPIC, OLLAMA})
    elif "content" in message and content is None:
        yield "content null", f"{at}.content", frozenset({CHAT})
    for number, part in enumerate(_objects(content)):
        yield from _part(f"{at}.content[{number}]", part)


def _call(at: str, call: Fields) -> Iterator[tuple[str, str, Forms]]:
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if isinstance(arguments, str):
        yield "arguments text", f"{at}.function.arguments", frozenset({CHAT})
    elif isinstance(arguments, Mapping):
        yield "arguments object", f"{at}.function.arguments", frozenset({OLLAMA})
    if "type" in call:
        yield "call type", f"{at}.type", frozenset({CHAT})


def _part(at: str, part: Fields) -> Iterator[tuple[str, str, Forms]]:
    kind = part.get("type")
    if kind == "thinking":
        yield "thinking", at, frozenset({ANTHROPIC if "signature" in part else CHAT})
    elif isinstance(kind, str):
        yield f"part {kind}", at, PARTS.get(kind, frozenset({CHAT, ANTHROPIC}))
    elif not BLOCKS.isdisjoint(part):
        yield "untyped block", at, frozenset({BEDROCK})
    if "cache_control" in part:
        yield "cache_control", f"{at}.cache_control", frozenset({ANTHROPIC})


def _item(at: str, item: Fields) -> Iterator[tuple[str, str, Forms]]:
    kind, role = item.get("type"), item.get("role")
    if isinstance(role, str) and role in ITEM_ROLES:
        yield f"role {role}", at, ITEM_ROLES[role]
    if kind == "function_call":
        ours = RESPONSES if "call_id" in item else INTERACTIONS
        yield "function call", at, frozenset({ours})
    elif isinstance(kind, str):
        yield f"item {kind}", at, ITEMS.get(kind, frozenset({RESPONSES, INTERACTIONS}))


def _objects(value: object) -> Iterator[Fields]:
    """Yield the objects of an array; whatever else is there keeps its number and says nothing."""
    for item in value if isinstance(value, list) else ():
        yield item if isinstance(item, dict) else {}
