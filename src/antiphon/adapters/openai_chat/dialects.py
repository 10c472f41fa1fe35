"""The dialects of OpenAI Chat Completions that have a name: how each differs, and nothing else.

A dialect is never assumed to ignore a field that it does not know: what is not listed for it is
not sent. Facts of one model stand in the configuration, beside its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from antiphon.adapters.openai_chat.profile import OPENAI_CHAT, Wire
from antiphon.core.blocks import Role
from antiphon.core.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What is allowed, and how it is spelled."""

    profile: Profile
    wire: Wire


COMPATIBLE: Final = replace(
    OPENAI_CHAT,
    # Developer text is OpenAI's own; chat templates drop or refuse it.
    roles=frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL}),
    # Nothing asks for a schema to be closed: the grammar is made from the schema itself, or none.
    strict_schemas=False,
)

OPENAI: Final = Dialect(profile=OPENAI_CHAT, wire=Wire())

LLAMACPP: Final = Dialect(
    profile=replace(COMPATIBLE, name="llamacpp"),
    wire=Wire(home="http://127.0.0.1:8080/v1"),
)

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.profile.name: dialect for dialect in (OPENAI, LLAMACPP)
}
