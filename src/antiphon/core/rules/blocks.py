"""What one dialect refuses in a block or a message, whatever stands around it.

The rules of a line, which need to know what came before, stand in `profile_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Outcome,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from antiphon.core.rules.profile import Profile

MEDIA: Final[frozenset[type]] = frozenset((Image, File))


class Problem(NamedTuple):
    """A rule that a block breaks, and the sentence about it; `part` is that of a result."""

    code: str
    message: str
    part: int | None = None


def particular(profile: Profile, *, mapped: bool) -> frozenset[type]:
    """Return the kinds of blocks that the profile has any of the rules here about."""
    kinds: set[type] = set()
    limits_media = profile.image_types is not None or profile.file_types is not None
    if limits_media or not profile.file_ids:
        kinds |= {Image, File, ToolResult}
    if profile.audio_formats is not None:
        kinds.add(Audio)
    if profile.object_arguments:
        kinds.add(ToolCall)
    if not mapped and (profile.failures_speak or not profile.blank_text):
        kinds.add(ToolResult)
    if not mapped and profile.signed_reasoning:
        kinds.add(Reasoning)
    return frozenset(kinds)


def says_nothing(profile: Profile, text: str) -> bool:
    """Return whether the dialect takes `text` for none at all, and refuses it."""
    if profile.blank_text:
        return not (text or profile.empty_text)
    return not text.strip()


def problems(profile: Profile, block: Block, *, mapped: bool) -> Iterator[Problem]:
    """Yield what the dialect refuses about `block`; nothing that its adapter would put right."""
    match block:
        case ToolCall():
            if profile.object_arguments and block.arguments.lstrip()[:1] not in ("", "{"):
                yield Problem("malformed_item", "The arguments of a call are a JSON object here.")
        case ToolResult():
            yield from _result(profile, block, mapped=mapped)
        case Image() | File():
            yield from _media(profile, block)
        case Audio():
            known = profile.audio_formats
            if known is not None and block.format not in known:
                yield _not_taken(block.format, known)
        case Reasoning():
            if profile.signed_reasoning and not mapped:
                yield from _reasoning(profile, block)
        case _:
            return


def particular_messages(profile: Profile, *, mapped: bool) -> bool:
    """Say whether `of_message` has anything to look for."""
    return (profile.one_message_a_turn and not mapped) or _limits_media(profile)


def of_message(
    profile: Profile, message: Message, before: Message | None, *, mapped: bool
) -> Iterator[Problem]:
    """Yield what the dialect refuses about a message as a whole, and about its neighbour."""
    if profile.one_message_a_turn and not mapped:
        yield from _neighbours(message, before)
    if not MEDIA.isdisjoint(map(type, message.blocks)) and _limits_media(profile):
        yield from _media_together(profile, message)


def _limits_media(profile: Profile) -> bool:
    return (
        profile.max_images is not None or profile.max_files is not None or profile.files_need_text
    )


def _neighbours(message: Message, before: Message | None) -> Iterator[Problem]:
    role = message.role
    if before is None or before.role is not role or role in (Role.SYSTEM, Role.DEVELOPER):
        return
    if role is Role.TOOL:
        yield Problem(
            "result_not_adjacent", "All results of a turn stand in one message here. Merge the two."
        )
    else:
        yield Problem(
            "role_order",
            f"Two {role} messages follow each other, and turns alternate here. Merge them.",
        )


def _media_together(profile: Profile, message: Message) -> Iterator[Problem]:
    kinds = [type(block) for block in message.blocks]
    images, files = kinds.count(Image), kinds.count(File)
    for count, most, kind in (
        (images, profile.max_images, "images"),
        (files, profile.max_files, "files"),
    ):
        if most is not None and count > most:
            yield Problem("too_many_blocks", f"At most {most} {kind} may stand in one message.")
    if profile.files_need_text and files:
        texts = (block.text for block in message.blocks if isinstance(block, Text))
        if not any(text.strip() for text in texts):
            yield Problem(
                "empty_content", "A message with a file needs a text beside it. Say what it is for."
            )


def _result(profile: Profile, result: ToolResult, *, mapped: bool) -> Iterator[Problem]:
    for number, part in enumerate(result.content):
        if isinstance(part, Text):
            if not (profile.blank_text or mapped or part.text):
                yield Problem(
                    "empty_content",
                    "A text in a result may not be empty here. Leave it out; a result without content is fine.",
                    number,
                )
        else:
            yield from (problem._replace(part=number) for problem in _media(profile, part))
    fine = result.outcome is Outcome.SUCCESS or bool(result.content)
    if profile.failures_speak and not (mapped or fine):
        yield Problem("empty_content", "A result that is an error says what went wrong.")


def _media(profile: Profile, block: Image | File) -> Iterator[Problem]:
    known = profile.image_types if type(block) is Image else profile.file_types
    if type(block) is File and block.data is None and not profile.file_ids:
        yield Problem(
            "block_not_allowed",
            "Files are not kept by their ids here. Send the file itself, as base64 data.",
        )
    if known is None or block.data is None or block.media_type is None:
        return
    if block.media_type not in known:
        yield _not_taken(block.media_type, known)


def _not_taken(kind: str, known: frozenset[str]) -> Problem:
    return Problem(
        "block_not_allowed", f"{kind} is not taken here, only {', '.join(sorted(known))}."
    )


def _reasoning(profile: Profile, block: Reasoning) -> Iterator[Problem]:
    if block.opaque is None:
        yield Problem(
            "lost_signature",
            "This thinking lacks its signature. Send the block as it came, or leave it out.",
        )
    elif block.opaque.profile != profile.name:
        yield Problem(
            "foreign_reasoning",
            f"{block.opaque.profile} made this, and only it can read it. Leave it out.",
        )
