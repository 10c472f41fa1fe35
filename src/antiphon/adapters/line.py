"""A line that is checked and rendered as it grows: what is the same in every dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, Self

import msgspec

from antiphon.adapters.base import Closed, GrowingBody, Rendering, Rested, request_hasher
from antiphon.adapters.naming.call_ids import CallIds
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.blocks import (
    Block,
    File,
    Image,
    Message,
    Role,
    Text,
    ToolResult,
    block_id,
    message_digest,
    part_id,
)
from antiphon.core.digests import fold
from antiphon.core.ids import CallId, ConversationId, Digest
from antiphon.core.inputs import InputBlock, digest_beside
from antiphon.core.knowledge.envelope import enveloped
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration, WireRequest
from antiphon.core.rules.findings import Severity
from antiphon.core.rules.graph import LineChecker
from antiphon.core.rules.profile import Profile
from antiphon.errors import InternalError, InvalidInput, SequenceRejected

METHOD: Final = "POST"


MEDIUM_DESCRIBED: Final = "medium_described"
"""Rule by which words stand for an image or a file of a tool's result that this wire cannot carry."""


class _Told(NamedTuple):
    """How much of a line has been told of, where it rested last."""

    messages: int = 0
    answered: int = 0
    mappings: int = 0
    call_ids: int = 0
    tool_names: int = 0
    item_bytes: int = 0


