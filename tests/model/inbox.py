"""Acceptance of a message, as a world of its own: one client, one key, two nodes that may crash.

The real counterpart is the command `StartRun`: run, key and input in one transaction, before
the acknowledgement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.model.explore import Explorer
from tests.model.world import Breach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.model.explore import Found


class Inbox(NamedTuple):
    """`posts` are requests inside a node: arrived, run written, or written; none survives a crash."""

    posts: tuple[str, ...] = ()
    sent: int = 0
    runs: int = 0
    key: bool = False
    acknowledged: bool = False
    crashes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRules:
    """What must hold; a mutant changes one."""

    key_with_the_run: bool = True
    key_looked_up: bool = True
    durable_before_acknowledged: bool = True


INBOX_RULES: Final = InboxRules()

Step = tuple[tuple[object, ...], Inbox, Breach | None, bool]


def moves(rules: InboxRules) -> Callable[[Inbox], Iterator[Step]]:
    """Return the function that lists every move in an inbox."""

    def all_moves(inbox: Inbox) -> Iterator[Step]:
        if inbox.sent < 2 and not inbox.acknowledged:
            yield _step(
                "post", inbox._replace(sent=inbox.sent + 1, posts=(*inbox.posts, "arrived"))
            )
        for place, post in enumerate(inbox.posts):
            rest = (*inbox.posts[:place], *inbox.posts[place + 1 :])
            yield from _serve(rules, inbox, post, rest)
        if inbox.crashes and inbox.posts:
            # The client that gets no answer asks again, with the same key.
            crashed = inbox._replace(posts=(), crashes=inbox.crashes - 1, sent=min(inbox.sent, 1))
            yield ("crash",), crashed, None, False

    return all_moves


def _serve(rules: InboxRules, inbox: Inbox, post: str, rest: tuple[str, ...]) -> Iterator[Step]:
    at = tuple(sorted((*rest, "written")))
    if post == "arrived":
        if not rules.durable_before_acknowledged and not inbox.acknowledged:
            yield _step("acknowledge early", inbox._replace(acknowledged=True))
        if inbox.key and rules.key_looked_up:
            yield _step("known", inbox._replace(posts=at))
        elif rules.key_with_the_run:
            yield _step("start", inbox._replace(posts=at, runs=inbox.runs + 1, key=True))
        else:
            half = tuple(sorted((*rest, "run written")))
            yield _step("start without key", inbox._replace(posts=half, runs=inbox.runs + 1))
    elif post == "run written":
        yield _step("key", inbox._replace(posts=at, key=True))
    else:
        yield _step("acknowledge", inbox._replace(posts=rest, acknowledged=True))


def _step(label: str, inbox: Inbox) -> Step:
    return (label,), inbox, None, True


def standing(inbox: Inbox) -> Breach | None:
    """Invariant 15."""
    if inbox.runs > 1:
        return Breach("15", "one key, two runs")
    if inbox.acknowledged and not inbox.runs and not inbox.posts:
        return Breach("15", "acknowledged message lost")
    return None


def explore_inbox(rules: InboxRules, wanted: Callable[[Breach], bool] = lambda _: True) -> Found:
    """Explore the inbox to its end, or to the first wanted breach."""
    return Explorer(moves(rules), standing, lambda inbox: inbox.acknowledged, wanted=wanted).run(
        Inbox()
    )
