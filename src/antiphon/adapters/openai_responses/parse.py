"""A client's Responses request as our graph, each block with its place in the request.

Nothing is judged here but shape: what cannot be an item at all becomes a finding, so that one
pass shows everything that is wrong. Items that stand together and are the model's become one
message, as one answer had made them. What a request only names, because the provider keeps it,
is legal and cannot be carried; outputs that may answer a call in there are no orphans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.openai_responses.head import ENCRYPTED
from antiphon.adapters.openai_responses.items import ITEM_ID, State
from antiphon.adapters.openai_responses.profile import OPENAI_RESPONSES
from antiphon.adapters.requests.parsing import DATA_URL, Malformed, encode, type_name
from antiphon.adapters.requests.reading import NOT_CARRIED, RequestReader, option, options, role_of
from antiphon.core.blocks import (
    Block,
    File,
    Image,
    Opaque,
    Reasoning,
    Refusal,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    block_id,
)
from antiphon.core.ids import CallId, MessageId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.errors import InvalidInput

INSTRUCTIONS: Final = MessageId("instructions")
ROLES: Final[Mapping[str, Role]] = {
    word.value: word for word in (Role.USER, Role.ASSISTANT, Role.SYSTEM, Role.DEVELOPER)
}
KEPT_THERE: Final = ("previous_response_id", "conversation", "prompt")
"""Fields that name what the provider keeps, instead of sending it."""

POLICY_FIELDS: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream"}
    | {"max_output_tokens", "temperature", "stream_options", "background", *KEPT_THERE}
)
SETTINGS: Final = frozenset({"additional_tools", "configuration_update", "compaction_trigger"})
"""Items that say nothing, and change what is asked for."""

IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"})
"""Images that are taken as data; OpenAI goes by what is in them, so a wrong spelling is no harm."""

DETAILS: Final = frozenset({None, "auto", "low", "high", "original"})

ELSEWHERE: Final = "not_carried"
"""Stands for the tool of a call that is not in the request."""

WORK: Final = frozenset(
    {"file_search_call", "web_search_call", "image_generation_call", "code_interpreter_call"}
    | {"mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"}
    | {"tool_search_call", "tool_search_output", "compaction", "program", "program_output"}
    | {"item_reference"}
)
"""Items of what the provider does by itself, or keeps: they go back as they came."""

CLIENTS_OWN: Final = frozenset(
    {"custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Calls for the client that are none of a function; each has an output named like it."""


def parse(request: Mapping[str, object]) -> Parsed:
    """Return `request` as our graph.

    Raises:
        InvalidInput: Its input is neither text nor an array, or an option is of the wrong type.
    """
    reader = _Reader()
    reader.instructions(request.get("instructions"))
    given = request.get("input")
    match given:
        case str():
            reader.message("input", {"role": "user", "content": given})
        case list():
            for number, item in enumerate(given):
                reader.message(f"input[{number}]", item, last=number == len(given) - 1)
        case None:
            pass
        case _:
            raise InvalidInput(
                f"input is a string or an array, not {type_name(given)}.",
                code="wrong_shape",
                at="input",
            )
    kept = [name for name in KEPT_THERE if request.get(name) is not None]
    reader.finish(kept, said=given not in (None, []))
    tools = tuple(reader.tools(request.get("tools")))
    return Parsed(
        messages=tuple(reader.messages),
        tools=tools,
        policy=_policy(request),
        findings=tuple(reader.findings),
        places=reader.places,
        uncarried=tuple(reader.uncarried),
    )


