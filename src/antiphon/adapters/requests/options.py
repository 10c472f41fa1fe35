"""Options of a request in the words of another form.

Policy has settings of its own for what every form can say. Whatever else a request asks for
stands in `Policy.extra` in its form's own words, and this is the dictionary between them. What
only steers cost or bookkeeping is left out and listed; what shapes the answer and cannot be said
over there is refused, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from antiphon.adapters.requests import shapes
from antiphon.core import manifest
from antiphon.core.manifest import Policy
from antiphon.errors import InvalidInput

CHAT: Final = "openai-chat"

SPELLINGS: Final[tuple[Mapping[str, str], ...]] = (
    {
        CHAT: "top_p",
        "openai-responses": "top_p",
        "anthropic": "top_p",
        "gemini": "generationConfig.topP",
        "gemini-interactions": "generation_config.top_p",
        "bedrock": "inferenceConfig.topP",
        "ollama": "options.top_p",
    },
    {"anthropic": "top_k", "gemini": "generationConfig.topK", "ollama": "options.top_k"},
    {
        CHAT: "seed",
        "gemini": "generationConfig.seed",
        "gemini-interactions": "generation_config.seed",
        "ollama": "options.seed",
    },
    {
        CHAT: "stop",
        "anthropic": "stop_sequences",
        "gemini": "generationConfig.stopSequences",
        "gemini-interactions": "generation_config.stop_sequences",
        "bedrock": "inferenceConfig.stopSequences",
        "ollama": "options.stop",
    },
    {CHAT: "reasoning_effort", "openai-responses": "reasoning.effort"},
    {CHAT: "top_logprobs", "openai-responses": "top_logprobs"},
    {CHAT: "verbosity", "openai-responses": "text.verbosity"},
    *(
        {CHAT: name, "openai-responses": name}
        for name in ("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "user")
    ),
)
"""One thing that can be asked for, as each form spells it; a dot leads into an object."""

STOPS: Final = SPELLINGS[3]

INCIDENTAL: Final = frozenset(
    {"metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
    | {"requestMetadata", "safety_identifier", "service_tier", "store", "user", "keep_alive"}
    | {"performanceConfig", "labels", "inference_geo", "background", "stream_options"}
)
"""Options that change what a request costs, where it is noted or who is watched, not its answer."""

_encode: Final = msgspec.json.Encoder().encode


class _Option(NamedTuple):
    path: str
    value: object


def translate(
    policy: Policy, source: str, target: str, listed: frozenset[str] | None = None
) -> tuple[dict[str, msgspec.Raw], tuple[manifest.Mapping, ...]]:
    """Return the extra options of `policy` in the words of `target`, and what was left out.

    Args:
        policy: As it was read from a request of `source`.
        source: A form, such as `openai-chat`; a dialect of Chat Completions is that form.
        target: The form to say it in.
        listed: The options that the dialect of that form takes; None for any.

    Raises:
        InvalidInput: `unsupported_parameter`: an option that shapes the answer, and that this
            form has no word for. `at` is its place in the request.
    """
    if source == target:
        return _within(policy.extra, target, listed)
    said: dict[str, object] = {}
    mappings: list[manifest.Mapping] = []
    shape, extra = shapes.take(policy.extra, source)
    if shape is not None:
        for place, value in shapes.said(shape, target).items():
            if listed is not None and place not in listed and "." not in place:
                raise _unsaid(target, shape.at)
            _put(said, place, value)
        mappings.append(_mapping("option_respelled", shape.at, f"as {shapes.PLACES[target]}"))
    for option in _options(extra, source):
        spelling = next((s for s in SPELLINGS if s.get(source) == option.path), {})
        word = spelling.get(target)
        if word is not None and (listed is None or word in listed or "." in word):
            value = option.value
            if spelling is STOPS and isinstance(value, str):
                value = [value]
            _put(said, word, value)
            if word != option.path:
                mappings.append(_mapping("option_respelled", option.path, f"as {word}"))
        elif option.path.partition(".")[0] in INCIDENTAL:
            mappings.append(_mapping("option_dropped", option.path, f"{target} has no such option"))
        else:
            raise _unsaid(target, option.path)
    return {name: msgspec.Raw(_encode(said[name])) for name in sorted(said)}, tuple(mappings)


def _unsaid(target: str, at: str) -> InvalidInput:
    return InvalidInput(
        f"{target} has no word for this option, and leaving it out would change the answer.",
        code="unsupported_parameter",
        at=at,
    )


def _within(
    extra: Mapping[str, msgspec.Raw], form: str, listed: frozenset[str] | None
) -> tuple[dict[str, msgspec.Raw], tuple[manifest.Mapping, ...]]:
    """Leave out what is incidental and not listed. What else is not, the adapter refuses."""
    dropped = [n for n in extra if listed is not None and n in INCIDENTAL - listed]
    kept = {name: raw for name, raw in extra.items() if name not in dropped}
    detail = f"this dialect of {form} has no such option"
    return kept, tuple(_mapping("option_dropped", name, detail) for name in dropped)


def _options(extra: Mapping[str, msgspec.Raw], source: str) -> Iterator[_Option]:
    """Yield every option; of objects that hold several, each."""
    holders = {word.partition(".")[0] for s in SPELLINGS if "." in (word := s.get(source, ""))}
    for name, raw in extra.items():
        value = msgspec.json.decode(raw)
        if name in holders and isinstance(value, dict):
            yield from (
                _Option(f"{name}.{inner}", v) for inner, v in value.items() if v is not None
            )
        else:
            yield _Option(name, value)


def _put(said: dict[str, object], path: str, value: object) -> None:
    holder, dot, name = path.partition(".")
    if not dot:
        said[holder] = value
        return
    inner = said.setdefault(holder, {})
    assert isinstance(inner, dict)
    inner[name] = value


def _mapping(rule: str, at: str, detail: str) -> manifest.Mapping:
    return manifest.Mapping(rule=rule, block=at, detail=detail)
