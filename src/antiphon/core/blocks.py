"""Blocks and messages: what was said, as immutable typed values.

A message never changes once it exists; its status and error code stand beside it and move
once. Blocks are never joined into one string whose borders would have to be guessed back.
What is sent to a provider is chosen from these fields one by one by an adapter: nothing
here is ever dumped whole into a request, so `metadata` is no second prompt channel.

None of them can be part of a circle, so the garbage collector need not look at them
(`gc=False`): a conversation of thousands of messages loads in two thirds of the time.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Final, TypeAlias

import msgspec

from antiphon.core.digests import digest, framed, hasher
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId, RunId, SessionId


class Role(StrEnum):
    """How the protocol reads a message. A role grants nothing: see `Trust`."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Trust(StrEnum):
    """Who vouches for the content."""

    OPERATOR = "operator"
    DEVELOPER = "developer"
    USER = "user"
    MODEL = "model"
    TOOL = "tool"
    RETRIEVED = "retrieved"


class Origin(StrEnum):
    """How a message came into being."""

    CLIENT = "client"
    MODEL = "model"
    TOOL = "tool"
    KEPT = "kept"
    COPIED = "copied"
    IMPORTED = "imported"
    SYSTEM = "system"


class Status(StrEnum):
    """Where a message stands; it leaves `pending` once."""

    PENDING = "pending"
    SUCCESS = "success"
    ERROR = "error"
    CANCELED = "canceled"


class Outcome(StrEnum):
    """How a tool call ended, as the model is told it."""

    SUCCESS = "success"
    ERROR = "error"
    CANCELED = "canceled"


class _Block(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, gc=False
):
    """Common base of all blocks; `kind` tells them apart in stored form."""


WHOEVER: Final = ""


