"""A request body against the types that its provider, or the provider's SDK, has published.

No key may be unknown there or of another type. A dialect of Chat Completions has keys of its
own, which are named here by hand; Ollama publishes no types for Python that are installed, so
its form is written down once more.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import anthropic.types.message_create_params as messages_params
import openai.types.chat.completion_create_params as chat_params
import openai.types.responses.response_create_params as responses_params
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from antiphon.adapters.registry import form_of

Body = dict[str, Any]

OWN: Final[Mapping[str, set[str]]] = {
    "groq": {"reasoning_format", "include_reasoning"},
    "deepseek": {"reasoning_content", "thinking"},
    "qwen-vllm": {"reasoning", "chat_template_kwargs"},
    "ollama-openai": {"reasoning"},
    "openrouter": {"reasoning_details", "usage", "provider"},
    "mistral": {"name", "reasoning_content"},
}
"""Keys that a dialect has beside OpenAI's, in a body or in its messages."""


def problems(profile: str, body: bytes) -> list[str]:
    """Return where `body` is not what was published; nothing where it is."""
    value = json.loads(body)
    if value.get("stream") is False:
        value["stream"] = True  # the types of the one and of the other differ in nothing else
    if profile == "mistral":
        _images_as_objects(value["messages"])
    return list(JUDGES[form_of(profile)](_without(value, OWN.get(profile, set()))))


def _without(body: Body, names: set[str]) -> Body:
    """Return `body` without a dialect's own keys, its own and those of its messages."""
    kept = {name: value for name, value in body.items() if name not in names}
    if "messages" in kept:
        kept["messages"] = [
            {k: v for k, v in message.items() if k not in names or message["role"] == "user"}
            for message in kept["messages"]
        ]
    return kept


def _images_as_objects(messages: list[Any]) -> None:
    """Mistral takes the address of an image by itself, OpenAI in an object."""
    for message in messages:
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            if isinstance(part.get("image_url"), str):
                part["image_url"] = {"url": part["image_url"]}


def _plain(value: Any) -> Any:
    """Lazy iterables of validated values as lists, models as what they were made of."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True, mode="json")
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_plain(inner) for inner in value]


def _typed(published: TypeAdapter[Any], value: Any) -> Iterator[str]:
    try:
        kept = _plain(published.validate_python(value))
    except ValidationError as error:
        first = error.errors()[0]
        yield f"not of the published type: {first['loc']} {first['msg']}"
        return
    if kept != value:
        yield f"the published types do not keep all of it: {kept} is not {value}"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _chat(body: Body) -> Iterator[str]:
    yield from _typed(_adapter(chat_params.CompletionCreateParamsStreaming), body)


def _responses(body: Body) -> Iterator[str]:
    yield from _typed(_adapter(responses_params.ResponseCreateParamsStreaming), body)


def _anthropic(body: Body) -> Iterator[str]:
    # The sampling parameters have left the type, not the API.
    sampling = {"temperature", "top_p", "top_k"}
    kept = {name: value for name, value in body.items() if name not in sampling}
    yield from _typed(_adapter(messages_params.MessageCreateParamsStreaming), kept)


def _gemini(body: Body) -> Iterator[str]:
    from google.genai import types

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        systemInstruction: types.Content | None = None
        contents: list[types.Content]
        tools: list[types.Tool] | None = None
        toolConfig: types.ToolConfig | None = None
        generationConfig: types.GenerationConfig | None = None
        safetySettings: list[types.SafetySetting] | None = None
        cachedContent: str | None = None

    yield from _typed(TypeAdapter(Strict), body)


def _interactions(body: Body) -> Iterator[str]:
    from google.genai._gaos.types.interactions import CreateModelInteraction

    known = CreateModelInteraction.model_fields
    unknown = body.keys() - known.keys() - {field.alias for field in known.values()}
    if unknown:
        yield f"no such field: {unknown}"
    try:
        kept = CreateModelInteraction.model_validate(body).model_dump(
            by_alias=True, exclude_unset=True, mode="json"
        )
    except ValidationError as error:
        yield f"not of the published type: {error.errors()[0]}"
        return
    if kept != body:
        yield f"the published types do not keep all of it: {kept} is not {body}"


def _bedrock(body: Body) -> Iterator[str]:
    # The package has no types of its own, so it is loaded without them.
    shape = _converse(import_module("botocore.session").Session)
    report = (
        import_module("botocore.validate")
        .ParamValidator()
        .validate({"modelId": "m", **_with_bytes(body)}, shape)
    )
    if report.has_errors():
        yield report.generate_report()


@cache
def _converse(session: Callable[[], Any]) -> Any:
    model = session().get_service_model("bedrock-runtime", api_version="2023-09-30")
    return model.operation_model("ConverseStream").input_shape


def _with_bytes(value: Any, name: str = "") -> Any:
    """Return `value` with blobs as the model has them; on the wire they are base64."""
    if name in ("bytes", "redactedContent") and isinstance(value, str):
        return base64.b64decode(value)
    if isinstance(value, dict):
        return {k: v if k == "json" else _with_bytes(v, k) for k, v in value.items()}
    return [_with_bytes(v) for v in value] if isinstance(value, list) else value


MESSAGE: Final = {
    "system": {"role", "content"},
    "user": {"role", "content", "images"},
    "assistant": {"role", "content", "thinking", "tool_calls", "images"},
    "tool": {"role", "content", "tool_name", "tool_call_id"},
}


def _ollama(body: Body) -> Iterator[str]:
    known = {"model", "messages", "tools", "options", "stream", "format", "keep_alive", "think"}
    if body.keys() - known:
        yield f"no such field: {body.keys() - known}"
    for number, message in enumerate(body["messages"]):
        if message.keys() - MESSAGE.get(message["role"], set()):
            yield f"messages[{number}]: {message.keys()} in a {message['role']} message"
        if not isinstance(message.get("content", ""), str):
            yield f"messages[{number}]: content is a string"
        for call in message.get("tool_calls", ()):
            if not isinstance(call["function"]["arguments"], dict):
                yield f"messages[{number}]: arguments are an object"
        for image in message.get("images", ()):
            base64.b64decode(image, validate=True)


JUDGES: Final[Mapping[str, Callable[[Body], Iterator[str]]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "gemini-interactions": _interactions,
    "bedrock": _bedrock,
    "ollama": _ollama,
}