class _Reader(RequestReader):
    """Reads items of a Responses request; what the model said in a row is one message."""

    def __init__(self) -> None:
        super().__init__()
        self._group: list[tuple[Block, str]] | None = None  # of the model, not whole yet
        self._group_at = ""
        self._named = False  # whether an item only names what the provider keeps
        self._asked: dict[str, str] = {}  # the kinds of the calls that were read
        self._approvals: dict[str, str] = {}  # what was approved before it was asked for, and where

    def instructions(self, value: object) -> None:
        """Read the text that stands before the input."""
        if isinstance(value, str) and value:
            self.say(INSTRUCTIONS, Role.SYSTEM, [(Text(text=value), "instructions")])
        elif isinstance(value, list) and value:
            self.uncarried.append("instructions")
        elif value and not isinstance(value, str):
            raise InvalidInput(
                f"instructions is a string, not {type_name(value)}.",
                code="wrong_shape",
                at="instructions",
            )

    def message(self, at: str, item: object, *, last: bool = True) -> None:
        """Read one item at `at`."""
        if not self.attempt(at, lambda: self._item(at, item, last=last)):
            self._stand_in(at, item)

    def finish(self, kept: Sequence[str], *, said: bool) -> None:
        """End the last group, and take account of what the provider keeps, by these fields."""
        self._flush()
        self.uncarried += kept
        if "previous_response_id" in kept and "conversation" in kept:
            self.find(
                "malformed_item",
                "previous_response_id",
                "A request goes on from a response or in a conversation, not both. Name one.",
                first=True,
            )
        if kept or self._named:
            self._stand_for_what_is_kept(kept)
        elif self._approvals:
            asked, at = next(iter(self._approvals.items()))
            self.find("orphan_tool_result", at, f"Nothing here asks for the approval {asked}.")
        elif not said:
            self.find(
                "empty_sequence", "input", "There is nothing to answer. Give the user's message."
            )
        self._point_at_open_calls()

    def _stand_in(self, at: str, item: object) -> None:
        """Let a result that cannot be read answer its call: it is wrong, not missing."""
        match item:
            case {"type": "function_call_output", "call_id": str(call_id)} if call_id:
                self._flush()
                self.say(MessageId(at), Role.TOOL, [(ToolResult(call_id=CallId(call_id)), at)])
            case _:
                pass

    def _stand_for_what_is_kept(self, kept: Sequence[str]) -> None:
        """Put one message first, for all that the provider keeps: it makes the calls answered here."""
        made = {call.call_id for message in self.messages for call in message.calls}
        answered = (r.call_id for message in self.messages for r in message.results)
        orphans = [call_id for call_id in dict.fromkeys(answered) if call_id not in made]
        calls: list[Block] = [ToolCall(call_id=c, name=ELSEWHERE, arguments="{}") for c in orphans]
        if not calls and self.messages:
            return
        stands = kept[0] if kept else "input"
        before = self.messages
        self.messages = []
        self.say(MessageId(stands), Role.ASSISTANT, [(b, stands) for b in calls or [_work({})]])
        first = self.messages[0].id
        for message in before[:1]:
            self.messages.append(msgspec.structs.replace(message, parent=first))
        self.messages += before[1:]

    def _point_at_open_calls(self) -> None:
        """Let what is said of a message of calls be said at the first that has no result."""
        answered = {r.call_id for message in self.messages for r in message.results}
        for message in self.messages:
            calls = [n for n, block in enumerate(message.blocks) if isinstance(block, ToolCall)]
            open_ones = [n for n in calls if message.blocks[n].call_id not in answered]  # type: ignore[union-attr]
            for order in (open_ones or calls)[:1]:
                self.places[message.id] = self.places[block_id(message.id, order)]

    # Items.

    def _item(self, at: str, item: object, *, last: bool) -> None:
        if not isinstance(item, dict):
            raise Malformed("", f"An item is an object, not {type_name(item)}.")
        name = item.get("id")
        if isinstance(name, str) and ITEM_ID.fullmatch(name) is None:
            self.find(
                "malformed_item",
                f"{at}.id",
                "The id of an item has 1 to 64 letters, digits, _ and -. Send it without one.",
            )
        match item.get("type", "message" if "role" in item else "item_reference"):
            case "message":
                self._message(at, item)
            case "function_call":
                call = self._call(at, item)
                self._asked[call.call_id] = "function_call"
                self._add(at, call)
            case "function_call_output":
                self._flush()
                self._answers_its_like(at, str(item.get("call_id")), "function_call_output")
                self.say(MessageId(at), Role.TOOL, [(self._result(at, item), at)])
            case "reasoning":
                self._add(at, _reasoning(item))
            case "item_reference" if not isinstance(item.get("id"), str):
                raise Malformed("", "An item says its type, and a message its role.")
            case str(kind) if kind in WORK:
                self._named = self._named or kind == "item_reference"
                if kind == "item_reference" or kind.startswith("mcp_approval"):
                    self.uncarried.append(at)
                self._approval(at, item)
                self._add(at, _work(item))
            case str(kind) if kind.removesuffix("_output") in CLIENTS_OWN:
                self._clients_own(at, item, kind)
            case str(kind) if kind in SETTINGS:
                self._setting(at, item, kind, last=last)
            case str(kind):
                self._add(at, Unknown(name=kind, value=msgspec.Raw(encode(item))))
            case _:
                raise Malformed("", "The type of an item is a string.")

    def _message(self, at: str, item: Mapping[str, object]) -> None:
        role = role_of(item, ROLES)
        if item.get("tool_calls"):
            raise Malformed(
                ".tool_calls",
                "A call is an item of its own here: a function_call behind the message.",
            )
        content = item.get("content")
        state = _state(item) if role is Role.ASSISTANT else None
        placed: list[tuple[Block, str]]
        if isinstance(content, str):
            placed = [(Text(text=content, opaque=state), at)]
        elif isinstance(content, list):
            placed = [
                (self._part(at, f".content[{number}]", part, role, state), at)
                for number, part in enumerate(content)
            ]
            if len(placed) > 1 or role is not Role.ASSISTANT:
                placed = [(b, f"{at}.content[{n}]") for n, (b, _) in enumerate(placed)]
        else:
            raise Malformed(
                ".content", f"Content is a string or an array, not {type_name(content)}."
            )
        if role is Role.ASSISTANT:
            for block, place in placed:
                self._add(place, block)
            if not placed:
                self._begin(at)
        else:
            self._flush()
            self.say(MessageId(at), role, placed)

    def _part(
        self, at: str, place: str, part: object, role: Role, state: Opaque | None = None
    ) -> Block:
        if not isinstance(part, dict):
            raise Malformed(place, f"A content part is an object, not {type_name(part)}.")
        kind = part.get("type")
        models = kind in ("output_text", "refusal")
        if isinstance(kind, str) and models is not (role is Role.ASSISTANT):
            known = kind.startswith("input_") or models
            if known:
                raise Malformed(
                    place,
                    f"No {role} message holds {kind}: what the model says is "
                    "output_text and refusal, what it is told is input_text, input_image, input_file.",
                    "block_not_allowed",
                )
        match part:
            case {"type": "input_text", "text": str(text)}:
                return Text(text=text)
            case {"type": "output_text", "text": str(text)}:
                return Text(text=text, opaque=state)
            case {"type": "refusal", "refusal": str(text)}:
                return Refusal(text=text)
            case {"type": "input_image", "image_url": str(url), **more}:
                return _image(place, url, more.get("detail"))
            case {"type": "input_image", "file_id": str()}:
                self.uncarried.append(at + place)
                return Image(url=NOT_CARRIED)
            case {"type": "input_file", "file_url": str()}:
                self.uncarried.append(at + place)
                return File(file_id=NOT_CARRIED)
            case {"type": "input_file", **fields} if fields.get("file_id") or fields.get(
                "file_data"
            ):
                return _file(fields)
            case {
                "type": ("input_text" | "output_text" | "refusal" | "input_image" | "input_file")
            }:
                raise Malformed(place, f"This {kind} part lacks what a part of its kind holds.")
            case {"type": str(name)}:
                return Unknown(name=name, value=msgspec.Raw(encode(part)))
            case _:
                raise Malformed(place, "A content part says its type.")

    def _call(self, at: str, item: Mapping[str, object]) -> ToolCall:
        match item:
            case {"call_id": str(call_id), "name": str(name), "arguments": str(arguments)}:
                return ToolCall(
                    call_id=CallId(call_id), name=name, arguments=arguments, opaque=_state(item)
                )
            case {"arguments": value} if not isinstance(value, str):
                raise Malformed(
                    ".arguments",
                    f"Arguments are JSON as a string, not {type_name(value)}. Encode them once more.",
                )
            case _:
                raise Malformed("", "A function_call has call_id, name and arguments.")

    def _result(self, at: str, item: Mapping[str, object]) -> ToolResult:
        call_id, output = item.get("call_id"), item.get("output")
        if not isinstance(call_id, str) or not call_id:
            raise Malformed("", "An output names the call that it answers, in call_id.")
        parts: list[ResultPart] = []
        if isinstance(output, str):
            parts.append(Text(text=output))
        elif isinstance(output, list):
            for number, part in enumerate(output):
                place = f".output[{number}]"
                block = self._part(at, place, part, Role.TOOL)
                if not isinstance(block, ResultPart):
                    raise Malformed(place, "An output holds text, images and files.")
                parts.append(block)
                self.inside.setdefault(at, []).append(at + place)
        else:
            raise Malformed(
                ".output", f"An output is a string or an array, not {type_name(output)}."
            )
        return ToolResult(call_id=CallId(call_id), content=tuple(parts))

    def _approval(self, at: str, item: Mapping[str, object]) -> None:
        match item:
            case {"type": "mcp_approval_request", "id": str(asked)}:
                self._asked[asked] = "mcp_approval_request"
            case {"type": "mcp_approval_response", "approval_request_id": str(asked)}:
                if asked not in self._asked:
                    self._approvals[asked] = at
            case _:
                pass

    def _clients_own(self, at: str, item: Mapping[str, object], kind: str) -> None:
        """Read a call that is none of a function, or its output: paired like one."""
        self.uncarried.append(at)
        call_id = item.get("call_id")
        if kind == "local_shell_call_output" and call_id is None:
            call_id = item.get("id")  # as its published type has it
        if not isinstance(call_id, str) or not call_id:
            raise Malformed("", f"A {kind} names its call, in call_id.")
        if kind.endswith("_output"):
            self._flush()
            self._answers_its_like(at, call_id, kind)
            result = ToolResult(call_id=CallId(call_id), content=(Text(text=NOT_CARRIED),))
            self.say(MessageId(at), Role.TOOL, [(result, at)])
        else:
            self._asked[call_id] = kind
            arguments = encode(item).decode()
            self._add(
                at,
                ToolCall(
                    call_id=CallId(call_id), name=kind, arguments=arguments, opaque=_state(item)
                ),
            )

    def _answers_its_like(self, at: str, call_id: str, kind: str) -> None:
        """Hold an output against its call: those of one kind answer calls of that kind."""
        asked = self._asked.get(call_id)
        if asked is not None and kind.removesuffix("_output") != asked:
            self.find("tool_mismatch", at, f"A {kind} cannot answer {call_id}, which is a {asked}.")

    def _setting(self, at: str, item: Mapping[str, object], kind: str, *, last: bool) -> None:
        self.uncarried.append(at)
        if kind == "compaction_trigger" and not last:
            raise Malformed("", "A compaction_trigger is the last item of all.", "item_order")
        if kind == "additional_tools" and item.get("role", "developer") != "developer":
            raise Malformed(
                "", "Additional tools come from the developer only.", "role_unsupported"
            )

    # Messages.

    def _begin(self, at: str) -> list[tuple[Block, str]]:
        if self._group is None:
            self._group, self._group_at = [], at.partition(".")[0]
        return self._group

    def _add(self, at: str, block: Block) -> None:
        self._begin(at).append((block, at))

    def _flush(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            self.say(MessageId(self._group_at), Role.ASSISTANT, group)

    def tools(self, declared: object) -> Iterator[ToolDeclaration]:
        """Yield the declarations of a request."""
        if declared is None:
            return
        if not isinstance(declared, list):
            raise InvalidInput("tools is an array.", code="wrong_shape", at="tools")
        for number, item in enumerate(declared):
            at = f"tools[{number}]"
            match item:
                case {"type": "function", "name": str(name), **more}:
                    described, parameters = more.get("description"), more.get("parameters")
                    strict = more.get("strict")
                    shape = (
                        {}
                        if parameters is None
                        else {"parameters": msgspec.Raw(encode(parameters))}
                    )
                    yield ToolDeclaration(
                        name=name,
                        description=described if isinstance(described, str) else "",
                        strict=strict if isinstance(strict, bool) else None,
                        **shape,
                    )
                case {"type": "function"}:
                    raise InvalidInput(
                        "A function is declared with its name beside its type, not in an object.",
                        code="wrong_shape",
                        at=at,
                    )
                case {"type": str()}:
                    self.uncarried.append(at)
                case _:
                    raise InvalidInput("A tool says its type.", code="wrong_shape", at=at)


def _policy(request: Mapping[str, object]) -> Policy:
    """Return the options of a request. Those without a setting of ours are passed on as they are."""
    extra = {name: value for name, value in request.items() if name not in POLICY_FIELDS}
    _leave_out_the_usual(extra)
    choice = request.get("tool_choice")
    match choice:
        case {"type": "function", "name": str(name)}:
            choice = f"tool:{name}"
        case dict():
            extra["tool_choice"], choice = choice, None
        case _:
            pass
    return Policy(
        profile=OPENAI_RESPONSES.name,
        model=option(request, "model", str) or "",
        max_output_tokens=option(request, "max_output_tokens", int),
        tool_choice=option({"tool_choice": choice}, "tool_choice", str),
        parallel_tool_calls=option(request, "parallel_tool_calls", bool),
        temperature=option(request, "temperature", float),
        stream=option(request, "stream", bool) or False,
        extra=options(extra),
    )


def _leave_out_the_usual(extra: dict[str, object]) -> None:
    """Take away what every request of ours says anyway."""
    if extra.get("truncation") == "disabled":
        del extra["truncation"]
    asked = extra.get("include")
    if isinstance(asked, list) and ENCRYPTED in asked:
        asked = [name for name in asked if name != ENCRYPTED]
        extra["include"] = asked
    if asked == []:
        del extra["include"]


def _state(item: Mapping[str, object]) -> Opaque | None:
    """Return what goes back with a text or a call, or nothing where it came without."""
    name, phase = item.get("id"), item.get("phase")
    state = State(
        id=name if isinstance(name, str) else None, phase=phase if isinstance(phase, str) else None
    )
    if state == State():
        return None
    return Opaque(profile=OPENAI_RESPONSES.name, value=msgspec.Raw(encode(state)))


def _reasoning(item: Mapping[str, object]) -> Reasoning:
    """Return an item of reasoning, its words for people, all of it to go back as it came."""
    if not isinstance(item.get("summary"), list) and not isinstance(item.get("content"), list):
        raise Malformed("", "A reasoning item holds a summary, be it an empty array.")
    parts = [
        part.get("text")
        for name in ("summary", "content")
        for part in (item.get(name) or ())  # type: ignore[attr-defined]  # one of them is a list
        if isinstance(part, dict)
    ]
    words = "\n\n".join(text for text in parts if isinstance(text, str))
    kept = Opaque(profile=OPENAI_RESPONSES.name, value=msgspec.Raw(encode(item)))
    return Reasoning(text=words, opaque=kept)


def _work(item: Mapping[str, object]) -> Reasoning:
    kept = Opaque(profile=OPENAI_RESPONSES.name, value=msgspec.Raw(encode(item)), work=True)
    return Reasoning(opaque=kept)


def _image(place: str, url: str, detail: object) -> Image:
    match = DATA_URL.fullmatch(url)
    seen = detail if isinstance(detail, str) else None
    if seen not in DETAILS:
        raise Malformed(f"{place}.detail", "The detail of an image is auto, low, high or original.")
    if match is None:
        return Image(url=url, detail=seen)
    if match[1] not in IMAGE_TYPES:
        what = f"Images are png, jpeg, gif or webp here, not {match[1]}."
        raise Malformed(place, what, "block_not_allowed")
    return Image(media_type=match[1], data=match[2], detail=seen)


def _file(fields: Mapping[object, object]) -> File:
    name, data, filename = (fields.get(k) for k in ("file_id", "file_data", "filename"))
    match = DATA_URL.fullmatch(data) if isinstance(data, str) else None
    whole = match[2] if match else data
    return File(
        file_id=name if isinstance(name, str) else None,
        filename=filename if isinstance(filename, str) else None,
        media_type=match[1] if match else None,
        data=whole if isinstance(whole, str) else None,
    )
