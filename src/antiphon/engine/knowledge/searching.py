"""Looking something up for a message, once, before it takes its place.

What comes of it is stored with the message and stays beside it: a later request finds it there
and looks nothing up again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from antiphon.core.blocks import Message, Role
from antiphon.core.ids import TenantId
from antiphon.core.knowledge.retrieval import (
    BROKEN,
    Beside,
    Found,
    NamedFile,
    Question,
    RetrievalStatus,
    Retriever,
    Search,
    beside,
    judged,
    read_beside,
)
from antiphon.core.records import Conversation
from antiphon.engine.knowledge.files import FileSearch, in_full
from antiphon.errors import AntiphonError

if TYPE_CHECKING:
    from antiphon.engine.world import World


async def look_up(world: World, conversation: Conversation, message: Message) -> Beside | None:
    """Return what is to stand beside `message`, or None where nothing is looked up for it.

    A search that fails or takes too long is an answer too. Nothing is raised but cancellation.
    """
    if message.role is not Role.USER or not message.text.strip():
        return None
    given = await world.store.knowledge.files_of(conversation.id)
    retrievers = [*([FileSearch(world)] if given else []), *world.retrievers]
    if not retrievers:
        return None
    question = Question(
        text=message.text,
        tenant=conversation.tenant,
        conversation=conversation.id,
        files=tuple(NamedFile(id=file.id, name=file.name) for file in given),
    )
    searches = await asyncio.gather(
        *(_searched(world, retriever, question) for retriever in retrievers)
    )
    return beside(searches, scope=conversation.id, most_chars=world.settings.max_reference_chars)


async def _searched(world: World, retriever: Retriever, question: Question) -> Search:
    timeout_s = world.settings.retrieval_timeout_s
    over = asyncio.Event()
    forget = world.clock.call_later(timeout_s, over.set)
    asked = asyncio.ensure_future(_asked(retriever, question))
    late = asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait({asked, late}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            found = asked.result()
        else:
            found = Found(status=RetrievalStatus.TIMEOUT, reason=f"timeout_{timeout_s:g}s")
    finally:
        forget()
        for task in (asked, late):
            task.cancel()
    whole = []
    if found.status in BROKEN:
        with contextlib.suppress(AntiphonError):  # then there is nothing to fall back on
            whole = await in_full(world, question.tenant, question.files)
    return Search(source=retriever.name, found=found, files=tuple(whole))


async def _asked(retriever: Retriever, question: Question) -> Found:
    try:
        answer = await retriever.retrieve(question)
        return answer if isinstance(answer, Found) else judged(answer)
    except Exception as error:  # noqa: BLE001 - whatever a retriever does wrong is a search that failed
        # The word for it, never the text: that may hold addresses, queries and secrets.
        reason = error.code if isinstance(error, AntiphonError) else type(error).__name__
        return Found(status=RetrievalStatus.FAILED, reason=reason)


async def beside_message(world: World, tenant: TenantId, message: Message) -> Beside:
    """Return what stands beside a message of the tree; nothing where nothing was looked up."""
    if message.beside is None:
        return Beside()
    return read_beside(await world.store.content(tenant, message.beside))
