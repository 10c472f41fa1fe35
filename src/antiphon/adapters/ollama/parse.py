"""A client's request to Ollama's chat API as our graph, each block with its place in the request.

Nothing is judged here but shape. The wire needs no ids of calls: a result without one belongs to
the first open call of the tool that it names, or of any, as the templates read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.ollama.head import OWN_FIELDS, OWN_SAMPLING, SAMPLING
from antiphon.adapters.ollama.profile import OLLAMA
from antiphon.adapters.ollama.read import THOUGHT
from antiphon.adapters.requests.parsing import Malformed, encode, type_name
from antiphon.adapters.requests.reading import RequestReader, option, options, role_of
from antiphon.core.blocks import (
    Block,
    Image,
    Opaque,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from antiphon.core.ids import CallId, MessageId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.errors import InvalidInput

ROLES: Final = {role.value: role for role in Role if role in OLLAMA.roles}

Fields = Mapping[str, object]


def parse(request: Fields) -> Parsed:
    """Return `request` as our graph.

    Raises:
        InvalidInput: It has no array of messages, or an option of the wrong type.
    """
    items = request.get("messages")
    if not isinstance(items, list):
        raise InvalidInput(
            "A chat request holds an array called messages.", code="wrong_shape", at="messages"
        )
    reader = _Reader(option(request, "model", str))
    for number, item in enumerate(items):
        reader.message(f"messages[{number}]", item)
    return Parsed(
        messages=tuple(reader.messages),
        tools=tuple(_tools(request.get("tools"))),
        policy=_policy(request),
        findings=tuple(reader.findings),
        places=reader.places,
    )


class _Reader(RequestReader):
    """Reads messages, and remembers which calls are open."""

    def __init__(self, model: str | None) -> None:
        super().__init__()
        self._thought = Opaque(profile=OLLAMA.name, value=THOUGHT, model=model)
        self._open: dict[CallId, str] = {}

    def message(self, at: str, item: object) -> None:
        """Read one message at `at`."""
        self.attempt(at, lambda: self._message(at, item))

    def _message(self, at: str, item: object) -> None:
        if not isinstance(item, dict):
            raise Malformed("", f"A message is an object, not {type_name(item)}.")
        role = role_of(item, ROLES)
        content = item.get("content")
        if content is not None and not isinstance(content, str):
            raise Malformed(".content", f"Content is a string, not {type_name(content)}.")
        if role is Role.TOOL:
            shown = list(self._images(at, item.get("images")))
            self.inside[at] = [at, *(place for _, place in shown)][0 if content else 1 :]
            images = tuple(image for image, _ in shown)
            self.say(MessageId(at), role, [(self._result(item, content or "", images), at)])
            return
        placed: list[tuple[Block, str]] = []
        thinking = item.get("thinking")
        if isinstance(thinking, str) and thinking:
            placed.append((Reasoning(text=thinking, opaque=self._thought), f"{at}.thinking"))
        if content:
            placed.append((Text(text=content), at))
        placed += self._images(at, item.get("images"))
        placed += self._calls(at, item.get("tool_calls"))
        if not placed and content is not None:
            placed.append((Text(text=""), at))
        self.say(MessageId(at), role, placed)

    def _images(self, at: str, items: object) -> Iterator[tuple[Image, str]]:
        if items is not None and not isinstance(items, list):
            raise Malformed(".images", f"Images are an array, not {type_name(items)}.")
        for number, item in enumerate(items or ()):
            place = f".images[{number}]"
            if not isinstance(item, str):
                raise Malformed(place, f"An image is base64 in a string, not {type_name(item)}.")
            if item.startswith(("http://", "https://", "data:")):
                raise Malformed(place, "An image is bare base64 here, and no address.")
            yield Image(data=item), at + place

    def _calls(self, at: str, items: object) -> Iterator[tuple[Block, str]]:
        if items is not None and not isinstance(items, list):
            raise Malformed(".tool_calls", f"Calls are an array, not {type_name(items)}.")
        for number, item in enumerate(items or ()):
            place = f".tool_calls[{number}]"
            match item:
                case {"function": {"name": str(name), "arguments": dict(given)}, **more}:
                    pass
                case {"function": {"name": str(name)} as function, **more} if (
                    "arguments" not in function
                ):
                    given = {}
                case {"function": {"name": str(), "arguments": given}}:
                    raise Malformed(
                        f"{place}.function.arguments",
                        f"The arguments of a call are an object, not {type_name(given)}. "
                        "Do not encode them as a string.",
                    )
                case _:
                    raise Malformed(place, "A call has a function with a name.")
            stated = more.get("id")
            call_id = CallId(stated if isinstance(stated, str) and stated else f"{at}{place}")
            self._open[call_id] = name
            yield ToolCall(call_id=call_id, name=name, arguments=encode(given).decode()), at + place

    def _result(
        self, item: Mapping[object, object], content: str, images: tuple[Image, ...]
    ) -> ToolResult:
        name, stated = item.get("tool_name", item.get("name")), item.get("tool_call_id")
        tool = name if isinstance(name, str) and name else None
        if isinstance(stated, str) and stated:
            call_id = CallId(stated)
        else:
            fitting = (c for c, of in self._open.items() if tool is None or of == tool)
            call_id = next(fitting, CallId(tool or ""))
        self._open.pop(call_id, None)
        parts = (Text(text=content),) if content else ()
        return ToolResult(call_id=call_id, content=(*parts, *images), name=tool)


def _tools(items: object) -> Iterator[ToolDeclaration]:
    if items is not None and not isinstance(items, list):
        raise InvalidInput("tools is an array.", code="wrong_shape", at="tools")
    for number, item in enumerate(items or ()):
        match item:
            case {"function": {"name": str(name), **more}}:
                described = more.get("description")
                schema = more.get("parameters") or {"type": "object", "properties": {}}
                yield ToolDeclaration(
                    name=name,
                    description=described if isinstance(described, str) else "",
                    parameters=msgspec.Raw(encode(schema)),
                )
            case _:
                raise InvalidInput(
                    "A tool is declared as a function with a name.",
                    code="wrong_shape",
                    at=f"tools[{number}]",
                )


def _policy(request: Fields) -> Policy:
    """Return the options of a request. Those without a setting of ours are passed on as they are."""
    sampling = option(request, SAMPLING, dict) or {}
    inside = f"{SAMPLING}."
    most = option(sampling, "num_predict", int, inside)
    own = OWN_SAMPLING if most is None or most > 0 else OWN_SAMPLING - {"num_predict"}
    extra = {name: value for name, value in request.items() if name not in OWN_FIELDS}
    extra[SAMPLING] = {name: v for name, v in sampling.items() if name not in own} or None
    stream = option(request, "stream", bool)
    return Policy(
        profile=OLLAMA.name,
        model=option(request, "model", str) or "",
        max_output_tokens=most if most is None or most > 0 else None,
        temperature=option(sampling, "temperature", float, inside),
        stream=stream is not False,  # what is not said is yes here
        extra=options(extra),
    )
