"""What every adapter offers, and the pieces that all of them share.

An adapter is pure and versioned: the same line, policy and tools give the same bytes in every
process, and other bytes mean another version. It renders what the rules let through, lists
each thing it had to map, and reads the answer back as deltas.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.adapters.weighing import weigh_ending, weigh_head, weigh_items
from antiphon.core import manifest
from antiphon.core.answers.deltas import Channel, Delta, Usage
from antiphon.core.blocks import Block, Message, Opaque, ToolCall, whole_of
from antiphon.core.digests import Hasher, hasher
from antiphon.core.ids import CallId, ConversationId, Digest
from antiphon.core.inputs import InputBlock
from antiphon.core.manifest import Policy, ToolDeclaration, WireRequest
from antiphon.core.planning.tokens import TOKENS_A_REPLY, Counter, Weight
from antiphon.core.recovery import Rung
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.graph import Judged
from antiphon.core.rules.options import check_options
from antiphon.core.rules.profile import Profile
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

SEALED_BYTES: Final = 64 * 1024

REPLY: Final = Weight(transcript=TOKENS_A_REPLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A request that may be sent, and what its manifest says about it.

    `closed` is the body that it was made of, which may grow further.
    """

    request: WireRequest
    request_digest: Digest
    sequence_digest: Digest
    mappings: tuple[manifest.Mapping, ...]
    closed: Closed = field(compare=False, repr=False)

    def weigh(self, counter: Counter) -> Weight:
        """Return what its model is shown of it, the beginning of the answer included, in tokens.

        Only what has come since its body was last weighed is counted. To be asked before its
        line is fed further.
        """
        closed = self.closed
        return closed.body.weigh(counter) + weigh_ending(closed.ending, counter) + REPLY


