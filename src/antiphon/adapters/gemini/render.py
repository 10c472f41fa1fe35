"""A line as the exact bytes of a generateContent request.

The body begins with everything that does not change from turn to turn, system text last of it,
and `contents` ends it. Answers that follow each other are one content, so the model's last one
stays open: a history that grows leaves every byte before it as it was.

What is mapped on the way, and nothing else is: system and developer text to the top; answers that
follow each other into one content; results into one content, in the order of their calls and
directly behind them; empty texts, names, and state that is not this model's own left out; a
refusal as the text that it is; a published placeholder where a model insists on a signature and
a call has none. Each is told to the manifest.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

import msgspec

from antiphon.adapters.base import GrowingBody, Rendering, request_hasher
from antiphon.adapters.gemini import parts
from antiphon.adapters.gemini.head import head
from antiphon.adapters.gemini.parts import Signed
from antiphon.adapters.gemini.profile import Wire, same_model
from antiphon.core.blocks import (
    Block,
    File,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    block_id,
    message_digest,
)
from antiphon.core.digests import fold
from antiphon.core.findings import Severity
from antiphon.core.ids import CallId, ConversationId, Digest
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration, WireRequest
from antiphon.core.profile import Profile
from antiphon.core.profile_rules import INSTRUCTING
from antiphon.core.rules import LineChecker
from antiphon.errors import InternalError, InvalidInput, SequenceRejected

_encode: Final = msgspec.json.Encoder().encode


class GeminiLine:
    """One line, checked and rendered as it grows."""

    def __init__(
        self,
        profile: Profile,
        wire: Wire,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None,
    ) -> None:
        self._profile = profile
        self._model = policy.model
        self._key = key
        self._checker = LineChecker(profile, tools=tools, key=key, conversation=conversation)
        self._sequence: Digest | None = None
        self._with_ids = wire.call_ids
        self._url = wire.url(policy.endpoint, policy.model, stream=policy.stream)
        self._headers = _headers(policy, wire)
        self._head, self._mappings = head(policy, tools)
        self._system: list[bytes] = []
        self._body: GrowingBody | None = None
        self._sealed: list[bytes] = []
        self._answer: list[bytes] = []  # the content of the model that is still open
        self._calls: dict[CallId, str] = {}  # asked for by it, with the names of their tools
        self._results: dict[CallId, bytes] = {}
        self._waiting: list[Message] = []
        if policy.instructions:
            self._system.append(parts.part(Text(text=policy.instructions)))

    @property
    def open_calls(self) -> tuple[CallId, ...]:
        """The calls that wait for their result."""
        return self._checker.open_calls

    @property
    def call_ids(self) -> Container[str]:
        """The ids of all calls on the line."""
        return self._checker.call_ids

    def feed(self, message: Message, digest: Digest | None = None) -> None:
        """Take the next message of the line.

        Raises:
            InvalidInput: `invalid_unicode`: its text holds half a character, which no request
                can carry.
        """
        owed = self._checker.waiting
        try:
            own = digest or message_digest(self._key, message)
            self._checker.feed(message)
            if not self._checker.refused:
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
        findings = self._checker.finish()
        if any(finding.severity is Severity.ERROR for finding in findings):
            raise SequenceRejected(findings)
        if self._sequence is None:
            raise InternalError("An empty line passed its rules.")
        body = self._body or self._new_body()
        chunks, digest = body.finish(self._ending())
        return Rendering(
            request=WireRequest(method="POST", url=self._url, headers=self._headers, chunks=chunks),
            request_digest=digest,
            sequence_digest=self._sequence,
            mappings=tuple(self._mappings),
        )

    def copy(self) -> GeminiLine:
        """Return a line that stands where this one stands, for another branch."""
        other = object.__new__(GeminiLine)
        other.__dict__.update(self.__dict__)
        other._checker = self._checker.copy()
        other._mappings = self._mappings.copy()
        other._system = self._system.copy()
        other._body = self._body and self._body.copy()
        other._sealed = self._sealed.copy()
        other._answer = self._answer.copy()
        other._calls = self._calls.copy()
        other._results = self._results.copy()
        other._waiting = self._waiting.copy()
        return other

    # Order: what goes out after what.

    def _take(self, message: Message, owed: bool) -> None:
        if message.role is Role.TOOL:
            for order, block in enumerate(message.blocks):
                if isinstance(block, ToolResult):
                    self._result(block_id(message.id, order), block)
            if not self._checker.waiting:
                self._answered(message)
        elif owed:
            self._waiting.append(message)  # its calls are owed their results first
        else:
            self._place(message)

    def _answered(self, last: Message) -> None:
        """Put the results of a step into one content, in the order of its calls."""
        if list(self._results) != list(self._calls):
            self._map("results_reordered", last.id, "to the order of their calls")
        self._seal_answer()
        self._seal(_content("user", [self._results[call_id] for call_id in self._calls]))
        self._calls, self._results = {}, {}
        for late in self._waiting:
            self._map("result_hoisted", late.id, "sent after the results that it stood before")
            self._place(late)
        self._waiting.clear()

    def _place(self, message: Message) -> None:
        content = self._content(message)
        if message.name is not None:
            self._map("name_dropped", message.id)
        if not content:
            self._map("empty_message_dropped", message.id)
        elif message.role in INSTRUCTING:
            self._instruct(message, content)
        elif message.role is Role.ASSISTANT:
            if self._answer:
                self._map("merged_same_role", message.id, "into the model's content before it")
            self._answer += content
            self._calls |= {call.call_id: call.name for call in message.calls}
        else:
            self._seal_answer()
            self._seal(_content("user", content))

    def _instruct(self, message: Message, content: list[bytes]) -> None:
        if message.role is Role.DEVELOPER:
            self._map("developer_as_system", message.id)
        self._system += content
        if self._sealed or self._answer:
            # All that was sent before moves.
            self._map("system_hoisted", message.id, "to the top of the request")
            self._body = self._new_body() if self._sealed else None

    def _seal_answer(self) -> None:
        if self._answer:
            self._seal(_content("model", self._answer))
            self._answer = []

    def _seal(self, piece: bytes) -> None:
        if self._sealed:
            piece = b"," + piece
        if self._body is None:
            self._body = self._new_body()
        self._body.append(piece)
        self._sealed.append(piece)

    def _ending(self) -> bytes:
        if not self._answer:
            return b"]}"
        comma = b"," if self._sealed else b""
        return comma + _content("model", self._answer) + b"]}"

    def _new_body(self) -> GrowingBody:
        body = GrowingBody(request_hasher(self._key, "POST", self._url, self._headers))
        system = [b'"systemInstruction":{"parts":[' + b",".join(self._system) + b"]}"]
        members = [*self._head, *(system if self._system else ()), b'"contents":[']
        body.append(b"{" + b",".join(members))
        for piece in self._sealed:
            body.append(piece)
        return body

    # Content: one message of ours as parts of theirs.

    def _content(self, message: Message) -> list[bytes]:
        content: list[bytes] = []
        first_call = True
        for order, block in enumerate(message.blocks):
            at = block_id(message.id, order)
            match block:
                case ToolCall():
                    content.append(self._call(at, block, first_call))
                    first_call = False
                case Reasoning():
                    kept = self._reasoning(at, block, message.blocks[:order])
                    if kept is not None:
                        content.append(kept)
                case _:
                    state = self._rides(message.blocks, order)
                    if state is None and isinstance(block, Text) and not block.text:
                        self._map("empty_text_dropped", at)
                        continue
                    if isinstance(block, Refusal):
                        self._map("refusal_as_text", at)
                    if isinstance(block, File) and block.filename is not None:
                        self._map("filename_dropped", at)
                    content.append(parts.part(block, state))
        return content

    def _rides(self, blocks: Sequence[Block], order: int) -> Opaque | None:
        """Return the state behind a part that signs it, if it may go back."""
        after = blocks[order + 1] if order + 1 < len(blocks) else None
        if not isinstance(after, Reasoning) or after.opaque is None or self._foreign(after.opaque):
            return None
        return after.opaque if parts.signed(after.opaque) is Signed.TEXT else None

    def _reasoning(self, at: str, block: Reasoning, before: Sequence[Block]) -> bytes | None:
        """Return a part that people do not read, or None where it is none of its own."""
        state = block.opaque
        reason = "nobody signed it" if state is None else self._foreign(state)
        if state is None or reason:
            self._map("reasoning_dropped", at, reason)
            return None
        rides = bool(before) and not isinstance(before[-1], ToolCall | Reasoning)
        if rides and parts.signed(state) is Signed.TEXT:
            return None  # it went out on the part before it
        return parts.kept(block.text, state)

    def _foreign(self, state: Opaque) -> str:
        """Return why state may not go to this model, or nothing."""
        if state.profile != self._profile.name:
            return f"{state.profile} made it"
        if not state.work and not same_model(state.model, self._model):
            return f"{state.model} signed it"
        return ""

    def _call(self, at: str, block: ToolCall, first: bool) -> bytes:
        state, more = block.opaque, {}
        reason = "" if state is None else self._foreign(state)
        if reason:
            self._map("signature_dropped", at, reason)
        elif state is not None:
            more = parts.signature(state)
        if first and not more and self._profile.signed_calls:
            self._map("signature_replaced", at, "by the placeholder for calls that have none")
            more = {parts.SIGNATURE: parts.PLACEHOLDER}
        arguments = block.arguments
        if not arguments.strip():
            self._map("empty_arguments", at, "as an empty object")
            arguments = "{}"
        return parts.call(block, block.call_id if self._with_ids else None, arguments, more)

    def _result(self, at: str, block: ToolResult) -> None:
        if any(isinstance(inner, File) and inner.filename is not None for inner in block.content):
            self._map("filename_dropped", at)
        call_id = block.call_id
        name = self._calls[call_id]
        self._results[call_id] = parts.result(block, name, call_id if self._with_ids else None)

    def _map(self, rule: str, at: str, detail: str = "") -> None:
        self._mappings.append(Mapping(rule=rule, block=at, detail=detail))


def _content(role: str, content: Sequence[bytes]) -> bytes:
    return b'{"role":"%s","parts":[%s]}' % (role.encode(), b",".join(content))


def _headers(policy: Policy, wire: Wire) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted(
            {
                "accept": "text/event-stream" if policy.stream else "application/json",
                "content-type": "application/json",
                wire.key_header: "",  # the key is put there at the socket
            }.items()
        )
    )
