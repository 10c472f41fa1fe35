"""A client's Converse request as our graph, each block with its place in the request.

Nothing is judged here but shape: what cannot be a message at all becomes a finding, so that
one pass shows everything that is wrong. A user's message that holds results becomes a message
of results for each run of them, beside one of what else it says. The id of the model may stand
in the body, as the AWS libraries take it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.bedrock.head import OWN_FIELDS, OWN_SAMPLING, SAMPLING
from antiphon.adapters.bedrock.profile import BEDROCK, FORMATS, facts_of
from antiphon.adapters.requests.parsing import Malformed, encode, type_name
from antiphon.adapters.requests.reading import (
    NOT_CARRIED,
    SYSTEM,
    RequestReader,
    option,
    options,
    role_of,
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

ROLES: Final[Mapping[str, Role]] = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
}
MEDIA_TYPES: Final = {form: media_type for media_type, form in FORMATS.items()}
HINT: Final = "cachePoint"
"""A mark that changes what a request costs, not what it means."""

UNCARRIED: Final = frozenset(
    {"video", "guardContent", "citationsContent", "searchResult", "toolAddition"} | {"toolRemoval"}
)
"""Blocks that are legal there and have no place in our graph."""

DOCUMENT_NAME: Final = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}", re.DOTALL)

Fields = Mapping[str, object]


LIES_ELSEWHERE: Final = "AAAA"
"""Stands for the data of what lies in a bucket of the client's."""

PLACES: Final = {
    "max_output_tokens": "inferenceConfig.maxTokens",
    "temperature": "inferenceConfig.temperature",
    "tool_choice": "toolConfig.toolChoice",
}
"""What options of ours are called here, with where they stand."""


def parse(request: Fields) -> Parsed:
    """Return `request` as our graph.

    Raises:
        InvalidInput: It has no array of messages, or an option of the wrong type.
    """
    items = request.get("messages")
    if not isinstance(items, list):
        raise InvalidInput(
            "A Converse request holds an array called messages.", code="wrong_shape", at="messages"
        )
    known = facts_of(option(request, "modelId", str) or "")
    reader = _Reader(apart=known.get("results_apart") is True)
    reader.system(request.get("system"))
    for number, item in enumerate(items):
        reader.message(f"messages[{number}]", item)
    config = _object(request, "toolConfig")
    tools = tuple(reader.tools(config.get("tools")))
    policy = _policy(request, config)
    return Parsed(
        messages=tuple(reader.messages),
        tools=tools,
        policy=policy,
        findings=tuple(reader.findings),
        places=reader.places | PLACES,
        uncarried=tuple(reader.uncarried),
        facts={**facts_of(policy.model), **facts_of_options(policy.extra)},
    )


def facts_of_options(extra: Mapping[str, msgspec.Raw]) -> dict[str, object]:
    """Return what the options of a request say of the model: thinking on a budget leads a loop."""
    fields = extra.get("additionalModelRequestFields")
    match msgspec.json.decode(fields) if fields is not None else None:
        case {"thinking": {"type": "enabled"}} | {"reasoning_config": {"type": "enabled"}}:
            return {"thinking": "required", "prefill": "unsupported"}
        case _:
            return {}


