"""The manifest: the immutable record of one intended model call, written before it is sent.

It holds digests, not content. Prepare stores the content that is not in the tree beside it,
addressed by digest, so that the request can be rendered again; a rendering that does not
hash to `request_digest` is never replayed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, TypeAlias

import msgspec

from antiphon.core.blocks import Text
from antiphon.core.digests import digest
from antiphon.core.ids import (
    ConversationId,
    Digest,
    MessageId,
    OperationId,
    RunId,
    SessionId,
)
from antiphon.core.inputs import InputBlock


class Purpose(StrEnum):
    """What a call is for. Only `turn` takes the slot, moves the revision, writes a message."""

    TURN = "turn"
    DECISION = "decision"
    SUMMARY = "summary"
    TITLE = "title"


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """One change that a profile made on the way to bytes, so that none is silent.

    `rule` is a stable word (`developer_as_system`, `merged_same_role`, `call_id_respelled`,
    `result_hoisted`, `reasoning_dropped`), `block` the block it was made to.
    """

    rule: str
    block: str
    detail: str = ""


Truncation: TypeAlias = Literal["disabled", "auto"]


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that shapes a request beside the history and the tools.

    Stored by its digest. `endpoint` is the base URL; `facts` override what the profile says
    of this one model; `extra` holds sampling options as the profile names them. `context` is
    what an application has given or remembered: it stands beside the first user's message.
    `instructions_from` names the version of kept instructions that `instructions` begin with.
    `context_window` is what the model holds, where that is known, and `truncation` whether older
    turns may be left out for it; `compact` is False for a line that is its client's own to keep.
    """

    model: str
    profile: str = "openai-chat"
    endpoint: str = ""
    facts: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    instructions: str | None = None
    max_output_tokens: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    stream: bool = True
    extra: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    context_window: int | None = None
    truncation: Truncation = "disabled"
    compact: bool = True
    context: tuple[InputBlock, ...] = ()
    instructions_from: str | None = None


class ToolDeclaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function the model may ask for; `parameters` is its JSON Schema as JSON text."""

    name: str
    description: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b'{"type":"object","properties":{}}')
    strict: bool | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`DispatchManifest.v1`: written once; its digest covers every field.

    `mappings_digest` names the list of all mappings (`antiphon.core.listing`), None if there
    were none: it covers each of them. `plan_digest` names the plan (`antiphon.core.planning`), and
    `question_digest` what is asked beside the turn, in place of a line. A manifest without one is
    written as if there were no such field: those of the first release had none.
    """

    operation: OperationId
    conversation: ConversationId
    session: SessionId
    run: RunId
    purpose: Purpose
    base_leaf: MessageId
    conversation_revision: int
    cancel_generation: int
    sequence_digest: Digest
    adapter: str
    adapter_version: int
    adapter_digest: Digest
    provider: str
    model_revision: str
    toolset_digest: Digest
    policy_digest: Digest
    request_digest: Digest
    mappings_digest: Digest | None = None
    max_output_tokens: int | None = None
    idempotency_key: str | None = None
    linked_to: OperationId | None = None
    plan_digest: Digest | msgspec.UnsetType = msgspec.UNSET
    schema: int = 1
    question_digest: Digest | msgspec.UnsetType = msgspec.UNSET


class QuestionText(msgspec.Struct, frozen=True, kw_only=True):
    """What a question beside the turn says, in one message; stored by its digest."""

    blocks: tuple[Text, ...]


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request exactly as it leaves, without keys: those are added at the socket.

    `headers` are the meaningful ones, lower case and sorted; `chunks` joined are the body.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    chunks: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks)


_encode: Final = msgspec.json.Encoder(order="deterministic").encode


decode_policy: Final = msgspec.json.Decoder(Policy).decode
"""Returns the policy whose stored form it is given."""


def manifest_digest(key: bytes, manifest: Manifest) -> Digest:
    """Return the digest over every field of `manifest`, under the tenant's `key`."""
    return digest(key, "manifest", _encode(manifest))


def stored_digest(
    key: bytes, value: Policy | tuple[ToolDeclaration, ...] | QuestionText
) -> tuple[Digest, bytes]:
    """Return digest and stored form of a policy, a toolset or a question."""
    data = _encode(value)
    return digest(key, "stored", data), data
