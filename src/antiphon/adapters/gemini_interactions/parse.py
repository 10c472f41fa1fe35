"""A client's request to the Interactions API as our graph, each block with its place.

Nothing is judged here but shape: what cannot be a message at all becomes a finding, so that one
pass shows everything that is wrong. Steps of the model that follow each other are one message of
ours, and so are results. Fields are taken one by one; what is not named here is not carried over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.gemini_interactions.head import OWN_CONFIG, OWN_FIELDS
from antiphon.adapters.gemini_interactions.profile import INTERACTIONS, facts_of
from antiphon.adapters.requests.parsing import Malformed, encode, type_name
from antiphon.adapters.requests.reading import (
    SYSTEM,
    RequestReader,
    elsewhere_asked,
    option,
    options,
)
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Opaque,
    Outcome,
    Reasoning,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from antiphon.core.ids import CallId, MessageId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.errors import InvalidInput

Fields: TypeAlias = Mapping[str, object]
Placed: TypeAlias = tuple[Block, str]

CONTENT: Final = frozenset({"text", "image", "audio", "document", "video"})
ELSEWHERE: Final = ("agent", "agent_config", "previous_interaction_id", "continuation_token")
"""Fields by which a request means what is stored at the provider."""

CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


PLACES: Final = {
    "max_output_tokens": "generation_config.max_output_tokens",
    "temperature": "generation_config.temperature",
    "tool_choice": "generation_config.tool_choice",
}
"""What options of ours are called here, with where they stand."""


def parse(request: Fields) -> Parsed:
    """Return `request` as our graph.

    Raises:
        InvalidInput: It has no input, or an option of the wrong type.
    """
    given = request.get("input")
    reader = _Reader()
    system = option(request, "system_instruction", str)
    if system:
        reader.say(SYSTEM, Role.SYSTEM, [(Text(text=system), "system_instruction")])
    match given:
        case str():
            reader.say(MessageId("input"), Role.USER, [(Text(text=given), "input")])
        case dict():
            reader.contents([given], ["input"])
        case list() if given and all(_kind(item) in CONTENT for item in given):
            places = [f"input[{number}]" for number in range(len(given))]
            reader.contents(given, places)
        case list():
            reader.steps(given)
        case _:
            raise InvalidInput(
                "An interaction has an input: text, contents or steps.",
                code="wrong_shape",
                at="input",
            )
    kept = [name for name in ELSEWHERE if request.get(name) is not None]
    reader.uncarried += kept
    tools = tuple(reader.tools(request.get("tools")))
    policy = _policy(request)
    return Parsed(
        messages=elsewhere_asked(reader.messages) if kept else tuple(reader.messages),
        tools=tools,
        policy=policy,
        findings=tuple(reader.findings),
        places=reader.places | PLACES,
        uncarried=tuple(reader.uncarried),
        facts=facts_of(policy.model),
    )


class _Reader(RequestReader):
    """Reads steps."""

    def __init__(self) -> None:
        super().__init__()
        self._speaker: Role | None = None
        self._run: list[Placed] = []  # what it has said so far

    def contents(self, items: list[object], places: list[str]) -> None:
        """Read contents that are what the user says."""
        for at, item in zip(places, items, strict=True):
            self.attempt(at, lambda: self._run.append((self._content(at, "", item), at)))  # noqa: B023  # called at once
        if self._run:
            self.say(MessageId("input"), Role.USER, self._run)

    def steps(self, items: list[object]) -> None:
        """Read steps; those of the model that follow each other are one message."""
        for number, item in enumerate(items):
            at = f"input[{number}]"
            self.attempt(at, lambda: self._take(at, item))  # noqa: B023  # called at once
        self._end()

    def _take(self, at: str, item: object) -> None:
        role, placed = self._step(at, item)
        if role is not self._speaker or role is Role.USER:
            self._end()
        self._speaker = role
        self._run += placed
        if not placed:
            self._end()
            self.say(MessageId(at), role, [])

    def _end(self) -> None:
        if self._run and self._speaker is not None:
            at = self._run[0][1].partition(".")[0]
            self.say(MessageId(at), self._speaker, self._run)
        self._run = []

    def _step(self, at: str, item: object) -> tuple[Role, list[Placed]]:
        if not isinstance(item, dict):
            raise Malformed("", f"A step is an object, not {type_name(item)}.")
        match item:
            case {"type": "user_input" | "model_output" as kind}:
                role = Role.USER if kind == "user_input" else Role.ASSISTANT
                pieces = item.get("content") or []
                if not isinstance(pieces, list):
                    raise Malformed(".content", f"Content is an array, not {type_name(pieces)}.")
                return role, [
                    (self._content(at, f".content[{n}]", piece), f"{at}.content[{n}]")
                    for n, piece in enumerate(pieces)
                ]
            case {"type": "thought"}:
                return Role.ASSISTANT, [(_thought(item), at)]
            case {
                "type": "function_call",
                "id": str(i),
                "name": str(name),
                "arguments": dict(given),
            }:
                call = ToolCall(call_id=CallId(i), name=name, arguments=encode(given).decode())
                return Role.ASSISTANT, [(call, at)]
            case {"type": "function_call"}:
                raise Malformed("", "A call has an id, a name, and its arguments as an object.")
            case {"type": "function_result", "call_id": str(call_id), "result": result} if call_id:
                return Role.TOOL, [(self._result(at, call_id, item, result), at)]
            case {"type": "function_result"}:
                raise Malformed("", "A result has the call_id of its call, and what came of it.")
            case {"type": str(kind)} if kind.endswith(("_call", "_result")):
                return Role.ASSISTANT, [(Reasoning(opaque=_state(item, work=True)), at)]
            case {"type": str(kind)}:
                return Role.USER, [(Unknown(name=kind, value=msgspec.Raw(encode(item))), at)]
            case _:
                raise Malformed("", "A step says its type.")

    def _result(self, at: str, call_id: str, item: Fields, result: object) -> ToolResult:
        parts: list[ResultPart] = []
        match result:
            case str():
                parts += [Text(text=result)] if result else []
            case list() if all(_kind(piece) in CONTENT for piece in result):
                for number, piece in enumerate(result):
                    block = self._content(at, f".result[{number}]", piece)
                    if isinstance(block, Audio):
                        block = File(media_type=f"audio/{block.format}", data=block.data)
                    if not isinstance(block, ResultPart):
                        raise Malformed(f".result[{number}]", "A result holds text and media.")
                    parts.append(block)
                    self.inside.setdefault(at, []).append(f"{at}.result[{number}]")
            case _:
                parts.append(Text(text=encode(result).decode()))
        name = item.get("name")
        return ToolResult(
            call_id=CallId(call_id),
            content=tuple(parts),
            outcome=Outcome.ERROR if item.get("is_error") is True else Outcome.SUCCESS,
            name=name if isinstance(name, str) else None,
        )

    def _content(self, at: str, place: str, piece: object) -> Block:
        if not isinstance(piece, dict):
            raise Malformed(place, f"Content is an object, not {type_name(piece)}.")
        media_type = piece.get("mime_type")
        kind = media_type if isinstance(media_type, str) else None
        match piece:
            case {"type": "text", "text": str(text)}:
                return Text(text=text)
            case {"type": "image", "data": str(data)}:
                return Image(media_type=kind, data=data)
            case {"type": "image", "uri": str(uri)}:
                return Image(media_type=kind, url=uri)
            case {"type": "audio", "data": str(data)}:
                return Audio(format=(kind or "audio/wav").removeprefix("audio/"), data=data)
            case {"type": "document" | "video", "data": str(data)}:
                return File(media_type=kind, data=data)
            case {"type": "document" | "audio" | "video", "uri": str(uri)}:
                if piece["type"] != "document":
                    self.uncarried.append(at + place)
                return File(media_type=kind, file_id=uri)
            case {"type": str(name)} if name in CONTENT:
                raise Malformed(place, f"This {name} lacks what content of its kind holds.")
            case {"type": str(name)}:
                return Unknown(name=name, value=msgspec.Raw(encode(piece)))
            case _:
                raise Malformed(place, "Content says its type.")

    def tools(self, items: object) -> Iterator[ToolDeclaration]:
        """Yield the declarations of a request."""
        if items is None:
            return
        if not isinstance(items, list):
            raise InvalidInput("tools is an array.", code="wrong_shape", at="tools")
        for number, item in enumerate(items):
            match item:
                case {"type": "function", "name": str(name)}:
                    tool = ToolDeclaration(
                        name=name, description=option(item, "description", str) or ""
                    )
                    schema = item.get("parameters")
                    if schema is not None:
                        raw = msgspec.Raw(encode(schema))
                        tool = msgspec.structs.replace(tool, parameters=raw)
                    yield tool
                case {"type": str(kind)} if kind != "function":
                    self.uncarried.append(f"tools[{number}]")  # one that the provider runs itself
                case _:
                    raise InvalidInput(
                        "A function is declared with its type and name.",
                        code="wrong_shape",
                        at=f"tools[{number}]",
                    )


def _policy(request: Fields) -> Policy:
    """Return the options of a request. Those without a setting of ours are passed on as they are."""
    config = option(request, "generation_config", dict) or {}
    extra = {
        name: value
        for name, value in request.items()
        if name not in OWN_FIELDS and name not in ELSEWHERE
    }
    rest = {name: v for name, v in config.items() if name not in OWN_CONFIG and v is not None}
    choice = _choice(rest.get("tool_choice"))
    if choice is not None:
        del rest["tool_choice"]
    extra["generation_config"] = rest or None
    return Policy(
        profile=INTERACTIONS.name,
        model=option(request, "model", str) or "",
        max_output_tokens=option(config, "max_output_tokens", int, "generation_config."),
        temperature=option(config, "temperature", float, "generation_config."),
        tool_choice=choice,
        stream=option(request, "stream", bool) or False,
        extra=options(extra),
    )


def _choice(value: object) -> str | None:
    """Return a tool choice as we say it; None for none, or for more than we can say."""
    match value:
        case str(word):
            return CHOICES.get(word)
        case {"allowed_tools": {"mode": "any", "tools": [str(name)]}}:
            return f"tool:{name}"
        case _:
            return None


def _thought(item: Fields) -> Reasoning:
    summary = item.get("summary")
    pieces = summary if isinstance(summary, list) else []
    texts = [piece.get("text") for piece in pieces if isinstance(piece, dict)]
    signed = isinstance(item.get("signature"), str) and item["signature"]
    return Reasoning(
        text="".join(text for text in texts if isinstance(text, str)),
        opaque=_state(item) if signed else None,
    )


def _state(item: Fields, *, work: bool = False) -> Opaque:
    return Opaque(profile=INTERACTIONS.name, value=msgspec.Raw(encode(item)), work=work)


def _kind(item: object) -> str | None:
    kind = item.get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else None