class Line(ABC):
    """A `RenderedLine` of one dialect, which says how a message is written and what ends the body.

    Every message passes the rules before it is written, and nothing is written any more once one
    was refused: what could not be sent need not be rendered.
    """

    def __init__(
        self,
        profile: Profile,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        names: ToolNames,
        *,
        url: str,
        headers: tuple[tuple[str, str], ...],
        key: bytes,
        conversation: ConversationId | None,
    ) -> None:
        self._profile = profile
        self._model = policy.model
        self._key = key
        self._url = url
        self._headers = headers
        self._checker = LineChecker(profile, tools=tools, key=key, conversation=conversation)
        self._sequence: Digest | None = None
        self._context: Sequence[InputBlock] = policy.context
        self._names = names
        self._ids = CallIds(profile)
        self._mappings = [*names.mappings]
        self._told = _Told()

    @abstractmethod
    def _take(self, message: Message, owed: bool) -> None:
        """Write a message that passed the rules, or hold it while results are `owed` before it."""

    @abstractmethod
    def _closed(self) -> Closed:
        """Return the body as it stands, closed, and the request's digest; it may grow further."""

    @abstractmethod
    def _growing(self) -> tuple[GrowingBody, int] | None:
        """Return the body, and how many bytes behind its head its items begin; None before any."""

    @abstractmethod
    def _rest(self) -> msgspec.Struct | None:
        """Return what else the next message goes by, small; None where the line does not rest."""

    @abstractmethod
    def _stand(self, items: bytes, rest: bytes) -> None:
        """Stand behind `items` by what `_rest` had said, as JSON."""

    @property
    def open_calls(self) -> tuple[CallId, ...]:
        """The calls that wait for their result."""
        return self._checker.open_calls

    @property
    def call_ids(self) -> Container[str]:
        """The ids of all calls on the line."""
        return self._checker.call_ids

    @property
    def tool_names(self) -> ToolNames:
        """How its tools are named on the wire."""
        return self._names

    def feed(
        self,
        message: Message,
        digest: Digest | None = None,
        *,
        inputs: Sequence[InputBlock] = (),
    ) -> None:
        """Take the next message of the line, and what stands beside it.

        Raises:
            InvalidInput: `invalid_unicode`: its text holds half a character, which no request
                can carry; or a dialect's own word for data that is not what it says.
        """
        checker = self._checker
        owed = checker.waiting
        try:
            own = digest or message_digest(self._key, message)
            if inputs:
                own = digest_beside(self._key, own, inputs)
            if self._context and message.role is Role.USER:
                inputs, self._context = (*self._context, *inputs), ()
            if inputs:
                message = enveloped(message, inputs)
            message = self._presentable(message)
            checker.feed(message)
            if not checker.refused:
                if message.role is Role.ASSISTANT:
                    message = self._names.told(message, self._mappings)
                self._take(message, owed)
        except UnicodeEncodeError:
            raise InvalidInput(
                "The text holds half a surrogate pair, which no request can carry.",
                code="invalid_unicode",
                at=message.id,
            ) from None
        self._sequence = fold(self._key, self._sequence, own)

    def _presentable(self, message: Message) -> Message:
        """Return the message with words in place of what no result may hold here; each is listed.

        A tool of a run may return any image or file, and the run has to be able to go on from it.
        What a client brings is its own to mend, and is refused.
        """
        if message.role is not Role.TOOL or message.run is None:
            return message
        places = dict(_media(message))
        if not places:
            return message
        probe = self._checker.copy()
        probe.feed(message)
        found = {one.at for one in probe.finish() if one.severity is Severity.ERROR}
        refused = places.keys() & found
        if not refused:
            return message
        for at in places:
            if at in refused:
                self._map(MEDIUM_DESCRIBED, at, places[at].media_type or "")
        return msgspec.structs.replace(
            message,
            blocks=tuple(
                _described(block, block_id(message.id, order), refused)
                for order, block in enumerate(message.blocks)
            ),
        )

    def finish(self) -> Rendering:
        """Return the request for the line as it stands; it may be fed further afterwards.

        Raises:
            SequenceRejected: It may not be sent.
        """
        self._judge()
        return self._rendering()

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch.

        A dialect copies beside what of its own is changed in place.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._checker = self._checker.copy()
        other._mappings = self._mappings.copy()
        other._names = self._names.copy()
        other._ids = self._ids.copy()
        return other

    def rested(self, least_bytes: int) -> Rested | None:
        """Return what has come since the line was last told of, and how it stands now.

        None while that is less than `least_bytes`, and where the line does not rest: its next
        message may go by more than can be told.
        """
        told, growing = self._told, self._growing()
        if growing is None or self._sequence is None or self._context:
            return None
        body, begin = growing
        length = body.item_bytes - begin
        if length - told.item_bytes < least_bytes:
            return None
        judged, rest = self._checker.rested(told.messages, told.answered), self._rest()
        if judged is None or rest is None:
            return None
        self._told = _Told(
            messages=told.messages + len(judged.messages),
            answered=told.answered + len(judged.answered),
            mappings=len(self._mappings),
            call_ids=len(self._ids.theirs),
            tool_names=len(self._names.theirs),
            item_bytes=length,
        )
        return Rested(
            judged=judged,
            sequence=self._sequence,
            mappings=tuple(self._mappings[told.mappings :]),
            call_ids=dict(islice(self._ids.theirs.items(), told.call_ids, None)),
            tool_names=dict(islice(self._names.theirs.items(), told.tool_names, None)),
            items=body.items(begin + told.item_bytes),
            rest=msgspec.json.encode(rest),
        )

    def resume(self, rested: Sequence[Rested], last: Message) -> None:
        """Stand where a line rested that told this, the eldest first; its `last` message given.

        To be asked of a new line of the same policy and tools. What is fed next, a user's message
        first, is judged and rendered as it would have been there.
        """
        self._checker.resume([part.judged for part in rested], last)
        self._sequence = rested[-1].sequence
        self._context = ()
        self._mappings = [*chain.from_iterable(part.mappings for part in rested)]
        for part in rested:
            self._ids.take(part.call_ids)
            self._names.take(part.tool_names)
        items = b"".join([part.items for part in rested])
        self._stand(items, rested[-1].rest)
        self._told = _Told(
            messages=sum(len(part.judged.messages) for part in rested),
            answered=sum(len(part.judged.answered) for part in rested),
            mappings=len(self._mappings),
            call_ids=len(self._ids.theirs),
            tool_names=len(self._names.theirs),
            item_bytes=len(items),
        )

    def _judge(self) -> None:
        """Raise `SequenceRejected` where the line may not be sent as it stands."""
        findings = self._checker.finish()
        if any(finding.severity is Severity.ERROR for finding in findings):
            raise SequenceRejected(findings)
        if self._sequence is None:
            raise InternalError("An empty line passed its rules.")

    def _rendering(self) -> Rendering:
        """Return the request for a line that was judged."""
        assert self._sequence is not None
        closed = self._closed()
        return Rendering(
            request=WireRequest(
                method=METHOD, url=self._url, headers=self._headers, chunks=closed.chunks
            ),
            request_digest=closed.digest,
            closed=closed,
            sequence_digest=self._sequence,
            mappings=tuple(self._mappings),
        )

    def _begun(self, head: bytes) -> GrowingBody:
        """Return a body that begins with `head`."""
        return GrowingBody(request_hasher(self._key, METHOD, self._url, self._headers), head)

    def _map(self, rule: str, at: str, detail: str = "") -> None:
        """Note what was changed on the way; the manifest tells of it."""
        self._mappings.append(Mapping(rule=rule, block=at, detail=detail))


def _media(message: Message) -> Iterator[tuple[str, Image | File]]:
    """Yield what of a message's results is no text, with its place."""
    for order, block in enumerate(message.blocks):
        if isinstance(block, ToolResult):
            for number, part in enumerate(block.content):
                if not isinstance(part, Text):
                    yield part_id(block_id(message.id, order), number), part


def _described(block: Block, name: str, refused: Container[str]) -> Block:
    if not isinstance(block, ToolResult):
        return block
    content = tuple(
        Text(text=_words(part))
        if not isinstance(part, Text) and part_id(name, number) in refused
        else part
        for number, part in enumerate(block.content)
    )
    return msgspec.structs.replace(block, content=content)


def _words(part: Image | File) -> str:
    what = part.media_type or ("image" if isinstance(part, Image) else "file")
    size = "" if part.data is None else f" of {len(part.data) * 3 // 4} bytes"
    return f"[{what}{size}: this model cannot be shown it. Ask for it in another form.]"
