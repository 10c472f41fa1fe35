"""Retrieval: what came of looking something up for a message, and what the model is told of it.

There are five ends, and none of them is silence. A hit gives passages with their source. Where
there was nothing, or nothing good enough, the model is told that there is no match, so that it
need not guess. Where the search failed or took too long, the named files go along in full as far
as they fit, and the model is told that nobody searched them.

Anything that finds passages is a retriever: a class with a `name` and one method.

    class Handbook:
        name = "handbook"

        async def retrieve(self, question: Question) -> Sequence[Passage]:
            rows = await search(question.text)
            return [Passage(source=r.url, text=r.text, score=r.score) for r in rows]

What it raises is a failed search. One that knows better when a passage is too weak to help
returns the `Found` itself, made by `judged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from antiphon.core.digests import digest
from antiphon.core.ids import ConversationId, Digest, TenantId
from antiphon.core.inputs import InputBlock, Retrieved

NO_MATCH: Final = "no_match"
RETRIEVAL_FAILED: Final = "retrieval_failed"
MOST_PASSAGES: Final = 5


class RetrievalStatus(StrEnum):
    """How a search ended."""

    HIT = "hit"
    EMPTY = "empty"
    LOW_SCORE = "low_score"
    TIMEOUT = "timeout"
    FAILED = "failed"


MISSED: Final = frozenset({RetrievalStatus.EMPTY, RetrievalStatus.LOW_SCORE})
BROKEN: Final = frozenset({RetrievalStatus.TIMEOUT, RetrievalStatus.FAILED})


class Passage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of text that may help, and where it stands.

    Attributes:
        source: Where it is from, as the model is to name it: `prices.md#12`.
        text: What it says.
        score: How well it fits, on the retriever's own scale; more is better.
        id: Its own name; by default its source.
    """

    source: str
    text: str
    score: float = 0.0
    id: str = ""


class NamedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a search may look into."""

    id: str
    name: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked up: the user's words, for whom, and in which files."""

    text: str
    tenant: TenantId
    conversation: ConversationId
    files: tuple[NamedFile, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one search.

    Attributes:
        status: How it ended.
        reason: Why, in a word, where it is no hit.
        passages: The best ones, best first. Only a hit has any.
        candidates: How many were looked at.
        best_score: The best of their scores.
    """

    status: RetrievalStatus
    reason: str = ""
    passages: tuple[Passage, ...] = ()
    candidates: int = 0
    best_score: float | None = None


class Retriever(Protocol):
    """Looks up passages for a user's message."""

    @property
    def name(self) -> str:
        """What is searched, in a word that the model and people are told."""

    async def retrieve(self, question: Question) -> Found | Sequence[Passage]:
        """Return what may help to answer. Whatever it raises is a search that failed."""


class Searched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trace keeps of one search: everything but the text."""

    source: str
    status: RetrievalStatus
    reason: str = ""
    candidates: int = 0
    best_score: float | None = None
    used: int = 0
    """How many passages, or how many files in full, the model was given."""


class Beside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands beside one message for good: input blocks, and the searches they came of."""

    inputs: tuple[InputBlock, ...] = ()
    searched: tuple[Searched, ...] = ()


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """One search that has ended, and what to fall back on where it is broken: files in full."""

    source: str
    found: Found
    files: tuple[Passage, ...] = ()


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(Beside).decode


def judged(
    passages: Iterable[Passage],
    *,
    least_score: float | None = None,
    most: int = MOST_PASSAGES,
    candidates: int | None = None,
) -> Found:
    """Return what a search came to whose passages are these.

    Args:
        passages: In any order.
        least_score: What is below does not help; without one every passage does.
        most: How many are kept.
        candidates: How many were looked at, where that is more than there are passages.

    Example:
        >>> judged([Passage(source="a", text="t", score=0.2)], least_score=0.5).reason
        'best_below_0.5'
    """
    ranked = sorted(passages, key=lambda p: (-p.score, p.source))
    seen = len(ranked) if candidates is None else candidates
    if not ranked:
        return Found(status=RetrievalStatus.EMPTY, reason="nothing_found", candidates=seen)
    best = ranked[0].score
    if least_score is None:
        good = ranked
    else:
        good = [passage for passage in ranked if passage.score >= least_score]
    if not good:
        return Found(
            status=RetrievalStatus.LOW_SCORE,
            reason=f"best_below_{least_score:g}",
            candidates=seen,
            best_score=best,
        )
    return Found(
        status=RetrievalStatus.HIT,
        passages=tuple(good[:most]),
        candidates=seen,
        best_score=best,
    )


def beside(searches: Sequence[Search], *, scope: str, most_chars: int) -> Beside:
    """Return what the model is given, and told, of these searches.

    Passages come in the order of the searches, each search's best first, as far as `most_chars`
    reaches; a passage that does not fit is left out whole. Files that stand in for a broken search
    are cut at its end, visibly.
    """
    inputs: list[InputBlock] = []
    searched: list[Searched] = []
    left = most_chars
    for search in searches:
        found = search.found
        if found.status in BROKEN:
            given = _in_full(search, scope, left)
            used = len(given) - 1
        elif found.status in MISSED:
            given, used = [_notice(search, scope, NO_MATCH, _MISS)], 0
        else:
            given = _passages(search, scope, left)
            used = len(given)
        left -= sum(len(block.text) for block in given)
        inputs += given
        searched.append(
            Searched(
                source=search.source,
                status=found.status,
                reason=found.reason,
                candidates=found.candidates,
                best_score=found.best_score,
                used=used,
            )
        )
    return Beside(inputs=tuple(inputs), searched=tuple(searched))


_MISS: Final = (
    "This was searched, and nothing in it matches the question. If the answer depends on it, say "
    "that it was not found there; do not guess."
)
_UNSEARCHED: Final = (
    "This could not be searched ({reason}). What is given of it below is its text as it stands. "
    "If the answer is not there, say that the search failed; do not guess."
)
_LOST: Final = (
    "This could not be searched ({reason}), and nothing of it is known here. If the answer depends "
    "on it, say that the search failed; do not guess."
)
_CUT: Final = "\n[cut: {left} more characters did not fit]"


def _notice(search: Search, scope: str, notice: str, text: str) -> Retrieved:
    return Retrieved(
        id=f"{search.source}:{notice}",
        text=text,
        scope=scope,
        source=search.source,
        notice=notice,
        priority=1,
    )


def _passages(search: Search, scope: str, left: int) -> list[Retrieved]:
    blocks = []
    for rank, passage in enumerate(search.found.passages):
        if len(passage.text) > left:
            continue
        left -= len(passage.text)
        blocks.append(
            Retrieved(
                id=passage.id or passage.source,
                text=passage.text,
                scope=scope,
                source=passage.source,
                priority=-rank,
            )
        )
    return blocks


def _in_full(search: Search, scope: str, left: int) -> list[Retrieved]:
    sentence = _UNSEARCHED if search.files else _LOST
    text = sentence.format(reason=search.found.reason)
    blocks = [_notice(search, scope, RETRIEVAL_FAILED, text)]
    for file in search.files:
        if left <= 0:
            break
        text = file.text
        if len(text) > left:
            text = text[:left] + _CUT.format(left=len(text) - left)
        left -= len(file.text)
        blocks.append(
            Retrieved(id=file.id or file.source, text=text, scope=scope, source=file.source)
        )
    return blocks


def stored_beside(key: bytes, value: Beside) -> tuple[Digest, bytes]:
    """Return digest and stored form of what stands beside a message."""
    data = _encode(value)
    return digest(key, "beside", data), data


def read_beside(data: bytes) -> Beside:
    """Return what `stored_beside` stored."""
    return _decode(data)
