"""A client's Messages request as our graph, each block with its place in the request.

Nothing is judged here but shape: what cannot be a message at all becomes a finding, so that
one pass shows everything that is wrong. A user's message that holds results becomes a message
of results for each run of them, beside one of what else it says. Fields are taken one by one;
what is not named here is not carried over.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

import msgspec

from antiphon.adapters.anthropic.parts import CITATIONS
from antiphon.adapters.anthropic.profile import ANTHROPIC, facts_of
from antiphon.adapters.base import Parsed
from antiphon.adapters.requests.parsing import Malformed, encode, type_name
from antiphon.adapters.requests.reading import (
    NOT_CARRIED,
    SYSTEM,
    RequestReader,
    elsewhere_asked,
    option,
    options,
    role_of,
)
from antiphon.core.blocks import (
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
from antiphon.core.rules.findings import Finding
from antiphon.errors import InvalidInput

ROLES: Final[Mapping[str, Role]] = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
}
POLICY_FIELDS: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "stream", "max_tokens", "temperature"}
)
HINTS: Final = frozenset({"cache_control"})
"""Fields that change what a request costs, not what it means."""

MOST_MARKS: Final = 4
"""Most blocks of a request that may be marked for the cache."""

SERVERS_ID: Final = re.compile("srvtoolu_[a-zA-Z0-9_]+")
"""Ids of calls that Anthropic carries out itself."""

FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
}
"""What of a block our graph can carry; whatever else is there is pointed at, never dropped."""

BEGINNINGS: Final = {
    "image/png": "iVBORw0KGgo",
    "image/jpeg": "/9j/",
    "image/gif": "R0lGOD",
    "image/webp": "UklGR",
}
"""How images begin, in base64."""

DIRECT: Final = {"type": "direct"}
"""Who called a tool where nobody stands between: the model, as always."""

CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def parse(request: Mapping[str, object]) -> Parsed:
    """Return `request` as our graph.

    Raises:
        InvalidInput: It has no array of messages, or an option of the wrong type.
    """
    items = request.get("messages")
    if not isinstance(items, list):
        raise InvalidInput(
            "A Messages request holds an array called messages.", code="wrong_shape", at="messages"
        )
    reader = _Reader(goes_on=isinstance(request.get("thread"), dict))
    reader.system(request.get("system"))
    for number, item in enumerate(items):
        reader.message(f"messages[{number}]", item)
    tools = tuple(reader.tools(request.get("tools")))
    reader.hints(request)
    policy = _policy(request)
    if policy.max_output_tokens == 0:
        # It fills a cache at the provider and is answered by nothing, which is no turn of ours.
        reader.uncarried.append("max_tokens")
        policy = msgspec.structs.replace(policy, max_output_tokens=None)
    if request.get("compaction") is not None:
        reader.uncarried.append(
            "compaction"
        )  # it is answered by a summary, which is no turn either
    match request.get("thread"):
        case {"type": "continue"}:
            messages = elsewhere_asked(reader.messages)
        case _:
            messages = tuple(reader.messages)
    return Parsed(
        messages=messages,
        tools=tools,
        policy=policy,
        findings=tuple(reader.findings),
        places=reader.places | {"max_output_tokens": "max_tokens"},
        uncarried=tuple(reader.uncarried),
        facts={**facts_of(policy.model), **facts_of_options(policy.extra)},
    )


def facts_of_options(options: Mapping[str, msgspec.Raw]) -> dict[str, object]:
    """Return what the options of a request say of the model.

    Thinking on a budget leads a loop, and no text of the model's own is continued behind it.
    """
    thinking = options.get("thinking")
    match msgspec.json.decode(thinking) if thinking is not None else None:
        case {"type": "enabled"}:
            return {"thinking": "required", "prefill": "unsupported"}
        case _:
            return {}


class _Reader(RequestReader):
    """Reads messages of Anthropic's API."""

    def __init__(self, *, goes_on: bool) -> None:
        super().__init__()
        self._goes_on = goes_on  # whether what came before may stand at the provider
        self._spoken = False  # whether anyone but the system has said something
        self._asked: dict[str, tuple[int, str]] = {}  # the provider's own calls that are open
        self._answered: set[str] = set()

    def system(self, value: object) -> None:
        """Read the text at the top of the request."""
        match value:
            case None | "":
                return
            case str():
                self.say(SYSTEM, Role.SYSTEM, [(Text(text=value), "system")])
            case list():
                self.attempt("system", lambda: self._system(value))
            case _:
                raise InvalidInput(
                    f"system is a string or an array, not {type_name(value)}.",
                    code="wrong_shape",
                    at="system",
                )

    def _system(self, items: list[object]) -> None:
        read = [self._part("system", f"[{n}]", item, Role.SYSTEM) for n, item in enumerate(items)]
        if read:
            placed = [(block, f"system[{number}]") for number, block in enumerate(read)]
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
                "System text that comes first stands in `system`, at the top of the request. Move it there.",
                "role_unsupported",
            )
        self._spoken = True
        if item.get("tool_calls"):
            raise Malformed(".tool_calls", "A call is a block of the content here: a tool_use.")
        content = item.get("content")
        if isinstance(content, str):
            if role is Role.USER:
                self._stop_waiting()
            self.say(MessageId(at), role, [(Text(text=content), at)])
            return
        if not isinstance(content, list):
            raise Malformed(
                ".content", f"Content is a string or an array, not {type_name(content)}."
            )
        self._works(at, role, content)
        read: list[tuple[Block, str]] = []
        for number, part in enumerate(content):
            place = f".content[{number}]"
            read.append((self._part(at, place, part, role), at + place))
            cited = _citations(part) if role is Role.ASSISTANT else None
            if cited is not None:
                read.append((Reasoning(opaque=cited), f"{at}{place}.citations"))
        if not read:
            self.say(MessageId(at), role, [])
        runs = groupby(read, key=lambda placed: type(placed[0]) is ToolResult)
        pieces = [(is_result and role is Role.USER, list(run)) for is_result, run in runs]
        for results, placed in pieces:
            name = MessageId(at if len(pieces) == 1 else placed[0][1])
            self.places[name] = at
            self.say(name, Role.TOOL if results else role, placed)

    def _works(self, at: str, role: Role, content: list[object]) -> None:
        """Hold what the provider did by itself together: each call of its own with its result.

        Both stand in the assistant's turn. While calls of ours are answered, or the model is to
        go on from where it paused, a call of the provider's may still be open.
        """
        for number, part in enumerate(content):
            place = f"{at}.content[{number}]"
            match part:
                case {"type": ("server_tool_use" | "mcp_tool_use"), "id": str(call_id)} if (
                    role is Role.ASSISTANT
                ):
                    self._asked[call_id] = (self._position + number, place)
                case {"type": str(kind), "tool_use_id": str(call_id)} if (
                    role is Role.ASSISTANT and kind != "tool_result" and _is_work(kind)
                ):
                    known = call_id in self._answered or call_id in self._asked
                    self._asked.pop(call_id, None)
                    self._answered.add(call_id)
                    if not known and not self._goes_on:
                        sentence = f"No call {call_id} stands before this result of the provider's."
                        self.find("orphan_tool_result", place, sentence)
                case {"type": "tool_result"}:
                    pass
                case _ if role is Role.USER:
                    self._stop_waiting()
                case _:
                    pass

    def _stop_waiting(self) -> None:
        """The user goes on: what the provider has not answered by now stays open for ever."""
        for call_id, (position, place) in self._asked.items():
            sentence = f"The provider's own call {call_id} has no result. Send both or neither."
            self.findings.append(
                Finding(code="missing_tool_result", at=place, position=position, message=sentence)
            )
        self._asked.clear()

    def _part(self, at: str, place: str, part: object, role: Role) -> Block:
        if not isinstance(part, dict):
            raise Malformed(place, f"A content block is an object, not {type_name(part)}.")
        self.uncarried += (f"{at}{place}.{name}" for name in _beyond(part, role))
        _check_made_there(place, part)
        match part:
            case {"type": "text", "text": str(text)}:
                return Text(text=text)
            case {"type": "image", "source": dict(source)}:
                _check_image(place, source)
                return self._image(at + place, source)
            case {"type": "document", "source": dict(source)}:
                return self._document(at + place, part, source)
            case {"type": str(kind)} if _is_elsewhere(kind, role, place):
                self.uncarried.append(at + place)
                return Text(text=NOT_CARRIED)
            case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": dict(given)}:
                return ToolCall(
                    call_id=CallId(call_id), name=name, arguments=encode(given).decode()
                )
            case {"type": "tool_use", "id": str(), "name": str(), "input": given}:
                raise Malformed(
                    f"{place}.input",
                    f"The input of a call is an object, not {type_name(given)}. Do not encode it as a string.",
                )
            case {"type": "tool_result", "tool_use_id": str(call_id)} if call_id:
                return self._result(at, place, call_id, part)
            case {"type": "thinking", "thinking": str(text)}:
                return Reasoning(text=text, opaque=_signature(part))
            case {"type": "redacted_thinking", "data": str()}:
                return Reasoning(opaque=_state(part))
            case {"type": ("text" | "image" | "document" | "tool_use" | "tool_result") as kind}:
                raise Malformed(place, f"This {kind} block lacks what a block of its kind holds.")
            case {"type": ("thinking" | "redacted_thinking") as kind}:
                raise Malformed(place, f"This {kind} block lacks what a block of its kind holds.")
            case {"type": str(kind)} if role is Role.ASSISTANT and _is_work(kind):
                return Reasoning(opaque=_state(part, work=True))
            case {"type": str(kind)}:
                return Unknown(name=kind, value=msgspec.Raw(encode(part)))
            case _:
                raise Malformed(place, "A content block says its type.")

    def _image(self, at: str, source: Mapping[object, object]) -> Image:
        match source:
            case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
                return Image(media_type=media_type, data=data)
            case {"type": "url", "url": str(url)}:
                return Image(url=url)
            case _:
                self.uncarried.append(at)
                return Image(url=NOT_CARRIED)

    def _document(
        self, at: str, part: Mapping[object, object], source: Mapping[object, object]
    ) -> File:
        title = part.get("title")
        filename = title if isinstance(title, str) else None
        match source:
            case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
                return File(media_type=media_type, data=data, filename=filename)
            case {"type": "text", "data": str(text)}:
                data = base64.b64encode(text.encode()).decode()
                return File(media_type="text/plain", data=data, filename=filename)
            case {"type": "file", "file_id": str(file_id)}:
                return File(file_id=file_id, filename=filename)
            case _:
                self.uncarried.append(at)
                return File(file_id=NOT_CARRIED)

    def _result(
        self, at: str, place: str, call_id: str, part: Mapping[object, object]
    ) -> ToolResult:
        content = part.get("content")
        parts: list[ResultPart] = []
        if isinstance(content, str):
            parts += [Text(text=content)] if content else []
        elif isinstance(content, list):
            if not content:
                self.find(
                    "empty_content",
                    f"{at}{place}.content",
                    "The content of a result may be left out, but not be an empty array.",
                )
            for number, item in enumerate(content):
                inner = f"{place}.content[{number}]"
                block = self._part(at, inner, item, Role.TOOL)
                if isinstance(block, Unknown):
                    self.uncarried.append(at + inner)
                    block = Text(text=NOT_CARRIED)
                if not isinstance(block, ResultPart):
                    raise Malformed(inner, "A result holds text, images and documents.")
                parts.append(block)
                self.inside.setdefault(at + place, []).append(at + inner)
        elif content is not None:
            raise Malformed(
                f"{place}.content", f"Content is a string or an array, not {type_name(content)}."
            )
        failed = part.get("is_error") is True
        return ToolResult(
            call_id=CallId(call_id),
            content=tuple(parts),
            outcome=Outcome.ERROR if failed else Outcome.SUCCESS,
        )

    def hints(self, request: Mapping[str, object]) -> None:
        """Hold the marks for the provider's cache against what it takes of them."""
        marked = [
            found
            for field in ("tools", "system", "messages")
            for found in _marked(field, request.get(field))
        ]
        if len(marked) > MOST_MARKS:
            self.find(
                "too_many_blocks",
                marked[MOST_MARKS][0],
                f"{len(marked)} blocks are marked with cache_control, the provider takes {MOST_MARKS}.",
            )
        lasting = [lasts for _, lasts in marked]
        if False in lasting and True in (behind := lasting[lasting.index(False) :]):
            at, _ = marked[len(lasting) - len(behind) + behind.index(True)]
            sentence = "What is kept for an hour stands before what is kept for less. Mark it so."
            self.find("item_order", at, sentence)

    def tools(self, items: object) -> Iterator[ToolDeclaration]:
        """Yield the declarations of a request."""
        if items is None:
            return
        if not isinstance(items, list):
            raise InvalidInput("tools is an array.", code="wrong_shape", at="tools")
        for number, item in enumerate(items):
            at = f"tools[{number}]"
            match item:
                case {"name": str(name), "input_schema": dict(schema), **more}:
                    described = more.get("description")
                    yield ToolDeclaration(
                        name=name,
                        description=described if isinstance(described, str) else "",
                        parameters=msgspec.Raw(encode(schema)),
                        strict=True if more.get("strict") is True else None,
                    )
                case {"type": str(), "name": str(name)}:
                    self.uncarried.append(at)  # a tool whose schema the provider knows
                    yield ToolDeclaration(name=name)
                case {"type": str(kind)} if kind != "function":
                    self.uncarried.append(at)
                case _:
                    raise InvalidInput(
                        "A tool is declared with a name and an input_schema.",
                        code="wrong_shape",
                        at=at,
                    )


