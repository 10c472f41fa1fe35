"""Input blocks: what is put beside the talk for the model to read.

They are made for a dispatch and are never nodes of the tree: exports, lines and the digest of a
message know nothing of them. Each has a scope that it holds for and a trust that says who vouches
for it, and none of them can instruct: all that is ever made of one is text between our tags
beside the words of a user (`antiphon.core.knowledge.envelope`).

`Stable` and `Memory` stand before the talk; `Retrieved` was found for one message and stays
beside it; a `Summary` stands for the older part of the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, get_args

import msgspec

from antiphon.core.blocks import Trust
from antiphon.core.digests import digest
from antiphon.core.ids import Digest
from antiphon.errors import InvalidInput


class _Input(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, gc=False
):
    """What all of them have.

    Attributes:
        id: Its own name, the same wherever the same content comes up again.
        text: What the model is shown, as data.
        scope: Whom it holds for: the id of a conversation, a session or a tenant.
        trust: Who vouches for it.
        priority: The higher is kept first where not all fits.
        required: Whether the dispatch is refused rather than made without it.
    """

    id: str
    text: str
    scope: str
    trust: Trust = Trust.RETRIEVED
    priority: int = 0
    required: bool = False

    def __post_init__(self) -> None:
        if not self.id or not self.scope:
            raise InvalidInput("An input block has an id and a scope.", code="malformed_item")

    @property
    def kind(self) -> str:
        """The word for its kind."""
        return str(self.__struct_config__.tag)


class Stable(_Input, frozen=True, kw_only=True, tag="stable"):
    """Context that an application gives a conversation or a tenant, under its name."""

    key: str


class Memory(_Input, frozen=True, kw_only=True, tag="memory"):
    """A remembered fact under its key."""

    key: str


class Summary(_Input, frozen=True, kw_only=True, tag="summary"):
    """Older talk in brief."""

    trust: Trust = Trust.MODEL


class Retrieved(_Input, frozen=True, kw_only=True, tag="retrieved"):
    """A passage that was found for one message, and where.

    `notice` is a word for what went wrong (`retrieval_failed`, `no_match`): the model is told of
    a search that came to nothing rather than left to guess.
    """

    source: str
    notice: str | None = None


InputBlock: TypeAlias = Stable | Memory | Summary | Retrieved

INPUT_KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(InputBlock))
"""Their words, as stored."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(tuple[InputBlock, ...]).decode


def encode_inputs(inputs: Sequence[InputBlock]) -> bytes:
    """Return the stored form of `inputs`; `decode_inputs` is its inverse."""
    return _encode(inputs)


def decode_inputs(data: bytes | str) -> tuple[InputBlock, ...]:
    """Return the input blocks that `encode_inputs` stored.

    Raises:
        msgspec.ValidationError: It is no stored form of ours.
    """
    return _decode(data)


def input_digest(key: bytes, block: InputBlock) -> Digest:
    """Return the digest of one input block, everything about it included."""
    return digest(key, "input", _encode(block))


def digest_beside(key: bytes, own: Digest, inputs: Iterable[InputBlock]) -> Digest:
    """Return the digest of a message with what stands beside it; its own where nothing does.

    The line of a dispatch is folded over these, so two dispatches of the same words with other
    reference material are two sequences.
    """
    beside = [input_digest(key, block).encode() for block in inputs]
    return digest(key, "beside", own.encode(), *beside) if beside else own