class _Reader(RequestReader):
    """Reads messages of Converse."""

    def __init__(self, *, apart: bool) -> None:
        super().__init__()
        self._apart = apart  # whether nothing may stand beside results
        self._spoken = False  # whether anyone but the system has said something
        self._documents: set[str] = set()  # names that are taken

    def system(self, value: object) -> None:
        """Read the text at the top of the request."""
        if value is None:
            return
        if not isinstance(value, list):
            raise InvalidInput(
                f"system is an array, not {type_name(value)}.", code="wrong_shape", at="system"
            )
        self.attempt("system", lambda: self._system(value))

    def _system(self, items: list[object]) -> None:
        placed = list(self._parts("system", "", items, Role.SYSTEM))
        if placed:
            self.say(SYSTEM, Role.SYSTEM, placed)

    def message(self, at: str, item: object) -> None:
        """Read one message at `at`."""
        self.attempt(at, lambda: self._message(at, item))

    def _message(self, at: str, item: object) -> None:
        if not isinstance(item, dict):
            raise Malformed("", f"A message is an object, not {type_name(item)}.")
        role = role_of(item, ROLES)
        if role is Role.SYSTEM and not self._spoken:
            raise Malformed(
                "",
                "The first message is the user's. Text of the system stands in `system`, at the top.",
                "role_unsupported",
            )
        self._spoken = True
        content = item.get("content")
        if not isinstance(content, list):
            raise Malformed(".content", f"Content is an array, not {type_name(content)}.")
        read = list(self._parts(at, ".content", content, role))
        if not read:
            self.say(MessageId(at), role, [])
        runs = groupby(read, key=lambda placed: type(placed[0]) is ToolResult)
        pieces = [(is_result and role is Role.USER, list(run)) for is_result, run in runs]
        for results, placed in pieces:
            name = MessageId(at if len(pieces) == 1 else placed[0][1])
            self.places[name] = at
            if self._apart and not results and any(result for result, _ in pieces):
                self.find(
                    "block_not_allowed",
                    placed[0][1],
                    "Nothing may stand beside results for this model. Put a message of the assistant's "
                    "between them.",
                )
            self.say(name, Role.TOOL if results else role, placed)

    def _parts(
        self, at: str, inside: str, items: list[object], role: Role
    ) -> Iterator[tuple[Block, str]]:
        for number, item in enumerate(items):
            place = f"{inside}[{number}]"
            if not isinstance(item, dict):
                raise Malformed(place, f"A content block is an object, not {type_name(item)}.")
            if len(item) != 1:
                raise Malformed(
                    place, "A content block has exactly one key, which says what it is. Split it."
                )
            (kind,) = item
            if kind == HINT:
                continue
            yield self._part(at, place, kind, item[kind], role), at + place

    def _part(self, at: str, place: str, kind: str, value: object, role: Role) -> Block:
        match kind, value:
            case "text", str(text):
                return Text(text=text)
            case "image", {"format": str(form), "source": dict(source)} if source.keys() & {
                "bytes",
                "s3Location",
            }:
                return self._image(at + place, form, source)
            case "audio", {"format": str(form), "source": {"bytes": str(data)}}:
                return Audio(format=form, data=data)
            case "audio", {"format": str(), "source": dict()}:
                self.uncarried.append(at + place)  # it stands in a bucket
                return Text(text=NOT_CARRIED)
            case "document", {"name": str(filename), "source": dict(source), **more}:
                return self._document(at + place, filename, source, more)
            case (("toolUse" | "toolResult"), {"type": str(work)}) if (
                role is Role.ASSISTANT and work
            ):
                return _kept({kind: value}, work=True)
            case "toolUse", {"toolUseId": str(call_id), "name": str(name), "input": dict(given)}:
                arguments = encode(given).decode()
                return ToolCall(call_id=CallId(call_id), name=name, arguments=arguments)
            case "toolUse", {"toolUseId": str(), "name": str(), "input": given}:
                raise Malformed(
                    f"{place}.toolUse.input",
                    f"The input of a call is an object, not {type_name(given)}. "
                    "Do not encode it as a string.",
                )
            case "toolResult", {"toolUseId": str(call_id), "content": list(content), **more} if (
                call_id
            ):
                return self._result(at, f"{place}.toolResult", call_id, content, more)
            case "reasoningContent", {"reasoningText": {"text": str(text), **more}}:
                signature = more.get("signature")
                state = {"reasoningText": {"signature": signature}} if signature else None
                return Reasoning(text=text) if state is None else _kept(state, text=text)
            case "reasoningContent", {"redactedContent": str()} as redacted:
                return _kept(redacted)
            case _ if kind in UNCARRIED:
                self.uncarried.append(at + place)
                return Text(text=NOT_CARRIED)
            case (
                ("text" | "image" | "audio" | "document" | "toolUse" | "toolResult")
                | "reasoningContent",
                _,
            ):
                raise Malformed(place, f"This {kind} block lacks what a block of its kind holds.")
            case _:
                return Unknown(name=kind, value=msgspec.Raw(encode(value)))

    def _image(self, at: str, form: str, source: Mapping[object, object]) -> Image:
        data = source.get("bytes")
        if not isinstance(data, str):
            self.uncarried.append(at)  # it stands in a bucket
            data = LIES_ELSEWHERE
        return Image(media_type=f"image/{form}", data=data)

    def _document(
        self,
        at: str,
        filename: str,
        source: Mapping[object, object],
        more: Mapping[object, object],
    ) -> File:
        form = more.get("format", "txt")
        match source:
            case {"bytes": str(data)}:
                pass
            case {"text": str(text)}:
                data, form = base64.b64encode(text.encode()).decode(), "txt"
            case _:
                self.uncarried.append(at)
                data, form = LIES_ELSEWHERE, "pdf"
        if DOCUMENT_NAME.fullmatch(filename) is None:
            self.find(
                "malformed_item",
                f"{at}.document.name",
                "The name of a document is letters, digits, single spaces, hyphens and brackets: no more "
                "than 200, and no dots.",
            )
        elif filename in self._documents:
            self.find(
                "malformed_item",
                f"{at}.document.name",
                f"Another document of this request is named {filename!r}. Give each a name of its own.",
            )
        self._documents.add(filename)
        if more.get("context") or more.get("citations"):
            self.uncarried.append(at)
        media_type = MEDIA_TYPES.get(str(form), f"application/{form}")
        return File(media_type=media_type, data=data, filename=filename)

    def _result(
        self,
        at: str,
        place: str,
        call_id: str,
        content: list[object],
        more: Mapping[object, object],
    ) -> ToolResult:
        parts: list[ResultPart] = []
        for number, item in enumerate(content):
            inner = f"{place}.content[{number}]"
            if not isinstance(item, dict) or len(item) != 1:
                raise Malformed(inner, "A part of a result is an object of exactly one key.")
            (kind,) = item
            self.inside.setdefault(at + place.removesuffix(".toolResult"), []).append(at + inner)
            if kind == "json":
                parts.append(Text(text=encode(item[kind]).decode()))
                continue
            block = self._part(at, inner, kind, item[kind], Role.TOOL)
            if not isinstance(block, ResultPart):
                raise Malformed(inner, "A result holds text, JSON, images and documents.")
            parts.append(block)
        status = more.get("status")
        if status not in (None, "success", "error"):
            raise Malformed(f"{place}.status", "The status of a result is success or error.")
        failed = status == "error"
        return ToolResult(
            call_id=CallId(call_id),
            content=tuple(parts),
            outcome=Outcome.ERROR if failed else Outcome.SUCCESS,
        )

    def tools(self, items: object) -> Iterator[ToolDeclaration]:
        """Yield the declarations of a request."""
        if items is None:
            return
        if not isinstance(items, list) or not items:
            raise InvalidInput(
                "tools is an array of at least one.", code="wrong_shape", at="toolConfig.tools"
            )
        for number, item in enumerate(items):
            at = f"toolConfig.tools[{number}]"
            match item:
                case {"toolSpec": {"name": str(name), "inputSchema": {"json": schema}, **more}}:
                    described = more.get("description")
                    if described == "":
                        sentence = "The description of a tool says something, or is left out."
                        self.find(
                            "malformed_item", f"{at}.toolSpec.description", sentence, first=True
                        )
                    yield ToolDeclaration(
                        name=name,
                        description=described if isinstance(described, str) else "",
                        parameters=msgspec.Raw(encode(schema)),
                        strict=True if more.get("strict") is True else None,
                    )
                case {"systemTool": {"name": str(name)}}:
                    self.uncarried.append(at)
                    yield ToolDeclaration(name=name)
                case {"cachePoint": _}:
                    continue
                case _:
                    raise InvalidInput(
                        "A tool is declared as a toolSpec with a name and an inputSchema.",
                        code="wrong_shape",
                        at=at,
                    )