def _policy(request: Mapping[str, object]) -> Policy:
    """Return the options of a request. Those without a setting of ours are passed on as they are."""
    kept = POLICY_FIELDS | HINTS
    extra = {name: value for name, value in request.items() if name not in kept}
    choice, alone = _choice(request.get("tool_choice"))
    return Policy(
        profile=ANTHROPIC.name,
        model=option(request, "model", str) or "",
        max_output_tokens=option(request, "max_tokens", int),
        tool_choice=choice,
        parallel_tool_calls=False if alone else None,
        temperature=option(request, "temperature", float),
        stream=option(request, "stream", bool) or False,
        extra=options(extra),
    )


def _choice(value: object) -> tuple[str | None, bool]:
    """Return a tool choice as we say it, and whether at most one call is wanted."""
    match value:
        case None:
            return None, False
        case {"type": "tool", "name": str(name), **more}:
            choice = f"tool:{name}"
        case {"type": ("auto" | "any" | "none") as word, **more}:
            choice = CHOICES[str(word)]
        case _:
            raise InvalidInput(
                "A tool choice is an object: auto, any, none, or tool with its name.",
                code="wrong_shape",
                at="tool_choice",
            )
    return choice, more.get("disable_parallel_tool_use") is True


def _beyond(part: Mapping[object, object], role: Role) -> Iterator[str]:
    """Yield the fields of a block that mean something and have no place in our graph."""
    known = FIELDS.get(str(part.get("type")))
    if known is None:
        return  # of the kinds that go back as they came, or that nobody knows
    for name, value in part.items():
        cited = name == "citations" and (role is Role.ASSISTANT or not value)
        meant = value not in (None, DIRECT) and name not in HINTS
        if meant and name not in known and not cited:
            yield str(name)


