"""What both wires of Gemini share of a line: how it grows, and what goes out after what.

The body begins with everything that does not change from turn to turn, system text last of it,
and what was said ends it: a history that grows leaves every byte before it as it was. How a
message is written is left to the wire.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import msgspec

from antiphon.adapters.base import Closed, GrowingBody
from antiphon.adapters.gemini.profile import same_model
from antiphon.adapters.line import Line
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.blocks import (
    Message,
    Opaque,
    Role,
    Text,
    ToolCall,
    ToolResult,
    block_id,
)
from antiphon.core.ids import CallId, ConversationId
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration
from antiphon.core.rules.dialect import INSTRUCTING
from antiphon.core.rules.profile import Profile


class Start(NamedTuple):
    """What of a request does not depend on its line."""

    url: str
    headers: tuple[tuple[str, str], ...]
    members: list[bytes]
    """Of the body, up to its system text."""
    mappings: list[Mapping]
    names: ToolNames
    """Those that its tools are declared by."""


class _Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What a line goes on by where it rests: its system text, and the content that is open."""

    system: list[str]
    answer: list[str]


_decode_rest: Final = msgspec.json.Decoder(_Rest).decode


class GeminiLine(Line):
    """One line, checked and rendered as it grows. A wire fills in what is its own."""

    def __init__(
        self,
        profile: Profile,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        start: Start,
        *,
        key: bytes,
        conversation: ConversationId | None,
    ) -> None:
        super().__init__(
            profile,
            policy,
            tools,
            start.names,
            url=start.url,
            headers=start.headers,
            key=key,
            conversation=conversation,
        )
        self._start = start
        self._mappings += start.mappings
        self._system: list[str] = [policy.instructions] if policy.instructions else []
        self._body: GrowingBody | None = None
        self._sealed: list[bytes] = []
        self._calls: dict[CallId, str] = {}  # that are owed their results, and their tools
        self._results: dict[CallId, bytes] = {}
        self._waiting: list[Message] = []

    # What each wire says in its own way.

    @abstractmethod
    def _content(self, message: Message) -> list[bytes]:
        """Return what a message of a user or of the model says, piece by piece."""

    @abstractmethod
    def _add(self, message: Message, content: list[bytes]) -> None:
        """Put the pieces of a message at the end."""

    @abstractmethod
    def _result(self, block: ToolResult, name: str) -> bytes:
        """Return a result of a call of the tool `name`."""

    @abstractmethod
    def _add_results(self, last: Message) -> None:
        """Put the results of a step at the end; `last` is the message that completed them."""

    @abstractmethod
    def _opening(self) -> bytes:
        """Return the body from its system text to where the conversation begins."""

    def _open_end(self) -> bytes:
        """Return what was said and may still be added to."""
        return b""

    def _opened(self) -> list[str]:
        """Return it piece by piece."""
        return []

    def _open(self, pieces: list[str]) -> None:
        """Let these pieces be what may still be added to."""

    def _closed(self) -> Closed:
        body = self._body or self._new_body()
        end = self._open_end()
        comma = b"," if self._sealed and end else b""
        return body.finish(comma + end + b"]}")

    def _growing(self) -> tuple[GrowingBody, int] | None:
        return (self._body, 0) if self._body is not None else None

    def _rest(self) -> _Rest | None:
        owed = self._waiting or self._calls
        return None if owed else _Rest(system=self._system, answer=self._opened())

    def _stand(self, items: bytes, rest: bytes) -> None:
        stood = _decode_rest(rest)
        self._system = stood.system
        self._sealed = [items] if items else []
        self._body = self._new_body()
        self._open(stood.answer)

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""
        other = super().copy()
        other._system = self._system.copy()
        other._body = self._body and self._body.copy()
        other._sealed = self._sealed.copy()
        other._calls = self._calls.copy()
        other._results = self._results.copy()
        other._waiting = self._waiting.copy()
        return other

    def _take(self, message: Message, owed: bool) -> None:
        if message.role is Role.TOOL:
            for block in message.blocks:
                if isinstance(block, ToolResult):
                    self._results[block.call_id] = self._result(block, self._calls[block.call_id])
            if not self._checker.waiting:
                self._answered(message)
        elif owed and not message.calls:
            self._waiting.append(message)  # the calls before it are owed their results first
        else:
            self._place(message)

    def _answered(self, last: Message) -> None:
        self._add_results(last)
        self._calls, self._results = {}, {}
        for late in self._waiting:
            self._map("result_hoisted", late.id, "sent after the results that it stood before")
            self._place(late)
        self._waiting.clear()

    def _place(self, message: Message) -> None:
        instructs = message.role in INSTRUCTING
        content = [] if instructs else self._content(message)
        if message.name is not None:
            self._map("name_dropped", message.id)
        if instructs:
            self._instruct(message)
        elif content:
            self._add(message, content)
        else:
            self._map("empty_message_dropped", message.id)
        if message.role is Role.ASSISTANT:
            self._calls |= {call.call_id: call.name for call in message.calls}

    def _instruct(self, message: Message) -> None:
        if message.role is Role.DEVELOPER:
            self._map("developer_as_system", message.id)
        for order, block in enumerate(message.blocks):
            if isinstance(block, Text) and block.text:
                self._system.append(block.text)
            else:
                self._map("empty_text_dropped", block_id(message.id, order))
        if self._sealed or self._open_end():
            # All that was sent before moves.
            self._map("system_hoisted", message.id, "to the top of the request")
            self._body = self._new_body() if self._sealed else None

    def _seal(self, piece: bytes) -> None:
        if self._sealed:
            piece = b"," + piece
        if self._body is None:
            self._body = self._new_body()
        self._body.append(piece)
        self._sealed.append(piece)

    def _new_body(self) -> GrowingBody:
        body = self._begun(b"{" + b",".join([*self._start.members, self._opening()]))
        for piece in self._sealed:
            body.append(piece)
        return body

    # What is alike in both.

    def _foreign(self, state: Opaque) -> str:
        """Return why state may not go to this model, or nothing."""
        if state.profile != self._profile.name:
            return f"{state.profile} made it"
        if not state.work and not same_model(state.model, self._model):
            return f"{state.model} signed it"
        return ""

    def _arguments(self, at: str, block: ToolCall) -> str:
        if block.arguments.strip():
            return block.arguments
        self._map("empty_arguments", at, "as an empty object")
        return "{}"
