"""What an MCP server answers, as parts of a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import assert_never

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from antiphon.core.blocks import File, Image, ResultPart, Text


def parts_of(result: CallToolResult) -> tuple[ResultPart, ...]:
    """Return the result's content in order.

    Structured content stands for the text where there is none beside it; servers that have both
    say the same thing twice.
    """
    parts = tuple(_part(block) for block in result.content)
    if not parts and result.structured_content is not None:
        return (Text(text=json.dumps(result.structured_content, ensure_ascii=False)),)
    return parts


def _part(block: ContentBlock) -> ResultPart:
    match block:
        case TextContent():
            return Text(text=block.text)
        case ImageContent():
            return Image(media_type=block.mime_type, data=block.data)
        case AudioContent():
            return File(media_type=block.mime_type, data=block.data, filename="audio")
        case ResourceLink():
            about = f": {block.description}" if block.description else ""
            return Text(text=f"[resource {block.name} at {block.uri}{about}]")
        case EmbeddedResource():
            return _embedded(block)
        case _:
            assert_never(block)


def _embedded(block: EmbeddedResource) -> ResultPart:
    held = block.resource
    if isinstance(held, BlobResourceContents):
        return File(
            media_type=held.mime_type or "application/octet-stream",
            data=held.blob,
            filename=str(held.uri).rsplit("/", 1)[-1],
        )
    return Text(text=held.text)


def texts_of(result: CallToolResult) -> str:
    """Return the text of a result, for an error message."""
    return "\n".join(_texts(result)) or "The tool failed and did not say why."


def _texts(result: CallToolResult) -> Iterator[str]:
    for part in parts_of(result):
        if isinstance(part, Text):
            yield part.text