def _citations(part: object) -> Opaque | None:
    """Return what a text cites, as the state that stands behind it."""
    match part:
        case {"type": "text", "citations": [_, *_] as cited}:
            return _state({"type": CITATIONS, "citations": cited})
        case _:
            return None


def _check_made_there(place: str, part: Mapping[object, object]) -> None:
    """Refuse what could not have come from Anthropic itself, of a kind that only it makes."""
    match part:
        case {"type": "thinking" | "redacted_thinking", "cache_control": dict()}:
            raise Malformed(
                f"{place}.cache_control",
                "Thinking cannot be marked for the cache. Mark the block behind it.",
                "block_not_allowed",
            )
        case {"type": "server_tool_use", "id": call_id} if (
            SERVERS_ID.fullmatch(str(call_id)) is None
        ):
            raise Malformed(
                place,
                f"The id of a call that Anthropic carries out has the form {SERVERS_ID.pattern}. Send the "
                "block as it came.",
                "bad_call_id",
            )
        case _:
            pass


def _check_image(place: str, source: Mapping[object, object]) -> None:
    """Refuse an image that begins like one of another type: the provider looks, too."""
    match source:
        case {"type": "base64", "media_type": str(said), "data": str(data)}:
            found = next(
                (kind for kind, begins in BEGINNINGS.items() if data.startswith(begins)), said
            )
            if found != said and said in BEGINNINGS:
                raise Malformed(
                    f"{place}.source.media_type", f"The image is said to be {said}, and is {found}."
                )
        case _:
            pass


