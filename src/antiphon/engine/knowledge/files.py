"""Files that people give us: read as text, cut into passages, indexed, and looked up in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from antiphon.core.digests import digest
from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.knowledge.kept import File, NewFile, label
from antiphon.core.knowledge.passages import pieces
from antiphon.core.knowledge.ranking import index, rank
from antiphon.core.knowledge.retrieval import Found, NamedFile, Passage, Question, judged
from antiphon.core.knowledge.words import terms
from antiphon.engine.knowledge.decoding import decode
from antiphon.engine.world import World
from antiphon.errors import InvalidInput

LEAST_SCORE: Final = 0.06
"""Below, a passage shares no more with the question than two texts about anything do: measured on
the bilingual set of the benchmarks, where no right passage scores less."""

LOOKED_UP: Final = 20
"""Passages that are read to fill the places of the best."""


class Files:
    """The files of all tenants, each asked for by one of them."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def add(
        self,
        tenant: TenantId,
        name: str,
        data: bytes,
        *,
        conversation: ConversationId | None = None,
        charset: str | None = None,
        media_type: str = "text/plain",
        purpose: str = "user_data",
    ) -> File:
        """Keep a file, and let a conversation's questions be looked up in it.

        Args:
            tenant: Whose it is.
            name: What it is called; a path is taken as its last part.
            data: Its bytes.
            conversation: Which conversation is given it, if any.
            charset: The encoding that its bringer says; else it is told by the bytes.
            media_type: What its bringer calls it.
            purpose: As OpenAI's API has it; kept and told again.

        Raises:
            InvalidInput: `empty_file`, `not_text`, `bad_encoding` or `file_too_large`.
            NotFound: There is no such conversation.
        """
        shown = label(name)
        if len(data) > self._world.settings.max_file_bytes:
            raise InvalidInput(
                f"A file has at most {self._world.settings.max_file_bytes} bytes.",
                code="file_too_large",
                at=shown,
            )
        key = await self._world.store.tenant_key(tenant)
        ident, now_ms = self._world.new_id("file_"), self._world.clock.now_ms()

        def made() -> NewFile:
            text, encoding, evidence = decode(data, declared=charset, at=shown)
            found = pieces(text)
            return NewFile(
                file=File(
                    id=ident,
                    tenant=tenant,
                    name=shown,
                    bytes=len(data),
                    encoding=encoding,
                    evidence=evidence,
                    passages=len(found),
                    digest=digest(key, "file", data),
                    created_ms=now_ms,
                    media_type=media_type,
                    purpose=purpose,
                ),
                data=data,
                pieces=tuple(found),
                index=index(f"{piece.heading}\n{piece.text}" for piece in found),
            )

        new = await asyncio.to_thread(made)
        return await self._world.store.knowledge.add_file(new, conversation)

    async def text(self, file: File) -> str:
        """Return a file's text. Raises `NotFound`."""
        data = await self._world.store.knowledge.file_data(file.tenant, file.id)
        return decode(data, declared=file.encoding).text


class FileSearch:
    """The retriever of a conversation's files, on the index that the store keeps of them."""

    name = "files"

    def __init__(self, world: World) -> None:
        self._world = world

    async def retrieve(self, question: Question) -> Found | Sequence[Passage]:
        """Return the passages of the files that fit the question best."""
        asked = terms(question.text)
        knowledge = self._world.store.knowledge
        names = {file.id: file.name for file in question.files}
        candidates, best = rank(asked, await knowledge.index([*names], asked), LOOKED_UP)
        found = await knowledge.passages((one.file, one.number) for one in best)
        passages = [
            Passage(
                id=f"{one.file}#{one.number + 1}",
                source=f"{names[one.file]}#{one.number + 1}",
                text=f"{piece.heading}\n\n{piece.text}" if piece.heading else piece.text,
                score=round(one.score, 4),
            )
            for one, piece in zip(best, found, strict=True)
            if piece is not None
        ]
        return judged(passages, least_score=LEAST_SCORE, candidates=candidates)


async def in_full(world: World, tenant: TenantId, files: Sequence[NamedFile]) -> list[Passage]:
    """Return the texts of files, for when nobody could search them; those that are gone are left out."""
    whole = []
    for file in files:
        known = await world.store.knowledge.file(tenant, file.id)
        text = await Files(world).text(known)
        whole.append(Passage(id=file.id, source=file.name, text=text))
    return whole
