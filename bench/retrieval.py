"""Retrieval: a hundred questions over ten thousand passages, and how many find the right one.

The passages of the bilingual set stand among others that are made of the same words at random, so
that every question has thousands of near misses. Ours is the index as the store keeps it, on disk;
the rivals are plain BM25 in memory and SQLite's own full-text index with trigrams.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from antiphon.core.ids import LOCAL_TENANT, Digest
from antiphon.core.knowledge.kept import File, NewFile
from antiphon.core.knowledge.passages import Piece
from antiphon.core.knowledge.ranking import index, rank
from antiphon.core.knowledge.words import terms
from antiphon.stores.base import Store
from antiphon.stores.sqlite import open_sqlite
from bench.measure import Figure, cpu_ms, figure, interleaved, note
from tests.support.plain_bm25 import BASELINES, LANGUAGES, PlainBm25, read_set

PASSAGES: Final = 10_000
QUESTIONS: Final = 100
BEST: Final = 5
FILE: Final = "file_bench"

Best = Callable[[str], Awaitable[list[int]]]


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield recall in each language beside plain BM25, and the time of a hundred questions."""
    note(f"retrieval over {PASSAGES} passages")
    texts, asked = _passages()
    with TemporaryDirectory(prefix="bench-") as place:
        store = await open_sqlite(Path(place) / "a.db")
        try:
            await store.knowledge.add_file(_file(texts), None)

            async def ours(question: str) -> list[int]:
                return await _ours(store, question)

            for language in LANGUAGES:
                plain = PlainBm25(texts, BASELINES[language])

                async def theirs(question: str, plain: PlainBm25 = plain) -> list[int]:
                    return plain.best(question, BEST)

                yield figure(
                    "retrieval", f"recall at {BEST}, {language}",
                    await _recall(ours, asked[language]), await _recall(theirs, asked[language]),
                    "plain BM25", unit="share", at_least=1,
                )  # fmt: skip
            every = [question for some in asked.values() for question, _ in some]
            hundred = list(islice(cycle(every), QUESTIONS))
            trigrams = _trigrams(texts)

            async def by_ours() -> None:
                for question in hundred:
                    await ours(question)

            def by_trigrams() -> None:
                for question in hundred:
                    _by_trigrams(trigrams, question)

            costs = await interleaved(
                {"ours": by_ours, "trigrams": by_trigrams}, 2 if quick else 7, warm_up=1
            )
            yield figure(
                "retrieval", f"{QUESTIONS} questions over {PASSAGES} passages",
                cpu_ms(costs["ours"]), cpu_ms(costs["trigrams"]), "SQLite FTS5, trigram",
                unit="CPU ms", at_most=2,
            )  # fmt: skip
        finally:
            await store.close()


def _passages() -> tuple[list[str], dict[str, list[tuple[str, int]]]]:
    """Return the passages, and each language's questions with the number of the right one."""
    chance, texts, asked = random.Random(7), list[str](), dict[str, list[tuple[str, int]]]()
    sets = {language: read_set(language) for language in LANGUAGES}
    for language, told in sets.items():
        asked[language] = [(question, len(texts) + right) for question, right in told["questions"]]
        texts += told["passages"]
    pieces = {
        language: [
            piece
            for text in told["passages"]
            for piece in (text.split() if language == "en" else re.findall(r"\w{3}", text))
        ]
        for language, told in sets.items()
    }
    for language in islice(cycle(LANGUAGES), PASSAGES - len(texts)):
        joint = " " if language == "en" else ""
        texts.append(joint.join(chance.choices(pieces[language], k=20)))
    return texts, asked


def _file(texts: list[str]) -> NewFile:
    return NewFile(
        file=File(
            id=FILE,
            tenant=LOCAL_TENANT,
            name="bench.md",
            bytes=sum(map(len, texts)),
            encoding="utf-8",
            evidence="utf-8",
            passages=len(texts),
            digest=Digest("00" * 32),
            created_ms=0,
        ),
        data=b"",
        pieces=tuple(Piece("", text) for text in texts),
        index=index(texts),
    )


async def _ours(store: Store, question: str) -> list[int]:
    asked = terms(question)
    _, best = rank(asked, await store.knowledge.index([FILE], asked), BEST)
    await store.knowledge.passages((one.file, one.number) for one in best)
    return [one.number for one in best]


async def _recall(best: Best, asked: list[tuple[str, int]]) -> float:
    found = [right in await best(question) for question, right in asked]
    return sum(found) / len(found)


def _trigrams(texts: list[str]) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE passage USING fts5(text, tokenize='trigram')")
    db.executemany("INSERT INTO passage VALUES (?)", ((text,) for text in texts))
    return db


def _by_trigrams(db: sqlite3.Connection, question: str) -> list[int]:
    found = {run[n : n + 3] for run in re.findall(r"\w{3,}", question) for n in range(len(run) - 2)}
    asked = " OR ".join(f'"{three}"' for three in sorted(found))
    sql = f"SELECT rowid FROM passage WHERE text MATCH ? ORDER BY bm25(passage) LIMIT {BEST}"
    return [row[0] - 1 for row in db.execute(sql, (asked,))] if asked else []
