"""The tree of messages: lines, closed points, siblings.

The model sees one line: the ancestors of one leaf, without what was deleted. A parent is
never chosen by time, since the newest message may stand on another branch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from antiphon.core.blocks import Message, Role, Status
from antiphon.core.ids import CallId, ConversationId, MessageId
from antiphon.errors import Refused


def walk(
    conversation: ConversationId,
    leaf: MessageId,
    find: Callable[[MessageId], Message | None],
) -> list[Message]:
    """Return the ancestors of `leaf` and itself, root first.

    Raises:
        Refused: `missing_parent`, `foreign_parent` or `cycle`, at the message in question.
            The tree is broken there; nothing was guessed.
    """
    path: list[Message] = []
    seen: set[MessageId] = set()
    at: MessageId | None = leaf
    while at is not None:
        if at in seen:
            raise Refused("The parents of this message form a circle.", code="cycle", at=at)
        seen.add(at)
        message = find(at)
        if message is None:
            raise Refused("This message is not there.", code="missing_parent", at=at)
        if message.conversation != conversation:
            raise Refused(
                "This message belongs to another conversation.", code="foreign_parent", at=at
            )
        path.append(message)
        at = message.parent
    path.reverse()
    return path


def line(path: Iterable[Message], deleted: Collection[MessageId]) -> list[Message]:
    """Return what of `path` (root first) a model may see: committed, and not deleted.

    The last message of the path stays even while it is pending, for it may be the input of
    the run that is being dispatched.
    """
    messages = [m for m in path if m.id not in deleted]
    last = len(messages) - 1
    return [
        m
        for n, m in enumerate(messages)
        if m.status is Status.SUCCESS or (n == last and m.status is Status.PENDING)
    ]


def open_calls(messages: Iterable[Message]) -> tuple[CallId, ...]:
    """Return the calls on a line that have no result yet, in the order they were asked."""
    waiting: dict[CallId, None] = {}
    for message in messages:
        if message.role is Role.ASSISTANT:
            waiting.update((call.call_id, None) for call in message.calls)
        elif message.role is Role.TOOL:
            for result in message.results:
                waiting.pop(result.call_id, None)
    return tuple(waiting)


def last_closed_point(messages: Sequence[Message]) -> MessageId | None:
    """Return the default parent on a line: the newest committed message with no call open.

    None stands for the root. An assistant message with calls is closed by the message that
    holds the last of their results, which is then the parent.

    Args:
        messages: The line, root first; or its newest part, from a closed point on.
    """
    waiting: set[CallId] = set()
    closed: MessageId | None = None
    for message in messages:
        if message.status is not Status.SUCCESS:
            continue
        if message.role is Role.ASSISTANT:
            waiting.update(call.call_id for call in message.calls)
        elif message.role is Role.TOOL:
            waiting.difference_update(result.call_id for result in message.results)
        if not waiting:
            closed = message.id
    return closed


def siblings(of: Message, children: Iterable[Message]) -> tuple[MessageId, ...]:
    """Return the alternatives to `of`, itself included, in the order they came.

    An input counts from its placement on: whoever edits a message sees both at once.

    Args:
        of: The message.
        children: The children of its parent. Other roles are no alternatives: a user message
            beside an assistant message continues the talk, it does not replace it. Nor is where
            another session begins.
    """
    return tuple(m.id for m in children if m.role is of.role and m.session == of.session)


def nearest_visible(path: Sequence[Message], deleted: Collection[MessageId]) -> MessageId | None:
    """Return the newest message of `path` that is not deleted; None is the root."""
    return next((m.id for m in reversed(path) if m.id not in deleted), None)


def with_results(
    wanted: Collection[MessageId], messages: Iterable[Message]
) -> frozenset[MessageId]:
    """Return `wanted` with what a deletion has to take along: calls with their results.

    A call without its result, or a result without its call, would make every later request
    illegal, so they go together.
    """
    everything = list(messages)
    by_call: dict[CallId, set[MessageId]] = {}
    for message in everything:
        if message.role is Role.ASSISTANT or message.role is Role.TOOL:
            for call_id in (
                *(c.call_id for c in message.calls),
                *(r.call_id for r in message.results),
            ):
                by_call.setdefault(call_id, set()).add(message.id)
    groups: dict[MessageId, set[MessageId]] = {}
    for members in by_call.values():
        for member in members:
            groups.setdefault(member, set()).update(members)
    taken: set[MessageId] = set()
    todo = list(wanted)
    while todo:
        message_id = todo.pop()
        if message_id not in taken:
            taken.add(message_id)
            todo.extend(groups.get(message_id, ()))
    return frozenset(taken)