class Rested(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a line has come by since it was last told of, and how it stands where it rests now.

    All that a line told, one after the other, is the line: `RenderedLine.resume`.

    Attributes:
        judged: What passed the rules, and by what they go on.
        sequence: The digest of everything on the line.
        mappings: What was changed on the way.
        call_ids: How calls were spelled.
        tool_names: How tools were.
        items: What was rendered, as it stands in the request.
        rest: What else its dialect goes on by.
    """

    judged: Judged
    sequence: Digest
    mappings: tuple[manifest.Mapping, ...] = ()
    call_ids: dict[CallId, str] = {}
    tool_names: dict[str, str] = {}
    items: bytes
    rest: bytes


class RenderedLine(Protocol):
    """A line that is checked and rendered message by message, and never twice."""

    def feed(
        self,
        message: Message,
        digest: Digest | None = None,
        *,
        inputs: Sequence[InputBlock] = (),
    ) -> None:
        """Take the next message, and what stands beside it for the model.

        Its own digest is made here where the caller has none. What the policy gives as context
        goes beside the first message of a user's.
        """

    def finish(self) -> Rendering:
        """Return the request for the line as it stands. It may be fed further afterwards.

        Its mappings begin with those that an earlier finish of this line returned.

        Raises:
            SequenceRejected: It may not be sent; the findings say why. Nothing was sent.
        """

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""

    def rested(self, least_bytes: int) -> Rested | None:
        """Return what has come since it was last told of; None where it does not rest.

        Nor while that is less than `least_bytes` of what is rendered.
        """

    def resume(self, rested: Sequence[Rested], last: Message) -> None:
        """Stand where a line of the same policy and tools rested, behind its `last` message.

        To be asked of a new one. What is fed next has to be a user's message.
        """

    @property
    def open_calls(self) -> tuple[CallId, ...]:
        """The calls that wait for their result: while there are any, nothing may be sent."""

    @property
    def call_ids(self) -> Container[str]:
        """The ids of all calls on the line, answered or not. A view: it grows with the line."""

    @property
    def tool_names(self) -> ToolNames:
        """How its tools are named on the wire: the model asks for them by these names."""


class Reader(Protocol):
    """Reads one answer, streamed or whole, as its bytes arrive."""

    def feed(self, data: bytes) -> Iterable[Delta]:
        """Return what these bytes say. Where they were cut makes no difference."""

    def end(self) -> Iterable[Delta]:
        """Return what the end of the body says."""


@runtime_checkable
class ResumableReader(Reader, Protocol):
    """A reader that can go on where a connection broke."""

    @property
    def position(self) -> str | None:
        """The provider's name for the last event that was read whole; None where it had none."""

    def reopen(self, content_type: str) -> None:
        """Read on from another body, which begins behind `position`; half an event is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpVerdict:
    """What a status other than 200 means.

    Attributes:
        definite: The provider has certainly not carried the request out. Otherwise nobody
            knows, and the attempt is UNKNOWN.
        code: The provider's own code where it gave one, else one of ours.
        message: One sentence for people, without secrets.
        retryable: Whether the same request may succeed later.
        retry_after_ms: How long the provider asks to wait, if it does.
    """

    definite: bool
    code: str
    message: str = ""
    retryable: bool = False
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A client's request as our graph.

    Attributes:
        messages: The line; ids are places of the request, such as `messages[3]`.
        tools: The declarations.
        policy: Everything else that shapes the request.
        findings: What could not be a message at all (`malformed_item`, `role_unsupported`).
        places: Block id to its place in the request, where that is not the block id itself; and
            the name of an option of ours to what the dialect calls it.
        uncarried: Places of what the dialect allows and our graph cannot carry: such a request
            is legal, but we cannot be the ones to send it.
        facts: What the request says of the model that it is meant for, as the adapter of its
            dialect takes them.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...]
    policy: Policy
    findings: tuple[Finding, ...] = ()
    places: Mapping[str, str]
    uncarried: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)

    def located(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Return `findings` at places that the writer of the request can find."""
        return tuple(msgspec.structs.replace(f, at=self._place(f.at)) for f in findings)

    def _place(self, at: str) -> str:
        """Return where something stands; a part of a result at least where its result does."""
        return self.places.get(at) or self.places.get(whole_of(at), at)

    def check_options(self) -> tuple[Finding, ...]:
        """Return which options ask for what no provider can do, at their places."""
        policy = self.policy
        # A tool that our graph cannot carry may be the one that is chosen.
        all_known = not any("tools[" in place for place in self.uncarried)
        return self.located(
            check_options(
                tool_choice=policy.tool_choice,
                max_output_tokens=policy.max_output_tokens,
                temperature=policy.temperature,
                tools=self.tools if all_known else None,
            )
        )


class Adapter(Protocol):
    """One dialect, at one version."""

    @property
    def name(self) -> str:
        """As in manifests and in the configuration."""

    @property
    def version(self) -> int:
        """Rises whenever the same line would give other bytes."""

    @property
    def digest(self) -> Digest:
        """Covers the version and every fact of the profile."""

    @property
    def profile(self) -> Profile:
        """What the dialect allows."""

    @property
    def recovery(self) -> tuple[Rung, ...]:
        """The ladder out of UNKNOWN, best rung first."""

    @property
    def closing_ends(self) -> bool:
        """Whether closing the connection ends the call at the provider."""

    def line(
        self,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None = None,
    ) -> RenderedLine:
        """Return an empty line for requests of this policy and these tools.

        Args:
            policy: Model, endpoint, instructions and options.
            tools: What is declared, in this order.
            key: The tenant's digest key.
            conversation: Whose messages these are; others are `foreign_branch`.

        Raises:
            InvalidInput: An option that this dialect cannot say; `at` names it.
        """

    def reader(self, content_type: str, limits: Limits = DEFAULT_LIMITS) -> Reader:
        """Return a reader for an answer of this content type, no larger than `limits`."""

    def classify(
        self, status: int, headers: Mapping[str, str], body: bytes, now_ms: int
    ) -> HttpVerdict:
        """Return what an answer with a status other than 200 means."""

    def parse(self, request: Mapping[str, object]) -> Parsed:
        """Return a client's request in this dialect as our graph.

        Raises:
            InvalidInput: It is no such request as a whole; `at` is the place.
        """

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return what is wrong with a request, held against what earlier answers left.

        Args:
            parsed: The request.
            stored: What was kept of the answers before it, as `antiphon lint` takes it.
        """


class Ending(StrEnum):
    """Why an answer of ours ends, as every dialect has a word for it."""

    STOP = "stop"
    LENGTH = "length"
    CALLS = "calls"


class Writer(Protocol):
    """Writes one answer as a client of this dialect expects it, streamed or whole.

    What is committed decides: text is shown as it comes, a call only once its message is
    canonical, and the ending when nothing can be taken back any more. After `end` or `fail`
    nothing follows.
    """

    def begin(self) -> bytes:
        """Return what opens the stream."""

    def show(self, channel: Channel, text: str) -> bytes:
        """Return a piece of text; empty where the dialect has no place for it."""

    def think(self, text: str, state: Opaque) -> bytes:
        """Return a whole thought with what its provider wants back; empty where there is no place."""

    def ask(self, calls: Sequence[ToolCall]) -> bytes:
        """Return the calls that the client is to carry out."""

    def end(self, ending: Ending, usage: Usage) -> bytes:
        """Return what closes the stream: the answer is committed."""

    def fail(self, code: str, message: str) -> bytes:
        """Return what tells the client that no answer comes, in the middle of a stream."""

    def whole(self, blocks: Sequence[Block], ending: Ending, usage: Usage) -> bytes:
        """Return the answer in one piece."""


@runtime_checkable
class Resumable(Protocol):
    """What an adapter offers beside, whose provider keeps an answer under its handle.

    Whether it keeps that of a given request, `Adapter.recovery` says.
    """

    def resume(self, policy: Policy, handle: str, *, after: str | None) -> WireRequest:
        """Return the request for what came behind event `after`, or for all of the answer."""

    def query(self, policy: Policy, handle: str) -> WireRequest:
        """Return the request for the answer as it stands, in one piece."""

    def cancel(self, policy: Policy, handle: str) -> WireRequest:
        """Return the request that the provider may stop; what it says to it is of no account."""

    def reader(self, content_type: str, limits: Limits = DEFAULT_LIMITS) -> ResumableReader:
        """Return a reader for an answer of this content type, no larger than `limits`."""


def render(
    adapter: Adapter,
    messages: Iterable[Message],
    policy: Policy,
    tools: Sequence[ToolDeclaration] = (),
    *,
    key: bytes,
) -> Rendering:
    """Return the request for a whole line.

    Raises:
        SequenceRejected: It may not be sent.
    """
    line = adapter.line(policy, tools, key=key)
    for message in messages:
        line.feed(message)
    return line.finish()


class Closed(NamedTuple):
    """A body as it stands, closed by an `ending` that is no part of what it grows from."""

    chunks: tuple[bytes, ...]
    digest: Digest
    body: GrowingBody
    ending: bytes
    sealed_bytes: int
    """How long the body was without its ending: whatever it grows by, this much stays."""


class GrowingBody:
    """A body of which more is always added at the end: kept in pieces, hashed once.

    Finishing forks the running hash, so a turn costs its own bytes. Small pieces are joined to
    larger ones as they come, so that a long body is still few writes.
    """

    __slots__ = (
        "_bytes",
        "_hash",
        "_head_bytes",
        "_sealed",
        "_tail",
        "_tail_bytes",
        "_weighed",
        "_weighed_by",
        "_weighed_bytes",
    )

    def __init__(self, running: Hasher, head: bytes) -> None:
        self._hash = running
        self._sealed: list[bytes] = []
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._bytes = 0
        self._head_bytes = len(head)
        self._weighed, self._weighed_bytes, self._weighed_by = Weight(), 0, ""
        self.append(head)

    def append(self, piece: bytes) -> None:
        """Add `piece`; what was added is never taken back."""
        self._hash.update(piece)
        self._tail.append(piece)
        self._bytes += len(piece)
        self._tail_bytes += len(piece)
        if self._tail_bytes > SEALED_BYTES:
            self._sealed.append(b"".join(self._tail))
            self._tail.clear()
            self._tail_bytes = 0

    def finish(self, ending: bytes) -> Closed:
        """Return the body that ends in `ending`, and the digest of the request."""
        final = self._hash.copy()
        final.update(ending)
        return Closed(
            chunks=(*self._sealed, b"".join((*self._tail, ending))),
            digest=Digest(final.hexdigest()),
            body=self,
            ending=ending,
            sealed_bytes=self._bytes,
        )

    def weigh(self, counter: Counter) -> Weight:
        """Return what stands in it so far, in tokens; what was weighed before is not read again."""
        if self._weighed_by != counter.name:
            self._weighed, self._weighed_bytes, self._weighed_by = Weight(), 0, counter.name
        if not self._weighed_bytes:
            whole = self._from(0)
            self._weighed = weigh_head(whole[: self._head_bytes], counter)
            self._weighed += weigh_items(whole[self._head_bytes :], counter)
        elif self._weighed_bytes < self._bytes:
            self._weighed += weigh_items(self._from(self._weighed_bytes), counter)
        self._weighed_bytes = self._bytes
        return self._weighed

    def believe(self, counter: Counter, weight: Weight) -> None:
        """Take `weight` for what stands in it so far: somebody weighed these very bytes before."""
        self._weighed, self._weighed_bytes, self._weighed_by = weight, self._bytes, counter.name

    @property
    def item_bytes(self) -> int:
        """How long it is behind its head."""
        return self._bytes - self._head_bytes

    def items(self, start: int) -> bytes:
        """Return what stands behind its head, from there the `start`th byte on."""
        return self._from(self._head_bytes + start)

    def _from(self, place: int) -> bytes:
        """Return what stands behind its first `place` bytes, without joining what is before."""
        found: list[bytes] = []
        begins = self._bytes
        for piece in chain(reversed(self._tail), reversed(self._sealed)):
            begins -= len(piece)
            found.append(piece if begins >= place else piece[place - begins :])
            if begins <= place:
                break
        return b"".join(reversed(found))

    def copy(self) -> GrowingBody:
        """Return a body that stands where this one stands."""
        other = object.__new__(GrowingBody)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._hash = self._hash.copy()
        other._sealed = self._sealed.copy()
        other._tail = self._tail.copy()
        return other


def request_hasher(key: bytes, method: str, url: str, headers: Sequence[tuple[str, str]]) -> Hasher:
    """Return the running request digest, up to where the body begins."""
    running = hasher(key, "request")
    head = msgspec.json.encode((method, url, headers))
    running.update(len(head).to_bytes(8, "big"))
    running.update(head)
    return running
