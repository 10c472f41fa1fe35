"""Our graph as people write it in files: a tree of nodes, or a flat list of blocks.

The flat form is one line, in order; neighbouring blocks of the assistant are one message, as
one response made them. A tree names its leaf by `activePath`, or has one leaf only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.requests.parsing import DATA_URL
from antiphon.cli.requests.kept_state import artifacts, kept_state
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Origin,
    Outcome,
    Reasoning,
    Refusal,
    ResultPart,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
    block_id,
    default_trust,
)
from antiphon.core.ids import CallId, ConversationId, MessageId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.findings import Finding
from antiphon.core.tree import walk
from antiphon.errors import InvalidInput, Refused

GRAPH: Final = ConversationId("graph")
OUTCOMES: Final[Mapping[str, Outcome]] = {
    **{outcome.value: outcome for outcome in Outcome},
    "cancel": Outcome.CANCELED,
    "cancelled": Outcome.CANCELED,
    "failed": Outcome.ERROR,
    "failure": Outcome.ERROR,
}
MEDIA_TYPE: Final = ("media_type", "mediaType", "mime_type", "mimeType", "media")
"""What the type of an image or a file is called, here and there."""

Fields = Mapping[str, object]
T = TypeVar("T")


def read_graph(value: object) -> Parsed:
    """Return the line that a graph describes.

    What is wrong with the tree itself (`cycle`, `missing_parent`, `foreign_parent`,
    `dangling_leaf`) is a finding, like everything else about what may be sent.

    Raises:
        InvalidInput: It is no graph; `at` is the place in it.
    """
    if isinstance(value, list):
        return _flat(value)
    if isinstance(value, dict) and isinstance(value.get("nodes"), list):
        return _tree(value)
    raise InvalidInput(
        "A graph is an array of blocks, or an object with an array of nodes.",
        code="wrong_shape",
        at="graph",
    )


def _flat(items: list[object]) -> Parsed:
    messages: list[Message] = []
    places: dict[str, str] = {}
    for number, item in enumerate(items):
        at = f"graph[{number}]"
        fields = _object(item, at)
        block_name = _string(fields, "id", at) or at
        role = _role(fields, at)
        block = _block(fields, at)
        last = messages[-1] if messages else None
        if last is not None and role is Role.ASSISTANT and last.role is Role.ASSISTANT:
            messages[-1] = msgspec.structs.replace(last, blocks=(*last.blocks, block))
        else:
            parent = last.id if last is not None else None
            messages.append(_message(fields, at, MessageId(block_name), parent, role, (block,)))
        newest = messages[-1]
        places[block_id(newest.id, len(newest.blocks) - 1)] = block_name
    return Parsed(messages=tuple(messages), tools=(), policy=Policy(model=""), places=places)


def _tree(value: Fields) -> Parsed:
    nodes: dict[MessageId, Message] = {}
    places: dict[str, str] = {}
    items, kept = value["nodes"], artifacts(value.get("providerArtifacts"))
    for number, item in enumerate(items if isinstance(items, list) else ()):
        at = f"nodes[{number}]"
        fields = _object(item, at)
        name = MessageId(_string(fields, "id", at) or at)
        blocks = fields.get("blocks")
        if not isinstance(blocks, list):
            raise InvalidInput("A node has an array of blocks.", code="wrong_shape", at=at)
        read: list[Block] = []
        for order, inner in enumerate([*_thought_of(name, kept), *blocks]):
            place = f"{at}.blocks[{order}]"
            told = _object(inner, place)
            # State of one provider is all that a block can hold; the first that is told stays.
            of_block = {**told, **next(iter(kept.get(str(told.get("id")), ())), {})}
            read.append(_block(of_block, place))
            places[block_id(name, order)] = _string(of_block, "id", place) or place
        parent = _string(fields, "parent", at)
        nodes[name] = _message(
            fields, at, name, MessageId(parent) if parent else None, _role(fields, at), tuple(read)
        )
    path, findings = _line(nodes, value.get("activePath"))
    return Parsed(
        messages=tuple(path),
        tools=tuple(_tools(value.get("tools"))),
        policy=_policy(value.get("requestOptions")),
        findings=findings,
        places=places,
    )


def _thought_of(node: MessageId, kept: Mapping[str, list[Fields]]) -> Iterator[Fields]:
    """Yield the thinking that was kept of a whole answer; it came before all that was said."""
    for fields in kept.get(node, ()):
        state = fields.get("provider_state")
        text = state.get("reasoning_content") if isinstance(state, dict) else None
        if isinstance(text, str):
            yield {"id": f"{node}-reasoning", "kind": "reasoning", "text": text}


def _line(
    nodes: Mapping[MessageId, Message], active: object
) -> tuple[list[Message], tuple[Finding, ...]]:
    if isinstance(active, list) and active:
        leaf = MessageId(str(active[-1]))
    else:
        parents = {node.parent for node in nodes.values()}
        leaves = [name for name in nodes if name not in parents]
        if len(leaves) > 1:
            raise InvalidInput(
                f"The tree has several leaves ({', '.join(leaves)}); name one by activePath.",
                code="wrong_shape",
                at="activePath",
            )
        leaf = leaves[0] if leaves else next(iter(nodes), MessageId(""))
    if leaf not in nodes:
        if not nodes:
            return [], ()
        return [], (
            Finding(
                code="dangling_leaf",
                at=leaf,
                message="The line ends in a message that is not there. Name one that is.",
            ),
        )
    conversation = nodes[leaf].conversation
    try:
        return walk(conversation, leaf, nodes.get), ()
    except Refused as broken:
        return [], (Finding(code=broken.code, at=broken.at or "", message=broken.message),)


def _message(
    fields: Fields,
    at: str,
    name: MessageId,
    parent: MessageId | None,
    role: Role,
    blocks: tuple[Block, ...],
) -> Message:
    origin = {Role.ASSISTANT: Origin.MODEL, Role.TOOL: Origin.TOOL}.get(role, Origin.CLIENT)
    trust = _choice(fields, "trust", at, {t.value: t for t in Trust}, default_trust(role, origin))
    status = Status.SUCCESS
    if role is not Role.TOOL:  # there, status is the result's
        words = {s.value: s for s in Status}
        status = _choice(fields, "status", at, words, Status.SUCCESS)
    return Message(
        id=name,
        conversation=ConversationId(_string(fields, "conversation", at) or GRAPH),
        parent=parent,
        role=role,
        blocks=blocks,
        origin=origin,
        trust=trust,
        name=None if role is Role.TOOL or "kind" in fields else _string(fields, "name", at),
        status=status,
    )


def _block(fields: Fields, at: str) -> Block:
    kind = fields.get("kind")
    match kind:
        case "text":
            return Text(text=_needed(fields, "text", at), opaque=kept_state(fields))
        case "refusal":
            return Refusal(text=_needed(fields, "text", at))
        case "reasoning":
            kept = kept_state(fields, thought=True)
            return Reasoning(text=_string(fields, "text", at) or "", opaque=kept)
        case "image" | "file":
            return _media(fields, at, kind)
        case "audio":
            return Audio(data=_needed(fields, "data", at), format=_needed(fields, "format", at))
        case "tool_call":
            return ToolCall(
                call_id=_call_id(fields, at),
                name=_needed(fields, "name", at),
                arguments=_json_text(fields.get("arguments", {})),
                closed=fields.get("closed") is not False,
                generation=_whole(fields, "generation", at),
                opaque=kept_state(fields),
            )
        case "tool_result":
            return ToolResult(
                call_id=_call_id(fields, at),
                content=tuple(_content(fields.get("content"), at)),
                outcome=_choice(
                    fields,
                    "outcome" if "outcome" in fields else "status",
                    at,
                    OUTCOMES,
                    Outcome.SUCCESS,
                ),
                code=_string(fields, "code", at),
                name=_string(fields, "name", at),
                generation=_whole(fields, "generation", at),
            )
        case str():
            return Unknown(name=kind, value=msgspec.Raw(msgspec.json.encode(fields)))
        case _:
            raise InvalidInput("A block says its kind.", code="wrong_shape", at=at)


def _media(fields: Fields, at: str, kind: str) -> Image | File:
    source = fields.get("source")
    if isinstance(source, dict):
        fields = {**fields, **source}
    named = (_string(fields, name, at) for name in MEDIA_TYPE)
    media_type = next((name for name in named if name), None)
    data = _string(fields, "data", at) or _string(fields, "base64", at)
    if kind == "file":
        return File(
            file_id=_string(fields, "file_id", at),
            filename=_string(fields, "filename", at),
            media_type=media_type,
            data=data,
        )
    url = _string(fields, "url", at)
    held = DATA_URL.fullmatch(url) if url is not None and data is None else None
    if held is not None:
        url, media_type, data = None, media_type or held[1], held[2]
    if url is None and data is None:
        raise InvalidInput("An image has a url or data.", code="wrong_shape", at=at)
    return Image(url=url, media_type=media_type, data=data, detail=_string(fields, "detail", at))


def _content(content: object, at: str) -> Iterator[ResultPart]:
    """Yield the parts of a result. What is no part is what the tool returned: JSON."""
    if content is None:
        return
    if isinstance(content, str):
        yield Text(text=content)
        return
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and ("kind" in part or "type" in part) for part in parts):
        yield Text(text=_json_text(content))
        return
    for number, part in enumerate(parts):
        place = f"{at}.content[{number}]"
        fields = _object(part, place)
        kind = fields.get("kind", fields.get("type"))
        if kind == "json":
            yield Text(text=_json_text(fields.get("value")))
            continue
        block = _block({**fields, "kind": kind}, place)
        if not isinstance(block, ResultPart):
            raise InvalidInput(
                "A result holds text, images and files.", code="wrong_shape", at=place
            )
        yield block


def _tools(items: object) -> Iterator[ToolDeclaration]:
    for number, item in enumerate(items if isinstance(items, list) else ()):
        at = f"tools[{number}]"
        fields = _object(item, at)
        parameters = fields.get("parameters") or {"type": "object", "properties": {}}
        yield ToolDeclaration(
            name=_needed(fields, "name", at),
            description=_string(fields, "description", at) or "",
            parameters=msgspec.Raw(msgspec.json.encode(parameters)),
            strict=True if fields.get("strict") is True else None,
        )


def _policy(options: object) -> Policy:
    fields = options if isinstance(options, dict) else {}
    return Policy(
        model=_string(fields, "model", "requestOptions") or "",
        max_output_tokens=_whole(fields, "maxOutputTokens", "requestOptions"),
        tool_choice=_string(fields, "toolChoice", "requestOptions"),
        parallel_tool_calls=_flag(fields, "parallelToolCalls", "requestOptions"),
        stream=fields.get("stream") is not False,
    )


def _json_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _object(value: object, at: str) -> Fields:
    if not isinstance(value, dict):
        raise InvalidInput("An object is expected.", code="wrong_shape", at=at)
    return value


def _string(fields: Fields, name: str, at: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput("A string is expected.", code="wrong_shape", at=f"{at}.{name}")
    return value


def _needed(fields: Fields, name: str, at: str) -> str:
    value = _string(fields, name, at)
    if value is None:
        raise InvalidInput("This is missing.", code="wrong_shape", at=f"{at}.{name}")
    return value


def _whole(fields: Fields, name: str, at: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidInput("A whole number is expected.", code="wrong_shape", at=f"{at}.{name}")
    return value


def _flag(fields: Fields, name: str, at: str) -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidInput("true or false is expected.", code="wrong_shape", at=f"{at}.{name}")
    return value


def _call_id(fields: Fields, at: str) -> CallId:
    return CallId(_string(fields, "call_id", at) or _string(fields, "callId", at) or "")


def _role(fields: Fields, at: str) -> Role:
    word = fields.get("role")
    try:
        return Role(str(word))
    except ValueError:
        raise InvalidInput(
            f"There is no role {word!r}; known are {', '.join(Role)}.", code="wrong_shape", at=at
        ) from None


def _choice(fields: Fields, name: str, at: str, known: Mapping[str, T], default: T) -> T:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, str) or value not in known:
        raise InvalidInput(
            f"One of {', '.join(known)} is expected.", code="wrong_shape", at=f"{at}.{name}"
        )
    return known[value]
