"""A line that is checked and rendered as it grows: what is the same in every dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from typing import Final, Self

from antiphon.adapters.base import Closed, GrowingBody, Rendering, request_hasher
from antiphon.adapters.tool_names import ToolNames
from antiphon.core.blocks import Message, Role, message_digest
from antiphon.core.digests import fold
from antiphon.core.envelope import enveloped
from antiphon.core.findings import Severity
from antiphon.core.ids import CallId, ConversationId, Digest
from antiphon.core.inputs import InputBlock, digest_beside
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration, WireRequest
from antiphon.core.profile import Profile
from antiphon.core.rules import LineChecker
from antiphon.errors import InternalError, InvalidInput, SequenceRejected

METHOD: Final = "POST"


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
        self._mappings = [*names.mappings]

    @abstractmethod
    def _take(self, message: Message, owed: bool) -> None:
        """Write a message that passed the rules, or hold it while results are `owed` before it."""

    @abstractmethod
    def _closed(self) -> Closed:
        """Return the body as it stands, closed, and the request's digest; it may grow further."""

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
        return other

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
