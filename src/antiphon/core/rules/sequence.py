"""`MessageSequence.v1`: what one dispatch says, as ordered blocks that are never glued together.

It binds one line of committed messages, and the input blocks that stand beside them for the model,
to the adapter, tools, policy and model that they are meant for. It is not the session's memory
and not its history: two dispatches of one conversation are two sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from antiphon.core.blocks import (
    Block,
    Message,
    Role,
    ToolCall,
    ToolResult,
    Trust,
    block_id,
    message_digest,
)
from antiphon.core.digests import digest, fold
from antiphon.core.ids import CallId, Digest, MessageId
from antiphon.core.inputs import InputBlock, digest_beside, input_digest
from antiphon.core.rules.graph import check
from antiphon.errors import SequenceRejected

NOTHING: Final[Mapping[MessageId, tuple[InputBlock, ...]]] = MappingProxyType({})

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class BlockRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One block as the audit keeps it: everything about it but what it says."""

    id: str
    order: int
    role: Role
    kind: str
    digest: Digest
    trust: Trust
    call_id: CallId | None = None


class ToolEdge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call and what came of it; `result` is None while it is open."""

    call_id: CallId
    call: str
    closed: bool
    schema_digest: Digest | None = None
    result: str | None = None


class MessageSequence(msgspec.Struct, frozen=True, kw_only=True):
    """The validated input of one dispatch. `sequence` makes one; nothing else does.

    Attributes:
        conversation_revision: Where the conversation stood.
        sequence_digest: Folded over the digests of the messages, each with what stands beside it.
        messages: The line, root first. All committed, but for the run's own input at its end.
        inputs: What stands beside a message for the model; it is no part of the message.
        model_revision: The model as its provider names it.
        max_output_tokens: The bound that the answer was asked under.
    """

    conversation_revision: int
    sequence_digest: Digest
    messages: tuple[Message, ...]
    inputs: Mapping[MessageId, tuple[InputBlock, ...]] = NOTHING
    adapter: str
    adapter_version: int
    adapter_digest: Digest
    toolset_digest: Digest
    policy_digest: Digest
    model_revision: str
    max_output_tokens: int | None = None
    schema: int = 1

    def records(self, key: bytes) -> Iterator[BlockRecord]:
        """Yield the audit record of every block, in order."""
        position = 0
        for message in self.messages:
            for order, block in enumerate(message.blocks):
                yield _record(
                    key,
                    block_id(message.id, order),
                    position,
                    message.role,
                    _trust(message, block),
                    block,
                )
                position += 1
            for added in self.inputs.get(message.id, ()):
                yield BlockRecord(
                    id=f"{message.id}+{added.id}",
                    order=position,
                    role=message.role,
                    kind=added.kind,
                    digest=input_digest(key, added),
                    trust=added.trust,
                )
                position += 1

    def edges(self) -> Iterator[ToolEdge]:
        """Yield every call with its result, in the order of the calls."""
        results = {
            block.call_id: block_id(message.id, order)
            for message in self.messages
            for order, block in enumerate(message.blocks)
            if isinstance(block, ToolResult)
        }
        for message in self.messages:
            for order, block in enumerate(message.blocks):
                if isinstance(block, ToolCall):
                    yield ToolEdge(
                        call_id=block.call_id,
                        call=block_id(message.id, order),
                        closed=block.closed,
                        schema_digest=block.schema_digest,
                        result=results.get(block.call_id),
                    )


def sequence(
    messages: Iterable[Message],
    *,
    key: bytes,
    conversation_revision: int,
    adapter: str,
    adapter_version: int,
    adapter_digest: Digest,
    toolset_digest: Digest,
    policy_digest: Digest,
    model_revision: str,
    max_output_tokens: int | None = None,
    inputs: Mapping[MessageId, tuple[InputBlock, ...]] = NOTHING,
) -> MessageSequence:
    """Return the sequence of a line that satisfies every rule of the graph.

    Raises:
        SequenceRejected: It does not; the findings say why.
    """
    line = tuple(messages)
    findings = check(line, key=key)
    if findings:
        raise SequenceRejected(findings)
    return MessageSequence(
        conversation_revision=conversation_revision,
        sequence_digest=sequence_digest(key, line, inputs),
        messages=line,
        inputs=inputs,
        adapter=adapter,
        adapter_version=adapter_version,
        adapter_digest=adapter_digest,
        toolset_digest=toolset_digest,
        policy_digest=policy_digest,
        model_revision=model_revision,
        max_output_tokens=max_output_tokens,
    )


def sequence_digest(
    key: bytes,
    messages: Iterable[Message],
    inputs: Mapping[MessageId, tuple[InputBlock, ...]] = NOTHING,
) -> Digest:
    """Return the digest of a line, the same that a line made message by message arrives at."""
    so_far: Digest | None = None
    for message in messages:
        own = message_digest(key, message)
        so_far = fold(key, so_far, digest_beside(key, own, inputs.get(message.id, ())))
    return so_far or digest(key, "path")


def block_digest(key: bytes, block: Block) -> Digest:
    """Return the digest of what one block says, wherever it stands."""
    return digest(key, "block", _encode(block))


def _trust(message: Message, block: Block) -> Trust:
    """A tool's words stay a tool's, whoever handed them in."""
    return Trust.TOOL if isinstance(block, ToolResult) else message.trust


def _record(key: bytes, at: str, order: int, role: Role, trust: Trust, block: Block) -> BlockRecord:
    return BlockRecord(
        id=at,
        order=order,
        role=role,
        kind=str(type(block).__struct_config__.tag),
        digest=block_digest(key, block),
        trust=trust,
        call_id=block.call_id if isinstance(block, ToolCall | ToolResult) else None,
    )