class Opaque(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State that a provider wants back byte for byte, and which provider that is.

    Attributes:
        profile: The dialect that it came over.
        value: The state, as JSON.
        model: The model that made it, as its provider names it, where only that model reads it;
            `WHOEVER` is for the one that is asked, where the answer does not say which that was.
        work: Whether it is work that the provider did by itself, such as a search with what it
            found, rather than thinking.
        prefix: Digest of the line that it was an answer to, where a dispatch of ours made it.
            A provider may bind state to what came before: behind a deletion, a compaction or in
            a copy that is something else.
    """

    profile: str
    value: msgspec.Raw
    model: str | None = None
    work: bool = False
    prefix: Digest | None = None


class Text(_Block, frozen=True, kw_only=True, tag="text"):
    """Plain text, whatever it looks like: `assistant: yes` in it is never a role.

    `opaque` is what a provider wants back with a text of its model's.
    """

    text: str
    opaque: Opaque | None = None


class Image(_Block, frozen=True, kw_only=True, tag="image"):
    """An image by URL, or as base64 `data` with its media type."""

    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    detail: str | None = None


class Audio(_Block, frozen=True, kw_only=True, tag="audio"):
    """Recorded sound as base64 `data` in `format` (wav, mp3)."""

    data: str
    format: str


class File(_Block, frozen=True, kw_only=True, tag="file"):
    """A document: by the provider's id, or as base64 `data` with a name."""

    file_id: str | None = None
    filename: str | None = None
    media_type: str | None = None
    data: str | None = None


class Reasoning(_Block, frozen=True, kw_only=True, tag="reasoning"):
    """The model's thinking, apart from its answer; `opaque` is what its provider wants back."""

    text: str = ""
    opaque: Opaque | None = None


class Refusal(_Block, frozen=True, kw_only=True, tag="refusal"):
    """The model's own words for a refusal."""

    text: str


class ToolCall(_Block, frozen=True, kw_only=True, tag="tool_call"):
    """A call the model asked for.

    `arguments` is the JSON text exactly as received. `closed` is False only for history that
    somebody brought with its arguments cut; such a call never comes out of our assembler.
    `generation` is that of the attempt that asked, None where nobody recorded it.
    """

    call_id: CallId
    name: str
    arguments: str
    closed: bool = True
    schema_digest: Digest | None = None
    generation: int | None = None
    opaque: Opaque | None = None


ResultPart: TypeAlias = Text | Image | File


class ToolResult(_Block, frozen=True, kw_only=True, tag="tool_result"):
    """What a call came to. Exactly one stands for each call.

    `name`, `arguments_digest` and `generation` are None where whoever brought the result did
    not say; where they are given they must match the call.
    """

    call_id: CallId
    content: tuple[ResultPart, ...] = ()
    outcome: Outcome = Outcome.SUCCESS
    code: str | None = None
    name: str | None = None
    arguments_digest: Digest | None = None
    generation: int | None = None


class Unknown(_Block, frozen=True, kw_only=True, tag="unknown"):
    """A kind that this release does not know. It is kept, shown and never sent."""

    name: str
    value: msgspec.Raw = msgspec.Raw(b"null")


Block: TypeAlias = (
    Text | Image | Audio | File | Reasoning | Refusal | ToolCall | ToolResult | Unknown
)


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A node of the conversation's tree.

    The digest covers the fields from `id` to `name`. `metadata` is for people and audit; no
    adapter reads it. `beside` names what was found for it, which a model sees beside its words. Of a message that is `erased` the blocks, the name and the metadata are gone,
    and its stored digest is that of what it said.
    """

    id: MessageId
    conversation: ConversationId
    parent: MessageId | None
    role: Role
    blocks: tuple[Block, ...]
    origin: Origin
    trust: Trust
    name: str | None = None
    session: SessionId | None = None
    run: RunId | None = None
    copied_from: MessageId | None = None
    beside: Digest | None = None
    created_ms: int = 0
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    status: Status = Status.SUCCESS
    error_code: str | None = None
    erased: bool = False

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls it asks for, in their order."""
        return tuple(b for b in self.blocks if type(b) is ToolCall)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results it holds, in their order."""
        return tuple(b for b in self.blocks if type(b) is ToolResult)

    @property
    def text(self) -> str:
        """Its text blocks, one after the other, for people to read."""
        return "".join(b.text for b in self.blocks if type(b) is Text)


DEFAULT_TRUST: Final = {
    (Role.SYSTEM, Origin.CLIENT): Trust.OPERATOR,
    (Role.DEVELOPER, Origin.CLIENT): Trust.DEVELOPER,
    (Role.ASSISTANT, Origin.MODEL): Trust.MODEL,
    (Role.TOOL, Origin.TOOL): Trust.TOOL,
}
"""Trust where nobody says otherwise. An assistant message that a client brought is trust user."""


def default_trust(role: Role, origin: Origin) -> Trust:
    """Return the trust label of a message of `role` that came by `origin`.

    Example:
        >>> default_trust(Role.ASSISTANT, Origin.CLIENT)
        <Trust.USER: 'user'>
    """
    return DEFAULT_TRUST.get((role, origin), Trust.USER)


def block_id(message: MessageId, order: int) -> str:
    """Return the stable id of the block at `order`: messages never change, so neither does it."""
    return f"{message}.{order}"


def part_id(block: str, number: int) -> str:
    """Return the stable id of a part of the result that `block` names."""
    return f"{block}[{number}]"


def whole_of(name: str) -> str:
    """Return the id of the block that a part belongs to; every other id comes back as it is.

    Example:
        >>> whole_of(part_id(block_id(MessageId("msg_1"), 0), 3))
        'msg_1.0'
    """
    block, _, _ = name.rpartition("[")
    return block if block[-1:].isdigit() else name


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_blocks = msgspec.json.Decoder(tuple[Block, ...]).decode


def encode_blocks(blocks: tuple[Block, ...]) -> bytes:
    """Return the stored form of `blocks`; `decode_blocks` is its inverse."""
    return _encode(blocks)


def decode_blocks(data: bytes | str) -> tuple[Block, ...]:
    """Return the blocks that `encode_blocks` stored.

    Raises:
        msgspec.ValidationError: It is no stored form of ours.
    """
    return _decode_blocks(data)


def content_digest(key: bytes, role: Role, name: str | None, blocks: bytes) -> Digest:
    """Return the digest of what was said, wherever it stands; for replay against conflict."""
    return digest(key, "content", role.encode(), (name or "").encode(), blocks)


def message_digest(key: bytes, message: Message) -> Digest:
    """Return the digest of a node: its identity, place, origin and content.

    Status, error code, times and metadata are not part of it, since they stand beside the
    message.
    """
    own, parent = message.id.encode(), (message.parent or "").encode()
    kind = _framed_kind(message.role, message.origin, message.trust)
    name, blocks = (message.name or "").encode(), _encode(message.blocks)
    whole = hasher(key, "message")
    # As `digest` frames its parts, less what is the same for thousands of messages.
    whole.update(
        b"%b%b%b%b%b%b%b%b%b"
        % (
            len(own).to_bytes(8, "big"),
            own,
            len(parent).to_bytes(8, "big"),
            parent,
            kind,
            len(name).to_bytes(8, "big"),
            name,
            len(blocks).to_bytes(8, "big"),
            blocks,
        )
    )
    return Digest(whole.hexdigest())


@cache
def _framed_kind(role: Role, origin: Origin, trust: Trust) -> bytes:
    return framed(role.encode(), origin.encode(), trust.encode())
