"""Conversations as lines of JSON: what `antiphon export` writes and `antiphon import` reads.

The first line says which format this is. A `conversation` line is followed by its messages,
one a line and parents before children, so a file that was cut anywhere still holds whole
messages with whole lines above them. Each line stands alone: `grep` finds a message, and a
damaged line costs nobody else's meaning.

    {"kind":"export","version":1}
    {"kind":"conversation","id":"conv_…","title":null,"head":"msg_b","messages":2,…}
    {"kind":"message","id":"msg_a","parent_id":null,"role":"user","blocks":[…],…}
    {"kind":"message","id":"msg_b","parent_id":"msg_a","role":"assistant","blocks":[…],…}

Nothing here knows a file or a store: lines in, values out. What a file claims is never taken
for more than its bringer may vouch for: see `as_imported`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import msgspec

from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Role,
    Status,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
    decode_blocks,
)
from antiphon.core.ids import ConversationId, MessageId, message_id
from antiphon.core.inputs import INPUT_KINDS
from antiphon.errors import AntiphonError, Conflict, InvalidInput, Refused

VERSION: Final = 1

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Longer than any message a provider takes; an endless line must not fill the memory."""


_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Export(msgspec.Struct, frozen=True, tag_field="kind", tag="export"):
    version: int


class _Conversation(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="conversation",
    forbid_unknown_fields=True,
):
    id: str
    title: str | None = None
    head: str | None = None
    messages: int | None = None
    created_ms: _Time = 0
    metadata: dict[str, str] = {}
    erased_ms: _Time | None = None


