"""A retriever over an embedding endpoint: passages and questions as vectors, the nearest ones found.

It speaks `POST /v1/embeddings` as OpenAI and most servers of local models do. The vectors are held
in memory; a database of vectors takes their place in the same two methods.

    async with aiohttp.ClientSession() as session:
        notes = VectorRetriever(session, "http://127.0.0.1:9001/v1", "embed-small")
        await notes.add("pilot.md#1", "The pilot boards two miles south of the fairway buoy.")
        async with antiphon.open("chat.db", retrievers=[notes]) as app:
            ...

For a server the same stands in `antiphon.toml`, with this file where Python finds it:

    [retrievers.notes]
    factory = "vector_retriever:of_folder"
    base_url = "http://127.0.0.1:9001/v1"
    model = "embed-small"
    folder = "/srv/notes"
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from antiphon import AntiphonError, Found, Passage, Question, judged


class VectorRetriever:
    """Finds the passages whose vectors point where the question's does."""

    name = "notes"

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        least_score: float = 0.5,
    ) -> None:
        self._session = session
        self._url = f"{base_url}/embeddings"
        self._model = model
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._least_score = least_score
        self._passages: list[tuple[Passage, list[float]]] = []

    async def add(self, source: str, text: str) -> None:
        """Let a passage be found."""
        (vector,) = await self._embedded([text])
        self._passages.append((Passage(source=source, text=text), vector))

    async def retrieve(self, question: Question) -> Found:
        """Return the nearest passages; what is too far away is no match."""
        (asked,) = await self._embedded([question.text])
        return judged(
            (
                Passage(source=near.source, text=near.text, score=cosine(asked, vector))
                for near, vector in self._passages
            ),
            least_score=self._least_score,
        )

    async def _embedded(self, texts: Sequence[str]) -> list[list[float]]:
        body = {"model": self._model, "input": list(texts)}
        async with self._session.post(self._url, json=body, headers=self._headers) as answer:
            if answer.status != 200:
                # The code is what the model and the trace are told; the text goes nowhere.
                raise AntiphonError("The endpoint refused.", code=f"http_{answer.status}")
            told = await answer.json()
        vectors = sorted(told["data"], key=lambda one: one["index"])
        return [one["embedding"] for one in vectors]


@asynccontextmanager
async def of_folder(
    *, base_url: str, model: str, folder: str, api_key_env: str = ""
) -> AsyncIterator[VectorRetriever]:
    """Let the paragraphs of the text files in a folder be found, for as long as it is open."""
    async with aiohttp.ClientSession() as session:
        key = os.environ.get(api_key_env) if api_key_env else None
        notes = VectorRetriever(session, base_url, model, api_key=key)
        for source, text in await asyncio.to_thread(paragraphs, Path(folder)):
            await notes.add(source, text)
        yield notes


def paragraphs(folder: Path) -> list[tuple[str, str]]:
    """Return the paragraphs of a folder's files, each with where it stands."""
    return [
        (f"{path.name}#{number}", text.strip())
        for path in sorted(folder.glob("*.md"))
        for number, text in enumerate(path.read_text("utf-8").split("\n\n"), 1)
        if text.strip()
    ]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how far two vectors point the same way, from -1 to 1."""
    product = sum(a * b for a, b in zip(one, other, strict=True))
    lengths = math.hypot(*one) * math.hypot(*other)
    return product / lengths if lengths else 0.0
