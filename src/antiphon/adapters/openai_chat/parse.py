"""A client's Chat Completions request as our graph, each block with its place in the request.

Nothing is judged here but shape: what cannot be a message at all becomes a finding, so that
one pass shows everything that is wrong. Fields of a message are taken one by one; what is not
named here is not carried over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.openai_chat.profile import DETAILS, DETAILS_ARE, NOT_IN_NAMES, OPENAIS
from antiphon.adapters.requests.parsing import DATA_URL, Malformed, encode, type_name
from antiphon.adapters.requests.reading import NOT_CARRIED, RequestReader, option, options, role_of
from antiphon.core.blocks import (
    Audio,
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
)
from antiphon.core.ids import CallId, MessageId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.errors import InvalidInput

ROLES: Final[Mapping[str, Role]] = {role.value: role for role in Role}
POLICY_FIELDS: Final = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options"}
    | {"max_tokens", "max_completion_tokens", "temperature", "usage"}
)

IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"})
"""Images that OpenAI takes as data; it goes by what is in them, so a wrong spelling is no harm."""

AUDIO_FORMATS: Final = frozenset({"wav", "mp3"})

MISTRALS: Final = frozenset({"document_url", "input_audio", "reference", "file"})
"""Parts that Mistral takes in a form of its own, and that have no place in our graph."""


def parse(request: Mapping[str, object], dialect: str = "openai-chat") -> Parsed:
    """Return `request` as our graph.

    Reasoning that is plain text is nobody's; state that only its maker can read is `dialect`'s.

    Raises:
        InvalidInput: It has no array of messages, or an option of the wrong type.
    """
    items = request.get("messages")
    if not isinstance(items, list):
        raise InvalidInput(
            "A chat request holds an array called messages.", code="wrong_shape", at="messages"
        )
    reader = _Reader(dialect)
    for number, item in enumerate(items):
        reader.message(f"messages[{number}]", item, last=number == len(items) - 1)
    tools = tuple(reader.tools(request.get("tools")))
    if dialect in OPENAIS:
        reader.needed(request)
    return Parsed(
        messages=tuple(reader.messages),
        tools=tools,
        policy=_policy(request),
        findings=tuple(reader.findings),
        places=reader.places | {"max_output_tokens": _limit(request)},
        uncarried=tuple(reader.uncarried),
        facts=_facts(request, items),
    )


def _facts(request: Mapping[str, object], items: list[object]) -> dict[str, object]:
    """Return what the request itself says of the model that it is meant for."""
    facts: dict[str, object] = {}
    match request.get("thinking"):
        case {"type": "disabled"}:
            facts["reasoning_echo"] = "kept"  # DeepSeek misses it only while thinking
        case _:
            pass
    match items:
        case [*_, {"role": "assistant", "prefix": True}]:
            facts["prefill"] = "supported"  # Mistral's word for: go on from here
        case _:
            pass
    return facts


class _Reader(RequestReader):
    """Reads messages of Chat Completions."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._dialect = dialect

    def message(self, at: str, item: object, *, last: bool = True) -> None:
        """Read one message at `at`."""
        if isinstance(item, dict) and item.get("role") == "function":
            # Still allowed, by its own rules: it names no call, so it answers none of ours.
            self.uncarried.append(at)
            return
        if not self.attempt(at, lambda: self._message(at, item, last=last)):
            self._stand_in(at, item)

    def needed(self, request: Mapping[str, object]) -> None:
        """Hold options against what OpenAI takes them with only."""
        if request.get("tools") == []:
            sentence = "An array of tools holds at least one. Leave it out."
            self.find("bad_option", "tools", sentence, first=True)
        alone = not request.get("tools")
        if alone and request.get("tool_choice") == "auto":  # what more it says is judged anyway
            sentence = "A tool choice is only taken where tools are declared. Leave it out."
            self.find("bad_option", "tool_choice", sentence, first=True)
        if alone and request.get("parallel_tool_calls") is not None:
            sentence = "parallel_tool_calls is only taken where tools are declared. Leave it out."
            self.find("bad_option", "parallel_tool_calls", sentence, first=True)
        if request.get("stream_options") is not None and request.get("stream") is not True:
            sentence = "stream_options is only taken where stream is true. Leave it out."
            self.find("bad_option", "stream_options", sentence, first=True)

    def _answer_for_mistral(
        self, at: str, item: Mapping[str, object], said: Iterable[Block], *, last: bool
    ) -> None:
        """Hold an assistant's message against what only Mistral asks of one."""
        if not last and item.get("prefix") is True:
            sentence = "Only the last message may be a prefix, from where the model goes on."
            self.find("role_order", f"{at}.prefix", sentence)
        if all(isinstance(block, Text) and not block.text for block in said):
            sentence = "An assistant's message has content or calls here. Leave this one out."
            self.find("empty_content", at, sentence)

    def _stand_in(self, at: str, item: object) -> None:
        """Let a result that cannot be read answer its call: it is wrong, not missing."""
        match item:
            case {"role": "tool", "tool_call_id": str(call_id)} if call_id and any(
                call.call_id == call_id for message in self.messages for call in message.calls
            ):
                self.message(at, {"role": "tool", "tool_call_id": call_id, "content": ""})
            case _:
                pass

    def _message(self, at: str, item: object, *, last: bool) -> None:
        if not isinstance(item, dict):
            raise Malformed("", f"A message is an object, not {type_name(item)}.")
        if not isinstance(item.get("role"), str):
            raise Malformed("", "A message says its role.")
        role = role_of(item, ROLES)
        name = item.get("name")
        placed: list[tuple[Block, str]]
        if role is Role.TOOL:
            placed = [(self._result(at, item), at)]
        else:
            placed = list(self._said(at, role, item))
        if name is not None and not isinstance(name, str):
            raise Malformed(".name", f"A name is a string, not {type_name(name)}.")
        if name is not None and self._dialect in OPENAIS and NOT_IN_NAMES.search(name or " "):
            raise Malformed(".name", "A name has no spaces here, and none of < | \\ / >.")
        if self._dialect == "mistral" and role is Role.ASSISTANT:
            self._answer_for_mistral(at, item, (block for block, _ in placed), last=last)
        self.say(MessageId(at), role, placed, author=None if role is Role.TOOL else name)

    def _said(self, at: str, role: Role, item: Mapping[str, object]) -> Iterator[tuple[Block, str]]:
        if role is Role.ASSISTANT:
            yield from self._thought(at, item)
        content, calls = item.get("content"), item.get("tool_calls")
        refusal = item.get("refusal")
        if isinstance(content, str):
            yield Text(text=content), at
        elif isinstance(content, list):
            for number, part in enumerate(content):
                yield self._part(at, f".content[{number}]", part), f"{at}.content[{number}]"
        elif content is not None:
            raise Malformed(
                ".content", f"Content is a string or an array, not {type_name(content)}."
            )
        elif role is not Role.ASSISTANT:
            raise Malformed("", f"A {role} message has content.")
        if isinstance(refusal, str):
            yield Refusal(text=refusal), f"{at}.refusal"
        if role is Role.ASSISTANT and item.get("audio") is not None:
            self.uncarried.append(f"{at}.audio")
            yield Text(text=""), f"{at}.audio"
        if role is Role.ASSISTANT and item.get("function_call") is not None:
            self.uncarried.append(f"{at}.function_call")
            yield Text(text=""), f"{at}.function_call"
        if calls is None:
            return
        if role is not Role.ASSISTANT:
            raise Malformed(".tool_calls", "Only the assistant asks for tool calls.")
        if not isinstance(calls, list) or not calls:
            raise Malformed(".tool_calls", "tool_calls is an array with at least one call.")
        for number, call in enumerate(calls):
            yield self._call(at, number, call), f"{at}.tool_calls[{number}]"

    def _thought(self, at: str, item: Mapping[str, object]) -> Iterator[tuple[Block, str]]:
        for field in ("reasoning_content", "reasoning"):
            thinking = item.get(field)
            if isinstance(thinking, str):
                break
        else:
            thinking = None
        details = item.get("reasoning_details")
        if isinstance(details, list) and details:
            state = Opaque(profile=self._dialect, value=msgspec.Raw(encode(details)))
            yield Reasoning(text=_text(thinking) or "", opaque=state), f"{at}.reasoning_details"
        elif isinstance(thinking, str):
            yield Reasoning(text=thinking), f"{at}.{field}"

    def _part(self, at: str, place: str, part: object) -> Block:
        if not isinstance(part, dict):
            raise Malformed(place, f"A content part is an object, not {type_name(part)}.")
        match part:
            case {"type": "text", "text": str(text)}:
                return Text(text=text)
            case {"type": "refusal", "refusal": str(text)}:
                return Refusal(text=text)
            case {"type": "thinking", "thinking": list() | str() as thoughts}:
                return Reasoning(text=_thinking(thoughts))
            case {"type": "image_url", "image_url": {"url": str(url), **more}}:
                return self._image(place, url, _text(more.get("detail")))
            case {"type": "image_url", "image_url": str(url)} if self._dialect not in OPENAIS:
                return self._image(place, url, None)
            case {"type": str(kind)} if self._dialect == "mistral" and kind in MISTRALS:
                self.uncarried.append(at + place)
                return Text(text=NOT_CARRIED)
            case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
                if self._dialect in OPENAIS and form not in AUDIO_FORMATS:
                    known = ", ".join(sorted(AUDIO_FORMATS))
                    raise Malformed(place, f"Sound is {known} here.", "block_not_allowed")
                return Audio(data=data, format=form)
            case {"type": "file", "file": {"file_data": str(url)}} if (
                self._dialect == "openrouter" and url.startswith(("https://", "http://"))
            ):
                self.uncarried.append(at + place)
                return File(file_id=NOT_CARRIED)
            case {"type": "file", "file": dict(file)} if file.get("file_id") or file.get(
                "file_data"
            ):
                return _file(file)
            case {"type": ("text" | "refusal" | "image_url" | "input_audio" | "file") as kind}:
                raise Malformed(place, f"This {kind} part lacks what a part of its kind holds.")
            case {"type": str(kind)}:
                return Unknown(name=kind, value=msgspec.Raw(encode(part)))
            case _:
                raise Malformed(place, "A content part says its type.")

    def _image(self, place: str, url: str, detail: str | None) -> Image:
        image = _image(url, detail)
        if self._dialect in OPENAIS and detail not in DETAILS:
            raise Malformed(f"{place}.image_url.detail", DETAILS_ARE)
        known = image.data is None or image.media_type in IMAGE_TYPES
        if self._dialect in OPENAIS and not known:
            what = f"Images are png, jpeg, gif or webp here, not {image.media_type}."
            raise Malformed(place, what, "block_not_allowed")
        return image

    def _call(self, at: str, number: int, call: object) -> ToolCall:
        place = f".tool_calls[{number}]"
        match call:
            case {"function": {"arguments": str()}, **said} if (
                self._dialect in OPENAIS and said.get("type") != "function"
            ):
                raise Malformed(place, "A call of a function says that it is one, in type.")
            case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
                return ToolCall(call_id=CallId(call_id), name=name, arguments=arguments)
            case {"id": str(call_id), "custom": {"name": str(name), "input": str(text)}}:
                self.uncarried.append(at + place)
                return ToolCall(call_id=CallId(call_id), name=name, arguments=encode(text).decode())
            case {
                "id": str(call_id),
                "function": {"name": str(name), "arguments": dict(given)},
            } if self._dialect == "mistral":
                arguments = encode(given).decode()
                return ToolCall(call_id=CallId(call_id), name=name, arguments=arguments)
            case {"function": {"arguments": value}} if not isinstance(value, str):
                raise Malformed(
                    f"{place}.function.arguments",
                    f"Arguments are JSON as a string, not {type_name(value)}. Encode them once more.",
                )
            case _:
                raise Malformed(
                    place, "A tool call has an id, and a function with name and arguments."
                )

    def _result(self, at: str, item: Mapping[str, object]) -> ToolResult:
        call_id, content = item.get("tool_call_id"), item.get("content")
        if not isinstance(call_id, str) or not call_id:
            raise Malformed("", "A tool message names the call that it answers, in tool_call_id.")
        parts: list[ResultPart] = []
        if isinstance(content, str):
            parts.append(Text(text=content))
        elif isinstance(content, list):
            if not content:
                raise Malformed(
                    ".content", "An array of content holds at least one part.", "empty_content"
                )
            for number, part in enumerate(content):
                place = f".content[{number}]"
                block = self._part(at, place, part)
                if not isinstance(block, ResultPart):
                    known = not isinstance(block, Unknown)
                    code = "block_not_allowed" if known else "malformed_item"
                    raise Malformed(place, "A tool result holds text parts.", code)
                parts.append(block)
                self.inside.setdefault(at, []).append(at + place)
        else:
            raise Malformed(".content", f"A tool result has content, not {type_name(content)}.")
        return ToolResult(call_id=CallId(call_id), content=tuple(parts))

    def tools(self, items: object) -> Iterator[ToolDeclaration]:
        """Yield the declarations of a request."""
        if items is None:
            return
        if not isinstance(items, list):
            raise InvalidInput("tools is an array.", code="wrong_shape", at="tools")
        for number, item in enumerate(items):
            at = f"tools[{number}]"
            match item:
                case {"function": {"name": str(name), **more}}:
                    parameters = more.get("parameters")
                    yield ToolDeclaration(
                        name=name,
                        description=_text(more.get("description")) or "",
                        strict=True if more.get("strict") is True else None,
                        **(
                            {}
                            if parameters is None
                            else {"parameters": msgspec.Raw(encode(parameters))}
                        ),
                    )
                case {"custom": {"name": str()}}:
                    self.uncarried.append(at)
                case _:
                    raise InvalidInput(
                        "A tool is declared as a function with a name.", code="wrong_shape", at=at
                    )