class _Message(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="message",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A message as it stands in a file. A field that is not known is refused, never dropped."""

    id: str
    parent_id: str | None
    role: Role
    blocks: list[msgspec.Raw]
    conversation_id: str | None = None
    status: Status = Status.SUCCESS
    error_code: str | None = None
    origin: Origin = Origin.IMPORTED
    trust: Trust = Trust.USER
    created_ms: _Time = 0
    name: str | None = None
    copied_from: str | None = None
    metadata: dict[str, str] = {}
    deleted: bool = False
    erased: bool = False


class _Kind(msgspec.Struct, frozen=True):
    kind: str


_Line: TypeAlias = _Export | _Conversation | _Message

_encode: Final = msgspec.json.Encoder().encode
_encode_deterministic: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(_Line).decode
_decode_kind: Final = msgspec.json.Decoder(_Kind).decode
_is_json: Final = msgspec.json.Decoder(msgspec.Raw).decode

_TREE_KINDS: Final = frozenset(
    str(kind.__struct_config__.tag) for kind in Block.__args__ if kind.__struct_config__.tag
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """One conversation of a file: every message, canceled, failed and deleted ones included."""

    id: ConversationId
    title: str | None = None
    head: MessageId | None = None
    created_ms: int = 0
    metadata: Mapping[str, str]
    erased_ms: int | None = None
    messages: tuple[Message, ...]
    deleted: frozenset[MessageId] = frozenset()
    announced: int | None = None

    @property
    def missing(self) -> int:
        """How many messages the file promised and does not hold."""
        return max(0, (self.announced or 0) - len(self.messages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What a file holds. `torn_line` is the number of a last line that was cut, and left out."""

    conversations: tuple[Archived, ...]
    torn_line: int | None = None


def write(conversations: Iterable[Archived]) -> Iterator[bytes]:
    """Yield the lines of a file that holds `conversations`, each with its newline."""
    yield _encode(_Export(version=VERSION)) + b"\n"
    for archived in conversations:
        yield (
            _encode(
                _Conversation(
                    id=archived.id,
                    title=archived.title,
                    head=archived.head,
                    messages=len(archived.messages),
                    created_ms=archived.created_ms,
                    metadata=dict(archived.metadata),
                    erased_ms=archived.erased_ms,
                )
            )
            + b"\n"
        )
        for message in archived.messages:
            yield _encode(_written(message, message.id in archived.deleted)) + b"\n"


def _written(message: Message, deleted: bool) -> _Message:
    return _Message(
        id=message.id,
        parent_id=message.parent,
        conversation_id=message.conversation,
        role=message.role,
        blocks=[msgspec.Raw(_encode_deterministic(b)) for b in portable(message.blocks)],
        status=message.status,
        error_code=message.error_code,
        origin=message.origin,
        trust=message.trust,
        created_ms=message.created_ms,
        name=message.name,
        copied_from=message.copied_from,
        metadata=message.metadata,
        deleted=deleted,
        erased=message.erased,
    )


def read(lines: Iterable[bytes]) -> Archive:
    """Return what the `lines` of a file hold.

    A last line that is no JSON was cut when it was written: it is left out and reported.

    Raises:
        InvalidInput: `bad_line`, `line_too_long`, `bad_message_id` or `unknown_format`, `at`
            the line. Nothing of the file can be trusted before it is looked at.
        Conflict: `message_id_conflict`: one id stands there twice with other content.
    """
    reader = _Reader()
    torn: int | None = None
    for number, line in enumerate(lines, 1):
        if torn is not None:
            raise _bad(torn, "This line is no JSON, and it is not the last one.")
        if not line.strip():
            continue
        if len(line) > MAX_LINE_BYTES:
            raise _bad(number, "This line is longer than any message.", code="line_too_long")
        if reader.begun and not _parses(line):
            torn = number
            continue
        reader.take(number, line)
    if not reader.begun:
        raise _bad(1, "The file is empty.", code="unknown_format")
    return Archive(conversations=reader.archived(), torn_line=torn)


def _parses(line: bytes) -> bool:
    try:
        _is_json(line)
        line.decode()
    except msgspec.DecodeError:
        return _has_half_character(line)
    except UnicodeDecodeError:
        return False
    except RecursionError:
        pass  # it is JSON for all we know; that it is too deep is said where it is decoded
    return True


def _has_half_character(line: bytes) -> bool:
    """Say whether a line is whole, and unreadable for half a surrogate pair inside it.

    The decoder takes that for a cut, but the line was not cut, and leaving it out would lose it.
    """
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return b"\\u" in line


@dataclass(slots=True)
class _Open:
    row: _Conversation
    messages: dict[MessageId, Message]
    deleted: set[MessageId]


class _Reader:
    """Collects lines into conversations."""

    def __init__(self) -> None:
        self.begun = False
        self._found: dict[str, _Open] = {}
        self._last: str | None = None

    def take(self, number: int, line: bytes) -> None:
        """Take the next line."""
        try:
            value = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"Not a line of an export: {error}."
            if not isinstance(error, msgspec.ValidationError) and _has_half_character(line):
                problem = "It holds half a surrogate pair, which no text can hold."
        except RecursionError:
            problem = "The JSON of this line is nested too deep."
        else:
            return self._take(number, value)
        raise _bad(number, problem)

    def _take(self, number: int, value: _Line) -> None:
        match value:
            case _Export(version):
                if self.begun:
                    raise _bad(number, "A second export begins here.")
                if version != VERSION:
                    raise _bad(
                        number,
                        f"The file has format version {version}; this release reads {VERSION}.",
                        code="unknown_format",
                    )
                self.begun = True
            case _ if not self.begun:
                raise _bad(
                    number,
                    'The first line of an export is {"kind":"export","version":1}.',
                    code="unknown_format",
                )
            case _Conversation():
                if value.id in self._found:
                    raise _bad(number, "This conversation began in an earlier line.")
                _checked_id(number, value.id)
                self._found[value.id] = _Open(value, {}, set())
                self._last = value.id
            case _Message():
                self._take_message(number, value)

    def _take_message(self, number: int, value: _Message) -> None:
        home = self._found.get(value.conversation_id or self._last or "")
        if home is None:
            raise _bad(number, "No conversation line came before this message.")
        message = Message(
            id=_checked_id(number, value.id),
            conversation=ConversationId(home.row.id),
            parent=None if value.parent_id is None else _checked_id(number, value.parent_id),
            role=value.role,
            blocks=portable(_block(number, raw) for raw in value.blocks),
            origin=value.origin,
            trust=value.trust,
            name=value.name,
            copied_from=None if value.copied_from is None else MessageId(value.copied_from),
            created_ms=value.created_ms,
            metadata=value.metadata,
            status=value.status,
            error_code=value.error_code,
            erased=value.erased,
        )
        known = home.messages.get(message.id)
        if known is not None and not same_content(known, message):
            raise _conflict(message.id)
        home.messages.setdefault(message.id, message)
        if value.deleted:
            home.deleted.add(message.id)

    def archived(self) -> tuple[Archived, ...]:
        """Return the conversations in the order in which they began."""
        return tuple(
            Archived(
                id=ConversationId(home.row.id),
                title=home.row.title,
                head=None if home.row.head is None else MessageId(home.row.head),
                created_ms=home.row.created_ms,
                metadata=home.row.metadata,
                erased_ms=home.row.erased_ms,
                messages=tuple(home.messages.values()),
                deleted=frozenset(home.deleted),
                announced=home.row.messages,
            )
            for home in self._found.values()
        )


def _block(number: int, raw: msgspec.Raw) -> Block:
    """Return a block; one of a kind that this release does not know is kept as it is."""
    try:
        kind = _decode_kind(raw).kind
        if kind not in _TREE_KINDS and kind not in INPUT_KINDS:
            return Unknown(name=kind, value=raw.copy())
        return decode_blocks(b"[%b]" % bytes(raw))[0]
    except msgspec.ValidationError as error:
        problem = f"A block cannot be read: {error}."
    raise _bad(number, problem)


def _checked_id(number: int, value: str) -> MessageId:
    try:
        return message_id(value)
    except InvalidInput as error:
        problem, code = error.message, error.code
    raise _bad(number, problem, code=code)


def _bad(number: int, message: str, *, code: str = "bad_line") -> InvalidInput:
    return InvalidInput(message, code=code, at=f"line {number}")


def _conflict(message: MessageId) -> AntiphonError:
    return Conflict(
        "A message with this id exists, with other content.",
        code="message_id_conflict",
        at=message,
    )


def same_content(one: Message, other: Message) -> bool:
    """Whether two messages of one id say the same in the same place.

    How each came here, its status and its times are not part of what was said. Of one that was
    erased nobody knows, so the same place is all that can be asked of it.
    """
    if one.erased or other.erased:
        return (one.parent, one.role) == (other.parent, other.role)
    return (one.parent, one.role, one.name, portable(one.blocks)) == (
        other.parent,
        other.role,
        other.name,
        portable(other.blocks),
    )


def portable(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return `blocks` without the digests that mean something under one tenant's key only."""
    return tuple(map(_portable, blocks))


def _portable(block: Block) -> Block:
    match block:
        case ToolCall():
            return msgspec.structs.replace(block, schema_digest=None)
        case ToolResult():
            return msgspec.structs.replace(block, arguments_digest=None)
        case _:
            return block


# What an import changes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What it takes to bring an archived conversation into a stored one.

    `new` are messages that are not there yet, parents before children, as they will be
    stored; `replayed` counts those that are there with the same content; `deleted` get a
    deletion marker; `head` is where the conversation shall stand, None to leave it.
    """

    new: tuple[Message, ...]
    replayed: int
    deleted: frozenset[MessageId]
    head: MessageId | None


def changes(
    archived: Archived,
    into: ConversationId,
    existing: Mapping[MessageId, Message],
    *,
    now_ms: int,
    deleted: Collection[MessageId] = (),
    elsewhere: Collection[MessageId] = (),
) -> Change:
    """Return what importing `archived` into the conversation `into` changes there.

    Args:
        archived: What a file holds.
        into: The conversation that takes it; it may be new.
        existing: The messages that it has.
        now_ms: The time of the import, for messages whose own time nobody recorded.
        deleted: Those of them that are deleted.
        elsewhere: Ids that the same file gives to other conversations.

    Raises:
        Conflict: `message_id_conflict`: an id is taken by other content.
        Refused: `cycle`, `missing_parent` or `foreign_parent`, at the message.
    """
    brought = {message.id: message for message in archived.messages}
    replayed = 0
    for message in archived.messages:
        known = existing.get(message.id)
        if known is not None and not same_content(known, message):
            raise _conflict(message.id)
        replayed += known is not None
    ordered = parents_first(archived.messages, existing, elsewhere)
    new = tuple(as_imported(m, into, now_ms) for m in ordered if m.id not in existing)
    head = archived.head
    stands = brought.get(head) if head is not None else None
    return Change(
        new=new,
        replayed=replayed,
        deleted=frozenset(m for m in archived.deleted if m not in deleted),
        head=head if stands is not None and stands.status is not Status.ERROR else None,
    )


def parents_first(
    messages: Sequence[Message],
    existing: Collection[MessageId],
    elsewhere: Collection[MessageId] = (),
) -> list[Message]:
    """Return `messages` with every parent before its children, else in their order.

    Raises:
        Refused: `cycle`, `missing_parent` or `foreign_parent`, at the message.
    """
    brought = {message.id: message for message in messages}
    done: dict[MessageId, Message] = {}
    for message in messages:
        above: dict[MessageId, Message] = {}
        at = message
        while at.id not in done:
            if at.id in above:
                raise Refused("The parents of this message form a circle.", code="cycle", at=at.id)
            above[at.id] = at
            if at.parent is None or at.parent in existing:
                break
            if at.parent not in brought:
                raise _orphan(at, foreign=at.parent in elsewhere)
            at = brought[at.parent]
        done.update(reversed(above.items()))
    return list(done.values())


def _orphan(message: Message, *, foreign: bool) -> Refused:
    if foreign:
        return Refused(
            f"Its parent {message.parent} belongs to another conversation.",
            code="foreign_parent",
            at=message.id,
        )
    return Refused(
        f"Its parent {message.parent} is neither in the file nor in the conversation.",
        code="missing_parent",
        at=message.id,
    )


_ABOVE_USER: Final = frozenset({Trust.OPERATOR, Trust.DEVELOPER})


def as_imported(message: Message, into: ConversationId, now_ms: int) -> Message:
    """Return `message` as it is stored when a person brings it in a file.

    A file cannot vouch for anything: what claims to come from an operator or a developer, and
    an assistant's words, are only what a user brought. Tool and retrieved content stays as low
    as it was. An input that nobody had answered yet is settled: no run of ours works on it.
    """
    claims_more = message.role is Role.ASSISTANT or message.trust in _ABOVE_USER
    return msgspec.structs.replace(
        message,
        conversation=into,
        blocks=portable(message.blocks),
        origin=Origin.IMPORTED,
        trust=Trust.USER if claims_more else message.trust,
        session=None,
        run=None,
        created_ms=message.created_ms or now_ms,
        status=Status.SUCCESS if message.status is Status.PENDING else message.status,
        metadata={"exported_origin": message.origin.value, **message.metadata},
    )
