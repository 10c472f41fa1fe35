"""Names of tools as a provider takes them, in declarations, in the history and in a choice of tool.

What is declared is settled first, by the names alone and not by their order: whoever bears a
name that the provider takes keeps it. What only the history calls comes behind, as the line
grows, so that nothing which was sent is ever spelled otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

import msgspec

from antiphon.adapters.naming.spellings import Spellings
from antiphon.core.blocks import Message, ToolCall, block_id
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration
from antiphon.core.rules.options import CHOSEN
from antiphon.core.rules.profile import Profile
from antiphon.errors import InvalidInput

FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")
"""What stands in no name that every dialect takes."""

LONGEST: Final = 64


class ToolNames(Spellings[str]):
    """How the tools of one line are named to the provider.

    Attributes:
        declared: The declarations as they go out.
        mappings: Which of them go out under another name than their own.
    """

    __slots__ = ("_pattern", "declared", "mappings")

    def __init__(self, profile: Profile, tools: Sequence[ToolDeclaration]) -> None:
        super().__init__()
        self._pattern = re.compile(profile.tool_name_pattern) if profile.tool_name_pattern else None
        for name in sorted((tool.name for tool in tools), key=lambda n: (not self._fits(n), n)):
            self.sent_as(name)
        self.declared: Final = tuple(self._respelled(tool) for tool in tools)
        self.mappings: Final = tuple(
            _mapping(f"tools[{number}]", ours.name, theirs.name)
            for number, (ours, theirs) in enumerate(zip(tools, self.declared, strict=True))
            if ours.name != theirs.name
        )

    def chosen(self, policy: Policy) -> Policy:
        """Return `policy` with the tool that it chooses, if it does, by the name of the wire."""
        choice = policy.tool_choice
        if choice is None or not choice.startswith(CHOSEN):
            return policy
        name = self.sent_as(choice.removeprefix(CHOSEN))
        return msgspec.structs.replace(policy, tool_choice=CHOSEN + name)

    def told(self, message: Message, mappings: list[Mapping]) -> Message:
        """Return the model's `message` with its calls by the names of the wire; what changes is added to `mappings`."""
        if self._pattern is None:
            return message
        blocks = message.blocks
        for order, block in enumerate(blocks):
            if type(block) is ToolCall and (name := self.sent_as(block.name)) != block.name:
                mappings.append(_mapping(block_id(message.id, order), block.name, name))
                respelled = msgspec.structs.replace(block, name=name)
                blocks = (*blocks[:order], respelled, *blocks[order + 1 :])
        return (
            message if blocks is message.blocks else msgspec.structs.replace(message, blocks=blocks)
        )

    def _respelled(self, tool: ToolDeclaration) -> ToolDeclaration:
        name = self.sent_as(tool.name)
        return tool if name == tool.name else msgspec.structs.replace(tool, name=name)

    def _fits(self, spelling: str) -> bool:
        return self._pattern is None or self._pattern.fullmatch(spelling) is not None

    def _made_from(self, name: str) -> Iterator[str]:
        """Yield names that still tell people and models what they stand for, and end in a digest.

        Raises:
            InvalidInput: `bad_tool_name`: the profile takes no name of this form.
        """
        stem = FOREIGN.sub("_", name)
        if not stem[:1].isalpha():
            stem = f"tool_{stem}"
        for number in count():
            mark = digest(NO_KEY, "tool name", name.encode(), str(number).encode())[:8]
            spelling = f"{stem[: LONGEST - len(mark) - 1]}_{mark}"
            if not self._fits(spelling):
                break
            yield spelling
        raise InvalidInput(
            "No name could be made for this tool that the provider takes.",
            code="bad_tool_name",
            at=name,
        )


def _mapping(at: str, ours: str, theirs: str) -> Mapping:
    return Mapping(rule="tool_name_respelled", block=at, detail=f"{ours} as {theirs}")