def _marked(at: str, value: object) -> Iterator[tuple[str, bool]]:
    """Yield the places below `at` that are marked for the provider's cache, and whether for an hour."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _marked(f"{at}[{number}]", item)
    elif isinstance(value, dict):
        mark = value.get("cache_control")
        if mark is not None:
            yield at, isinstance(mark, dict) and mark.get("ttl") == "1h"
        if isinstance(value.get("content"), list):
            yield from _marked(f"{at}.content", value["content"])


def _is_elsewhere(kind: str, role: Role, place: str) -> bool:
    """Whether a block is legal here and has no place in our graph."""
    match kind:
        case "search_result":
            return role is not Role.ASSISTANT
        case "compaction":
            return role is not Role.ASSISTANT and place == ".content[0]"
        case _:
            return kind == "container_upload" and role is Role.USER


def _is_work(kind: str) -> bool:
    """Whether a block is what the provider did by itself: it goes back as it came."""
    return kind.endswith(("_tool_use", "_tool_result")) or kind in ("compaction", "fallback")


def _signature(part: Mapping[object, object]) -> Opaque | None:
    signature = part.get("signature")
    if not isinstance(signature, str) or not signature:
        return None
    return _state({"type": "thinking", "signature": signature})


def _state(part: Mapping[object, object] | Mapping[str, object], *, work: bool = False) -> Opaque:
    return Opaque(profile=ANTHROPIC.name, value=msgspec.Raw(encode(part)), work=work)
