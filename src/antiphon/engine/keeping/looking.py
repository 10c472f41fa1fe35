"""Questions that take more than one row to answer, for whoever asks: a program, a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.core.asking import ModelTold
from antiphon.core.blocks import Message, Role
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.records import OPEN_RUN, Conversation
from antiphon.core.telling.archive import Archived
from antiphon.core.telling.listings import Tree
from antiphon.core.tree import line as visible
from antiphon.core.tree import nearest_visible
from antiphon.engine.catalogue.models import REHEARSAL, Models
from antiphon.errors import InvalidInput
from antiphon.stores.base import Store

NEAR: Final = 32
"""So many messages are read at first, where it is not known how many are needed."""


async def line(
    store: Store, conversation: ConversationId, leaf: MessageId | None, limit: int | None = None
) -> list[Message]:
    """Return the line that a model may see, to `leaf` or the head; the newest `limit` of it."""
    row = await store.conversation(conversation)
    at = leaf or row.head
    if at is None:
        return []
    reach = limit
    while True:
        path = await store.path(conversation, at, limit=reach)
        found = visible(path, row.deletions)
        if limit is None or reach is None:
            return found
        if len(found) >= limit or len(path) < reach:
            return found[-limit:]
        reach *= 4  # deleted messages were among them


async def back_to(
    store: Store,
    row: Conversation,
    leaf: MessageId,
    begins: Callable[[Message], bool],
    times: int = 1,
) -> list[Message]:
    """Return the line to `leaf` from the newest message on that `begins` it, or from root to leaf.

    It is the so many `times` newest. What stands before an answer of a model is closed, since none
    is asked while a call is open: so a part that begins with an answer tells what is open as well
    as the whole line does, and costs the same however long that is.
    """
    reach = NEAR
    while True:
        path = await store.path(row.id, leaf, limit=reach)
        found = visible(path, row.deletions)
        places = [number for number, message in enumerate(found) if begins(message)]
        if len(places) >= times:
            return found[places[-times] :]
        if len(path) < reach:
            return found
        reach *= 4


async def parent_of(store: Store, row: Conversation, message: Message) -> MessageId | None:
    """Return the nearest message above that is not deleted; None is the root."""
    near = await store.path(row.id, message.id, limit=NEAR)
    above = nearest_visible(near[:-1], row.deletions)
    if above is None and near[0].parent is not None:  # all of it was deleted
        above = nearest_visible((await store.path(row.id, message.id))[:-1], row.deletions)
    return above


def is_answer(message: Message) -> bool:
    """Whether a model said it, or whoever brought the history says so."""
    return message.role is Role.ASSISTANT


async def tree(store: Store, row: Conversation, newest: int | None = None) -> Tree:
    """Return a conversation's tree; with `newest`, no more than who opens it sees first.

    That is the end of the line that is looked at, with every alternative to a message on it, so
    that its versions can be told.
    """
    if newest is not None:
        open_runs = await store.runs(row.id, OPEN_RUN)
        leaf = next((run.leaf for run in reversed(open_runs) if run.leaf is not None), row.head)
        messages, whole = await store.excerpt(row.id, leaf, newest)
        if not whole:
            named = {message.run for message in messages if message.run is not None}
            ended = [await store.run(row.id, run) for run in named - {run.id for run in open_runs}]
            runs = sorted([*open_runs, *ended], key=lambda run: run.seq)
            return Tree(conversation=row, messages=messages, runs=runs, whole=False)
    return Tree(conversation=row, messages=await store.tree(row.id), runs=await store.runs(row.id))


async def archived(store: Store, row: Conversation) -> Archived:
    """Return a conversation whole, as a file of it holds it."""
    return Archived(
        id=row.id,
        title=row.title,
        head=row.head,
        created_ms=row.created_ms,
        metadata=row.metadata,
        erased_ms=row.erased_ms,
        messages=tuple(await store.tree(row.id)),
        deleted=row.deletions,
    )


def models_told(models: Models) -> list[ModelTold]:
    """Return every model there is, the default one first, and what is behind its name."""
    return [model_told(models, name) for name in models.names()]


def model_told(models: Models, name: str) -> ModelTold:
    """Return what is behind one name; where a key is missing, that."""
    try:
        model = models.get(name)
        about = f"{model.profile} at {model.base_url}"
    except InvalidInput as error:
        about = error.message
    if name == REHEARSAL:
        about = "a script that stands in for a model; works offline"
    return ModelTold(name=name, about=about, default=name == models.default_name)
