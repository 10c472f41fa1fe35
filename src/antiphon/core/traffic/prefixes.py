"""A history that a client brings whole, recognised by how it began.

What is compared is what a client can bring back: who said it, its text, its calls and results.
What only its provider reads, how JSON was spelled and how a text was cut into blocks are no part
of it, so an answer of ours is known again by the form that the client was told it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from antiphon.core.blocks import Block, Message, Reasoning, Refusal, Text, ToolCall, ToolResult
from antiphon.core.digests import canonical_json, digest, fold, parse_exact
from antiphon.core.ids import Digest
from antiphon.errors import InvalidInput

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def said(message: Message) -> bytes:
    """Return what a message says, the same for each form that a client may bring it in."""
    words = "".join(b.text for b in message.blocks if isinstance(b, Text | Refusal))
    rest = [part for block in message.blocks for part in _beside(block)]
    return _encode([message.role.value, message.name, words, rest])


def path_digests(key: bytes, messages: Sequence[Message]) -> list[Digest]:
    """Return the digest of the path to each message, under the tenant's key."""
    so_far: Digest | None = None
    digests = []
    for message in messages:
        so_far = fold(key, so_far, digest(key, "said", said(message)))
        digests.append(so_far)
    return digests


def _beside(block: Block) -> Iterator[object]:
    match block:
        case Text() | Refusal() | Reasoning():
            return
        case ToolCall(call_id=call_id, name=name, arguments=arguments):
            yield ["call", call_id, name, _canonical(arguments)]
        case ToolResult(call_id=call_id, content=content):
            text = "".join(part.text for part in content if isinstance(part, Text))
            yield ["result", call_id, text, [p for p in content if not isinstance(p, Text)]]
        case _:
            yield msgspec.to_builtins(block)


def _canonical(arguments: str) -> str:
    try:
        return canonical_json(parse_exact(arguments.strip() or "{}"))
    except InvalidInput:
        return arguments
