"""A line as the exact bytes of an Anthropic Messages request: what is Anthropic's own in it.

The order of things, and what is mapped on the way, stand in `antiphon.adapters.turns`.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.adapters.anthropic import parts
from antiphon.adapters.anthropic.head import head
from antiphon.adapters.anthropic.profile import HOME, Wire, same_model
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.adapters.turns import Start, TurnsLine
from antiphon.core.blocks import Block, Opaque, ToolCall, ToolResult
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.profile import Profile


class AnthropicLine(TurnsLine):
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
        before = head(names.chosen(policy), names.declared, wire)
        start = Start(_url(policy.endpoint), _headers(policy, wire), before, names)
        super().__init__(profile, policy, tools, start, key=key, conversation=conversation)

    def _part(self, block: Block, at: str) -> bytes:
        return parts.part(block, at)

    def _call(self, block: ToolCall, call_id: str, arguments: str) -> bytes:
        return parts.call(block, call_id, arguments)

    def _result(self, block: ToolResult, call_id: str, at: str) -> bytes:
        return parts.result(block, call_id, at)

    def _kept(self, text: str, opaque: Opaque) -> bytes:
        return parts.kept(text, opaque)

    def _is_of_text(self, opaque: Opaque) -> bool:
        return opaque.profile == self._profile.name and parts.cites(opaque)

    def _citing(self, text: bytes, opaque: Opaque) -> bytes:
        return parts.citing(text, opaque)

    def _same_model(self, maker: str | None) -> bool:
        return same_model(maker, self._model)


def _url(endpoint: str) -> str:
    """Return where requests go. An address may name the version of the path, as others do."""
    return f"{(endpoint or HOME).rstrip('/').removesuffix('/v1')}/v1/messages"


def _headers(policy: Policy, wire: Wire) -> tuple[tuple[str, str], ...]:
    headers = {
        "accept": "text/event-stream" if policy.stream else "application/json",
        "anthropic-version": wire.api_version,
        "content-type": "application/json",
        "x-api-key": "",  # the key is put there at the socket
    }
    if wire.beta is not None:
        headers["anthropic-beta"] = wire.beta
    return tuple(sorted(headers.items()))
