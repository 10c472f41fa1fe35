"""A client's generateContent request as our graph, each block with its place in the request.

Nothing is judged here but shape: what cannot be a message at all becomes a finding, so that one
pass shows everything that is wrong. A content that holds results becomes a message of results,
and one of what else it says. Calls need no ids on this wire: one without is known by its place,
and a result without answers the first call of its name that is open. Fields are taken one by one,
in either of the spellings that the wire knows; what is not named here is not carried over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.gemini import options
from antiphon.adapters.gemini.parts import SIGNATURE
from antiphon.adapters.gemini.profile import GEMINI, facts_of
from antiphon.adapters.requests.parsing import Malformed, encode, type_name
from antiphon.adapters.requests.reading import RequestReader
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
from antiphon.errors import InvalidInput

Fields: TypeAlias = Mapping[str, object]

SYSTEM: Final = MessageId("systemInstruction")
ROLES: Final[Mapping[object, Role]] = {"user": Role.USER, "model": Role.ASSISTANT, None: Role.USER}
WORK: Final = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
DATA: Final = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    *sorted(WORK),
)


def parse(request: Mapping[str, object]) -> Parsed:
    """Return `request` as our graph.

    Raises:
        InvalidInput: It has no array of contents, or an option of the wrong type.
    """
    request = options.camel(request)
    items = request.get("contents")
    if not isinstance(items, list):
        raise InvalidInput(
            "A generateContent request holds an array called contents.",
            code="wrong_shape",
            at="contents",
        )
    reader = _Reader()
    declared = options.tools(request.get("tools"))
    reader.findings += declared.findings
    reader.places |= declared.places
    reader.system(request.get("systemInstruction"))
    for number, item in enumerate(items):
        reader.content(f"contents[{number}]", item)
    if not declared.tools and not declared.uncarried:
        reader.findings += options.calls_nothing(request)
    policy = options.policy(request)
    return Parsed(
        messages=tuple(reader.messages),
        tools=declared.tools,
        policy=policy,
        findings=tuple(reader.findings),
        places=reader.places | options.PLACES,
        uncarried=(*declared.uncarried, *reader.uncarried),
        facts=facts_of(policy.model),
    )


class _Reader(RequestReader):
    """Reads contents."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[CallId, str] = {}  # calls without a result yet, and their tools

    def system(self, value: object) -> None:
        """Read the instruction at the top of the request."""
        if value is None:
            return
        self.attempt(
            SYSTEM, lambda: self.say(SYSTEM, Role.SYSTEM, self._parts(SYSTEM, value, Role.SYSTEM))
        )

    def content(self, at: str, item: object) -> None:
        """Read one content at `at`."""
        self.attempt(at, lambda: self._content(at, item))

    def _content(self, at: str, item: object) -> None:
        if not isinstance(item, dict):
            raise Malformed("", f"A content is an object, not {type_name(item)}.")
        word = item.get("role")
        role = ROLES.get(word) if word is None or isinstance(word, str) else None
        if role is None:
            raise Malformed(
                "",
                f"There is no role {word!r} in contents; known are user and model. System text stands in "
                "systemInstruction.",
                "role_unsupported",
            )
        placed = self._parts(at, item, role)
        results = [p for p in placed if role is Role.USER and type(p[0]) is ToolResult]
        rest = [p for p in placed if not results or type(p[0]) is not ToolResult]
        if results:
            self.say(MessageId(at), Role.TOOL, results)
        if rest or not results:
            name = MessageId(rest[0][1] if results else at)
            self.places[name] = at
            self.say(name, role, rest)

    def _parts(self, at: str, item: object, role: Role) -> list[tuple[Block, str]]:
        if not isinstance(item, dict):
            raise Malformed("", f"A content is an object, not {type_name(item)}.")
        parts = item.get("parts")
        if parts is None:
            return []
        if not isinstance(parts, list):
            raise Malformed(".parts", f"Parts are an array, not {type_name(parts)}.")
        return [
            (block, f"{at}.parts[{number}]")
            for number, part in enumerate(parts)
            for block in self._part(at, f".parts[{number}]", part, role)
        ]

    def _part(self, at: str, place: str, value: object, role: Role) -> list[Block]:
        if not isinstance(value, dict):
            raise Malformed(place, f"A part is an object, not {type_name(value)}.")
        part = options.camel(value)
        held = [name for name in DATA if part.get(name) is not None]
        if len(held) > 1:
            raise Malformed(
                place, f"A part holds one thing; this one holds {' and '.join(held)}. Split it."
            )
        signature = part.get(SIGNATURE)
        state = {SIGNATURE: signature} if isinstance(signature, str) and signature else {}
        match part:
            case {"text": str(text)} if part.get("thought") is True:
                opaque = _state({"thought": True, **state}) if state else None
                return [Reasoning(text=text, opaque=opaque)]
            case {"text": str(text)}:
                return _with(Text(text=text), text, state)
            case {"inlineData": dict(data)}:
                return _with(self._inline(place, data), "media", state)
            case {"fileData": dict(data)}:
                return _with(self._file(place, data), "media", state)
            case {"functionCall": dict(call)}:
                return [self._call(at + place, place, call, state)]
            case {"functionResponse": dict(response)}:
                return [self._result(at, place, response)]
            case _ if held and held[0] in WORK and role is Role.ASSISTANT:
                return [Reasoning(opaque=_state(value, work=True))]
            case _ if held and held[0] not in WORK:
                raise Malformed(place, f"This is no {held[0]}: {type_name(part[held[0]])}.")
            case _ if not held and state:
                return _with(Text(text=""), "", state)
            case _:
                name = next((n for n in value if n not in ("thought", SIGNATURE)), None)
                if name is None:
                    raise Malformed(place, "A part holds something; this one is empty.")
                return [Unknown(name=name, value=msgspec.Raw(encode(value)))]

    def _call(self, at: str, place: str, value: Fields, state: Fields) -> ToolCall:
        call = options.camel(value)
        name, given, call_id = call.get("name"), call.get("args"), call.get("id")
        if not isinstance(name, str) or not name:
            raise Malformed(place, "A call names its function.")
        if given is not None and not isinstance(given, dict):
            raise Malformed(
                f"{place}.functionCall.args",
                f"The arguments of a call are an object, not {type_name(given)}. Do not encode them as a string.",
            )
        known = CallId(call_id if isinstance(call_id, str) and call_id else at)
        self._open[known] = name
        return ToolCall(
            call_id=known,
            name=name,
            arguments=encode(given or {}).decode(),
            opaque=_state(state) if state else None,
        )

    def _result(self, at: str, place: str, value: Fields) -> ToolResult:
        response = options.camel(value)
        name, said = response.get("name"), response.get("response")
        if not isinstance(name, str) or not name:
            raise Malformed(place, "A response names its function.")
        if said is not None and not isinstance(said, dict):
            raise Malformed(
                f"{place}.functionResponse.response",
                f"A response is an object, not {type_name(said)}. Put it under output, or under error.",
            )
        if response.get("willContinue"):
            self.uncarried.append(at + place)
        call_id = self._answers(response.get("id"), name, at + place)
        self._open.pop(call_id, None)
        content: list[ResultPart] = list(_content_of(said or {}))
        inside = self.inside[at + place] = [f"{at}{place}.functionResponse.response"] * len(content)
        media = response.get("parts")
        for number, part in enumerate(media if isinstance(media, list) else ()):
            inner = f"{place}.functionResponse.parts[{number}]"
            content.append(self._medium(inner, part))
            inside.append(at + inner)
        failed = said is not None and said.keys() == {"error"}
        return ToolResult(
            call_id=call_id,
            content=tuple(content),
            outcome=Outcome.ERROR if failed else Outcome.SUCCESS,
            name=name,
        )

    def _answers(self, given: object, name: str, at: str) -> CallId:
        """Return the call that a response answers: by its id, else by name, else the next one."""
        if isinstance(given, str) and given:
            return CallId(given)
        named = (call_id for call_id, tool in self._open.items() if tool == name)
        return next(named, next(iter(self._open), CallId(at)))

    def _medium(self, place: str, value: object) -> ResultPart:
        match options.camel(value) if isinstance(value, dict) else value:
            case {"inlineData": dict(data)}:
                block = self._inline(place, data)
            case {"fileData": dict(data)}:
                block = self._file(place, data)
            case _:
                raise Malformed(place, "A part of a response holds inlineData or fileData.")
        if isinstance(block, Audio):
            return File(media_type=f"audio/{block.format}", data=block.data)
        return block

    def _inline(self, place: str, value: Fields) -> Image | Audio | File:
        data = options.camel(value)
        match data:
            case {"mimeType": str(kind), "data": str(content)}:
                if kind.startswith("image/"):
                    return Image(media_type=kind, data=content)
                if kind.startswith("audio/"):
                    return Audio(format=kind.removeprefix("audio/"), data=content)
                return File(media_type=kind, data=content)
            case _:
                raise Malformed(place, "Data comes with its mimeType, as base64.")

    def _file(self, place: str, value: Fields) -> Image | File:
        match options.camel(value):
            case {"fileUri": str(uri), "mimeType": str(kind)} if kind.startswith("image/"):
                return Image(url=uri, media_type=kind)
            case {"fileUri": str(uri), **more}:
                known = more.get("mimeType")
                return File(file_id=uri, media_type=known if isinstance(known, str) else None)
            case _:
                raise Malformed(place, "A file is named by its fileUri.")


def _with(block: Block, said: str, state: Fields) -> list[Block]:
    """Return a block with the state that stands on it; that of an empty text is all there is."""
    if not state:
        return [block]
    if not said:
        return [Reasoning(opaque=_state({**state, "text": ""}))]
    return [block, Reasoning(opaque=_state(state))]


def _content_of(response: Fields) -> tuple[Text, ...]:
    """Return what a response says: text where it is text, else the JSON that it is."""
    said: object = response
    if response.keys() in ({"output"}, {"error"}):
        said = next(iter(response.values()))
    match said:
        case "" | None:
            return ()
        case str():
            return (Text(text=said),)
        case [_, _, *_] if isinstance(said, list) and all(isinstance(item, str) for item in said):
            return tuple(Text(text=item) for item in said)
        case _:
            return (Text(text=encode(said).decode()),)


def _state(fields: Mapping[str, object], *, work: bool = False) -> Opaque:
    return Opaque(profile=GEMINI.name, value=msgspec.Raw(encode(fields)), work=work)
