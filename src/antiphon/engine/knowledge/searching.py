"""Looking something up for a message, once, before it takes its place.

What comes of it is stored with the message and stays beside it: a later request finds it there
and looks nothing up again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.blocks import Message, Role
from antiphon.core.records import Conversation
from antiphon.core.retrieval import (
    Beside,
    Found,
    Question,
    RetrievalStatus,
    Retriever,
    Search,
    beside,
    judged,
)
from antiphon.errors import AntiphonError

if TYPE_CHECKING:
    from antiphon.engine.world import World


async def look_up(world: World, conversation: Conversation, message: Message) -> Beside | None:
    """Return what is to stand beside `message`, or None where nothing is looked up for it.

    A search that fails or takes too long is an answer too. Nothing is raised but cancellation.
    """
    if message.role is not Role.USER or not message.text.strip():
        return None
    if not world.retrievers:
        return None
    question = Question(text=message.text, tenant=conversation.tenant, conversation=conversation.id)
    searches = await asyncio.gather(
        *(_searched(world, retriever, question) for retriever in world.retrievers)
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
    return Search(source=retriever.name, found=found)


async def _asked(retriever: Retriever, question: Question) -> Found:
    try:
        answer = await retriever.retrieve(question)
        return answer if isinstance(answer, Found) else judged(answer)
    except Exception as error:  # noqa: BLE001 - whatever a retriever does wrong is a search that failed
        # The word for it, never the text: that may hold addresses, queries and secrets.
        reason = error.code if isinstance(error, AntiphonError) else type(error).__name__
        return Found(status=RetrievalStatus.FAILED, reason=reason)
