"""What Bedrock's Converse allows, and how a request is spelled: facts only.

The rules are those of the published service model and of refusals that people have reported;
`docs/reason-codes.md` names them one by one. Converse stands before the models of many makers,
and where they differ the id of the model tells some of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.adapters.anthropic.profile import facts_of as facts_of_claude
from antiphon.adapters.anthropic.profile import same_model as same_claude
from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo, Profile

FORMATS: Final[Mapping[str, str]] = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
"""Media types of documents, as the wire names them."""

SOUNDS: Final = frozenset(
    {"mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg"}
    | {"mpga", "pcm", "webm"}
)
"""Formats of recorded sound, as the wire names them."""

BEDROCK_1: Final = Profile(
    name="bedrock",
    # Text of system and developer stands apart; newer models of Claude take it in between too.
    roles=frozenset({Role.USER, Role.ASSISTANT}),
    kinds={
        Role.SYSTEM: frozenset({"text"}),
        Role.DEVELOPER: frozenset({"text"}),
        Role.USER: frozenset({"text", "image", "file"}),
        Role.ASSISTANT: frozenset({"text", "reasoning", "refusal", "tool_call"}),
        Role.TOOL: frozenset({"tool_result"}),
    },
    system_apart=True,
    results_in_user=True,
    starts_with_user=True,
    ends_with_user=True,
    merged_neighbours=True,
    one_message_a_turn=True,
    blank_text=False,
    failures_speak=True,
    object_arguments=True,
    object_schemas=True,
    image_urls=False,
    image_types=frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"}),
    file_types=frozenset(FORMATS),
    file_ids=False,
    files_need_text=True,
    max_images=20,
    max_files=5,
    call_id_pattern="[a-zA-Z0-9_.:-]+",
    call_id_max=64,
    tool_name_pattern="[a-zA-Z0-9_-]{1,64}",
    tools_declared=True,
    tools_derived=True,
    reasoning=Echo.KEPT,
    signed_reasoning=True,
)


BEDROCK: Final = msgspec.structs.replace(
    BEDROCK_1,
    kinds={**BEDROCK_1.kinds, Role.USER: BEDROCK_1.kinds[Role.USER] | {"audio"}},
    audio_formats=SOUNDS,
)
"""Version 2 takes recorded sound in the user's messages; version 1 had no word for it."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What models of different makers take. The defaults hold for most, for ever.

    Attributes:
        signed_reasoning: Reasoning comes with a signature, and goes back only with it.
        result_status: A result says whether it is one of success.
        results_apart: Nothing but results may stand in a message with results.
    """

    signed_reasoning: bool = True
    result_status: bool = True
    results_apart: bool = False


WIRE_FACTS: Final = Wire.__struct_fields__

ALTERNATING: Final = {"strict": True, "free": False, "none": False}
HOME_OF_MODEL: Final = re.compile(r"\A(?:arn:[^/]*/)?(?:(?:us|us-gov|eu|apac|jp|au|ca|global)\.)?")


def facts_of(model: str) -> dict[str, object]:
    """Return what the id of a model says of it; nothing where there is none.

    Example:
        >>> facts_of("meta.llama4-scout-17b-instruct-v1:0")
        {'signed_reasoning': False, 'results_apart': True}
    """
    if "claude" in model:
        return facts_of_claude(model)
    facts: dict[str, object] = {}
    if model:
        facts["signed_reasoning"] = False
    if "llama" in model or "mistral" in model:
        facts["results_apart"] = True
    if "palmyra" in model:
        facts["result_status"] = False
    return facts


def same_model(maker: str | None, reader: str) -> bool:
    """Return whether what `maker` signed may be sent to `reader`, wherever either is at home."""
    if not maker:
        return True
    maker, reader = HOME_OF_MODEL.sub("", maker), HOME_OF_MODEL.sub("", reader)
    if "claude" in maker and "claude" in reader:
        return same_claude(maker, reader)
    return maker == reader
