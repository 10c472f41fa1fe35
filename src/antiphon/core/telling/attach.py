"""What a follower of a conversation is told over a wire: one type for each kind of frame.

Two cursors. Durable events are numbered, and their number is what a follower comes back with.
Preview text is addressed by run, generation, block and offset, and comes whole to whoever
attaches. `end` is an end in good order; a stream that stops without it broke.

These types are the contract: the server writes them, and every client, in any language, folds
them as `antiphon.client.state` does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from antiphon.core.answers.deltas import Channel
from antiphon.core.events import DurableEvent
from antiphon.core.ids import RunId


class Numbered(msgspec.Struct, frozen=True, kw_only=True, tag="durable", tag_field="type"):
    """A durable event with its number, which is the cursor to come back with."""

    seq: int
    at_ms: int
    event: DurableEvent


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """All text of one block so far."""

    block: int
    channel: Channel
    text: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="preview.snapshot", tag_field="type"):
    """The whole preview of a live run: it stands for all that was shown of the run before."""

    run: RunId
    generation: int
    blocks: tuple[Held, ...]


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag="preview.delta", tag_field="type"):
    """More text of a block, which may still be withdrawn; `offset` counts code points before it."""

    run: RunId
    generation: int
    block: int
    channel: Channel
    offset: int
    text: str


class Reached(msgspec.Struct, frozen=True, kw_only=True, tag="caught_up", tag_field="type"):
    """All up to `seq` has been told; what follows is happening now."""

    seq: int


class Ending(StrEnum):
    """Why a stream is ended in good order."""

    RECYCLED = "recycled"
    SHUTDOWN = "shutdown"


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="type"):
    """The server closes this stream in good order: come back with `seq`, after `retry_ms`."""

    reason: Ending
    seq: int
    retry_ms: int


Frame: TypeAlias = Numbered | Snapshot | Delta | Reached | End


class Frames(msgspec.Struct, frozen=True, kw_only=True):
    """What a long poll answers: the frames that a stream would have begun with."""

    frames: tuple[Frame, ...]
