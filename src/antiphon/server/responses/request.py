"""What a client asks for, decoded strictly: what is honoured, what is echoed, what is refused.

A field that we cannot honour is refused where leaving it out would change what the client
gets, and given back in the response where it would not. Nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.adapters.base import Parsed
from antiphon.adapters.openai_responses.parse import parse
from antiphon.core.asking import Ask
from antiphon.core.manifest import Mapping as Mapped
from antiphon.errors import InvalidInput, SequenceRejected
from antiphon.server.http.body import Body
from antiphon.server.responses.output import as_brought

Key: TypeAlias = Annotated[str, Meta(max_length=64)]
Value: TypeAlias = Annotated[str, Meta(max_length=512)]
Metadata: TypeAlias = Annotated[dict[Key, Value], Meta(max_length=16)]

RESPONSES: Final = frozenset({"openai-responses", "azure"})
"""Profiles that take these options as the client wrote them."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation by its id, in an object."""

    id: str


class Prompt(Body, frozen=True, kw_only=True, omit_defaults=True):
    """Instructions that the tenant keeps, by their name, and which version of them."""

    id: str
    version: str | None = None
    variables: dict[str, Any] | None = None

    @property
    def named(self) -> str:
        """The version as a run is asked for it."""
        return self.id if self.version is None else f"{self.id}@{self.version}"


class Asked(Body, frozen=True, kw_only=True, omit_defaults=True):
    """What both a response and a count of its input take."""

    input: Any = None
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | Named | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None

    @property
    def conversation_id(self) -> str | None:
        """The conversation that is named, if one is."""
        return self.conversation.id if isinstance(self.conversation, Named) else self.conversation

    def parsed(self) -> Parsed:
        """Return input and tools as our graph.

        Raises:
            SequenceRejected: An item cannot be one at all.
            InvalidInput: `unsupported_parameter`: what we cannot carry.
        """
        brought = self.input
        items = [*map(as_brought, brought)] if isinstance(brought, list) else brought
        parsed = parse({"input": items, "tools": self.tools, "tool_choice": self.tool_choice})
        if parsed.findings:
            raise SequenceRejected(parsed.located(parsed.findings))
        for place in parsed.uncarried:
            raise unsupported(place)
        return parsed


class Create(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a request for a response."""

    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    metadata: Metadata | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: list[str] | None = None
    stream_options: dict[str, Any] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    safety_identifier: str | None = None
    user: str | None = None
    max_tool_calls: int | None = None
    prompt: Prompt | None = None
    context_management: Any = None
    moderation: Any = None
    access_programs: Any = None
    image: Any = None
    background_options: Any = None

    def check(self) -> None:
        """Refuse what would not be what was asked for.

        Raises:
            InvalidInput: `unsupported_parameter` or `conflicting_parameters`, at the field.
        """
        if self.previous_response_id is not None and self.conversation is not None:
            raise InvalidInput(
                "A response goes on from another one or in a conversation, not both.",
                code="conflicting_parameters",
                at="conversation",
            )
        if self.background and self.store is False:
            raise InvalidInput(
                "What runs in the background has to be stored: nobody could fetch it.",
                code="conflicting_parameters",
                at="background",
            )
        if self.store is False and self.conversation is not None:
            raise InvalidInput(
                "A conversation keeps what is said in it. Leave one of the two out.",
                code="conflicting_parameters",
                at="store",
            )
        for name in NOT_HONOURED:
            if getattr(self, name) not in (None, [], {}):
                raise unsupported(name)
        if self.prompt is not None and self.prompt.variables:
            raise unsupported("prompt.variables")
        if self.top_logprobs:
            raise unsupported("top_logprobs")
        if "message.output_text.logprobs" in (self.include or ()):
            raise unsupported("include")

    def ask(
        self, parsed: Parsed, profile: str, repairs: tuple[Mapped, ...] = (), key: str = ""
    ) -> Ask:
        """Return what the run is asked to do, in the words of the model's dialect."""
        choice = parsed.policy.tool_choice
        if "tool_choice" in parsed.policy.extra:
            raise unsupported("tool_choice")
        return Ask(
            model=self.model,
            instructions=self.instructions,
            named=None if self.prompt is None else self.prompt.named,
            tools=parsed.tools,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls,
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
            truncation=self.truncation,
            compact=self.store is not False,
            extra={
                name: msgspec.Raw(msgspec.json.encode(value))
                for name, value in self._options(profile)
            },
            repairs=repairs,
            key=key,
        )

    def _options(self, profile: str) -> Iterable[tuple[str, object]]:
        usual = {"top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}
        for name, default in usual.items():
            value = getattr(self, name)
            if value is not None and value != default:
                yield name, value
        if profile in RESPONSES:
            if self.text:
                yield "text", self.text
            if self.reasoning:
                yield "reasoning", self.reasoning
            return
        form = (self.text or {}).get("format") or {"type": "text"}
        if form.get("type") == "json_schema":
            schema = {key: value for key, value in form.items() if key != "type"}
            yield "response_format", {"type": "json_schema", "json_schema": schema}
        elif form.get("type") != "text":
            yield "response_format", form
        if (self.text or {}).get("verbosity") not in (None, "medium"):
            yield "verbosity", (self.text or {})["verbosity"]
        if (self.reasoning or {}).get("effort") is not None:
            yield "reasoning_effort", (self.reasoning or {})["effort"]

    def kept(self) -> Create:
        """Return what the response says again of its request."""
        return msgspec.structs.replace(self, input=None, stream=None)

    def echo(self) -> bytes:
        """Return `kept`, to be stored."""
        return msgspec.json.encode(self.kept())


NOT_HONOURED: Final = (
    "context_management",
    "moderation",
    "access_programs",
    "image",
    "background_options",
    "max_tool_calls",
)

WORDS: Final[Mapping[str, str]] = {
    "extra.response_format": "text.format",
    "extra.verbosity": "text.verbosity",
    "extra.reasoning_effort": "reasoning.effort",
}
"""Options of a dialect, by the fields that ask for them."""


def unsupported(at: str) -> InvalidInput:
    """Return the refusal of a field that is not honoured."""
    return InvalidInput(
        "This is not supported here. Leave it out.", code="unsupported_parameter", at=at
    )


def in_their_words(error: InvalidInput) -> InvalidInput:
    """Return what an adapter says of an option, at the client's own field."""
    at = WORDS.get(error.at or "", (error.at or "").removeprefix("extra."))
    return InvalidInput(error.message, code=error.code, at=at or None)


read_echo: Final = msgspec.json.Decoder(Create).decode