def _policy(request: Mapping[str, object]) -> Policy:
    """Return the options of a request. Those without a setting of ours are passed on as they are."""
    extra = {name: value for name, value in request.items() if name not in POLICY_FIELDS}
    choice = request.get("tool_choice")
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            choice = f"tool:{name}"
        case dict():
            extra["tool_choice"], choice = choice, None
        case "any":
            choice = "required"  # Mistral's older word
        case _:
            pass
    return Policy(
        model=option(request, "model", str) or "",
        max_output_tokens=option(request, _limit(request), int),
        tool_choice=option({"tool_choice": choice}, "tool_choice", str),
        parallel_tool_calls=option(request, "parallel_tool_calls", bool),
        temperature=option(request, "temperature", float),
        stream=option(request, "stream", bool) or False,
        extra=options(extra),
    )


def _limit(request: Mapping[str, object]) -> str:
    """Return the name by which a request says how long its answer may be."""
    return next((name for name in LIMITS if request.get(name) is not None), LIMITS[0])


LIMITS: Final = ("max_completion_tokens", "max_tokens")
"""Most tokens of the answer, by its newer and its older name; the newer one counts."""


def _thinking(thoughts: list[object] | str) -> str:
    """Return what Mistral's part of thinking says: its texts, or one text."""
    if isinstance(thoughts, str):
        return thoughts
    return "".join(_text(part.get("text")) or "" for part in thoughts if isinstance(part, dict))


def _image(url: str, detail: str | None) -> Image:
    match = DATA_URL.fullmatch(url)
    if match is None:
        return Image(url=url, detail=detail)
    return Image(media_type=match[1], data=match[2], detail=detail)


def _file(file: Mapping[object, object]) -> File:
    data = _text(file.get("file_data"))
    match = DATA_URL.fullmatch(data) if data else None
    return File(
        file_id=_text(file.get("file_id")),
        filename=_text(file.get("filename")),
        media_type=match[1] if match else None,
        data=match[2] if match else data,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
