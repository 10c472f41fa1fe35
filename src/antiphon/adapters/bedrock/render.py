"""A line as the exact bytes of a Converse request: what is Bedrock's own in it.

The order of things, and most of what is mapped on the way, stand in `antiphon.adapters.turns`.
Mapped here: the tools of a history that nobody declares, since the service refuses calls
without any; the names of files; and a turn of one character between results and what may not
stand beside them: documents, and for some models anything at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from antiphon.adapters.bedrock import parts
from antiphon.adapters.bedrock.head import declared, head, headers, url
from antiphon.adapters.bedrock.profile import Wire, same_model
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.adapters.turns import ASSISTANT, USER, Start, TurnsLine
from antiphon.core.blocks import (
    Block,
    File,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
)
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.profile import Profile

TOOLING: Final = (b'{"toolUse":', b'{"toolResult":')
DOCUMENT: Final = b'{"document":'
BETWEEN: Final = b'{"text":"."}'
"""What a turn says that is only there to part two others: the wire takes no blank one."""


class BedrockLine(TurnsLine):
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
        names = ToolNames(profile, tools)
        before, mapped = head(names.chosen(policy), names.declared)
        start = Start(url(policy), headers(policy), before, names)
        super().__init__(profile, policy, tools, start, key=key, conversation=conversation)
        self._wire = wire
        self._mappings += mapped
        self._declared = bool(tools)
        self._undeclared: dict[str, None] = {}
        self._filenames: dict[str, int] = {}

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""
        other = super().copy()
        other._undeclared = self._undeclared.copy()
        other._filenames = self._filenames.copy()
        return other

    def _rest(self) -> msgspec.Struct | None:
        # What was named or declared for good is not told of: such a line is read again.
        return None if self._undeclared or self._filenames else super()._rest()

    def _part(self, block: Block, at: str) -> bytes:
        return parts.part(block, at, self._name(block, at) if isinstance(block, File) else "")

    def _call(self, block: ToolCall, call_id: str, arguments: str) -> bytes:
        return parts.call(block, call_id, arguments)

    def _asked(self, at: str, block: ToolCall) -> bytes:
        if not self._declared and block.name not in self._undeclared:
            self._map("tool_declared", at, f"{block.name}, since the history calls it")
            self._undeclared[block.name] = None
        return super()._asked(at, block)

    def _result(self, block: ToolResult, call_id: str, at: str) -> bytes:
        content = [
            parts.returned(inner.text) if isinstance(inner, Text) else self._part(inner, at)
            for inner in block.content
            if not parts.is_blank(inner)
        ]
        return parts.result(block, call_id, content, status=self._wire.result_status)

    def _kept(self, text: str, opaque: Opaque) -> bytes:
        return parts.kept(text, opaque)

    def _same_model(self, maker: str | None) -> bool:
        return same_model(maker, self._model)

    def _closing(self) -> bytes:
        if not self._undeclared:
            return b"]}"
        return b'],"toolConfig":' + declared(self._undeclared) + b"}"

    def _add(self, speaker: str, content: list[bytes]) -> None:
        """Put content at the end; what may not stand beside a result is given a turn of its own."""
        if self._wire.results_apart:
            for piece in content:
                last = self._turn[-1:] if self._speaker == speaker else []
                if last and _is_tooling(last[0]) is not _is_tooling(piece):
                    self._insert(USER if speaker == ASSISTANT else ASSISTANT)
                super()._add(speaker, [piece])
            return
        beside_results = speaker == self._speaker and any(map(_is_tooling, self._turn))
        if beside_results and any(piece.startswith(DOCUMENT) for piece in content):
            self._insert(ASSISTANT)
        super()._add(speaker, content)

    def _insert(self, speaker: str) -> None:
        self._map("turn_inserted", "messages", f"of the {speaker}, to part what may not be joined")
        super()._add(speaker, [BETWEEN])

    def _name(self, file: File, at: str) -> str:
        """Return the name of a file, unlike that of any file before it."""
        stem = name = parts.document_name(file.filename)
        while name in self._filenames:
            self._filenames[stem] += 1
            name = f"{stem[:190]} ({self._filenames[stem]})"
        self._filenames[name] = 1
        if name != file.filename:
            self._map("file_renamed", at, name)
        return name


def _is_tooling(piece: bytes) -> bool:
    return piece.startswith(TOOLING)