def _policy(request: Fields, config: Fields) -> Policy:
    """Return the options of a request. Those without a setting of ours are passed on as they are."""
    sampling = _object(request, SAMPLING)
    extra = {name: value for name, value in request.items() if name not in OWN_FIELDS}
    rest = {name: value for name, value in sampling.items() if name not in OWN_SAMPLING}
    extra[SAMPLING] = rest or None
    inside = f"{SAMPLING}."
    return Policy(
        profile=BEDROCK.name,
        model=option(request, "modelId", str) or "",
        max_output_tokens=option(sampling, "maxTokens", int, inside),
        temperature=option(sampling, "temperature", float, inside),
        tool_choice=_choice(config.get("toolChoice")),
        extra=options(extra),
    )


def _choice(value: object) -> str | None:
    match value:
        case None:
            return None
        case {"tool": {"name": str(name)}}:
            return f"tool:{name}"
        case {"any": _}:
            return "required"
        case {"auto": _}:
            return "auto"
        case _:
            raise InvalidInput(
                "A tool choice is auto, any, or tool with its name.",
                code="wrong_shape",
                at="toolConfig.toolChoice",
            )


def _object(request: Fields, name: str) -> dict[str, object]:
    value = request.get(name)
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(f"{name} is an object.", code="wrong_shape", at=name)
    return value or {}


def _kept(state: object, *, text: str = "", work: bool = False) -> Reasoning:
    opaque = Opaque(profile=BEDROCK.name, value=msgspec.Raw(encode(state)), work=work)
    return Reasoning(text=text, opaque=opaque)
