"""What a follower knows: one value, and one function that folds a frame into it.

Rule 1: nothing here reads a clock, a socket or another frame than the one given.
Rule 2: whatever a network does to the frames, cut, double or reorder them, the state is one
that the server was in, or says that it is `behind`; then its owner attaches again at `seq`.
Rule 3: previews live in a map of their own. Nothing that is sent is ever built from it.

`tests/data/client/` holds the same rules as JSON, for clients in other languages.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from antiphon.core.events import (
    CallChanged,
    Committed,
    ConversationErased,
    Decided,
    DispatchChanged,
    DurableEvent,
    GoalChanged,
    HeadMoved,
    Kept,
    MessagesAdded,
    MessagesDeleted,
    Placed,
    Preview,
    QuestionChanged,
    Repaired,
    ResultsPlaced,
    RunChanged,
    SchedulingSet,
    SessionActivated,
    SessionSwitched,
    Withdrawn,
)
from antiphon.core.ids import MessageId, RunId
from antiphon.core.records import OPEN_RUN, RunStatus
from antiphon.core.telling.attach import (
    Delta,
    End,
    Ending,
    Frame,
    Held,
    Numbered,
    Reached,
    Snapshot,
)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The preview of one run. All of it may still be withdrawn."""

    generation: int
    blocks: tuple[Held, ...] = ()


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as far as its frames were followed.

    Attributes:
        seq: Number of the last durable event: the cursor to come back with.
        head: Where the active line ends, as far as the events told.
        runs: The status of each run that the events named.
        messages: Every message that the events named.
        deleted: Those of them that are skipped on every line.
        previews: What is being shown, by run.
        over: By run, the newest generation whose preview is over: a late frame brings nothing back.
        caught_up: Whether what comes now is happening now.
        behind: Whether frames are missing: attach again at `seq`. Until then nothing is taken.
        ended: Why the server ended the stream in good order, if it did.
    """

    seq: int = 0
    head: MessageId | None = None
    runs: dict[RunId, RunStatus] = {}
    messages: frozenset[MessageId] = frozenset()
    deleted: frozenset[MessageId] = frozenset()
    previews: dict[RunId, Shown] = {}
    over: dict[RunId, int] = {}
    caught_up: bool = False
    behind: bool = False
    ended: Ending | None = None


_NOTHING: Final = Shown(generation=0)


def attached(state: State) -> State:
    """Return the state at the beginning of a new stream from its cursor; what it knows stays."""
    return replace(state, caught_up=False, behind=False, ended=None)


def reduce(state: State, frame: Frame) -> State:
    """Return the state after `frame`; the state given is left as it was.

    Example:
        >>> gap = Numbered(seq=3, at_ms=0, event=HeadMoved(head=None))
        >>> reduce(State(seq=1), gap).behind
        True
    """
    if state.behind or state.ended is not None:
        return state
    match frame:
        case Numbered(seq=seq) if seq <= state.seq:
            return state
        case Numbered(seq=seq) if seq > state.seq + 1:
            return replace(state, behind=True)
        case Numbered(seq=seq, event=event):
            return replace(_after(state, event), seq=seq)
        case Snapshot():
            return _snapshot(state, frame)
        case Delta():
            return _delta(state, frame)
        case Reached(seq=seq) if seq > state.seq:
            return replace(state, behind=True)
        case Reached():
            return replace(state, caught_up=True)
        case End(seq=seq) if seq > state.seq:
            return replace(state, behind=True)
        case End(reason=reason):
            return replace(state, ended=reason)
        case _:
            assert_never(frame)


def fresh(before: State, after: State) -> list[Preview]:
    """Return the text that `after` shows and `before` did not, as pieces with their places.

    Example:
        >>> from antiphon.core.answers.deltas import Channel
        >>> piece = Delta(run=RunId("r"), generation=1, block=0, channel=Channel.TEXT,
        ...               offset=0, text="Hi")
        >>> [p.text for p in fresh(State(), reduce(State(), piece))]
        ['Hi']
    """
    if before.previews is after.previews:
        return []
    pieces = []
    for run, shown in after.previews.items():
        held = before.previews.get(run, _NOTHING)
        if held is shown:
            continue
        same = held.generation == shown.generation
        lengths = {block.block: len(block.text) for block in held.blocks} if same else {}
        for block in shown.blocks:
            offset = lengths.get(block.block, 0)
            if offset < len(block.text):
                pieces.append(
                    Preview(
                        run=run,
                        generation=shown.generation,
                        block=block.block,
                        channel=block.channel,
                        offset=offset,
                        text=block.text[offset:],
                    )
                )
    return pieces


# Durable events.


def _after(state: State, event: DurableEvent) -> State:
    match event:
        case RunChanged(run=run, status=status):
            runs = {**state.runs, run: status}
            state = replace(state, runs=runs)
            return state if status in OPEN_RUN else _without(state, run)
        case Placed(message=message) | ResultsPlaced(message=message) | Kept(message=message):
            return _with(state, message)
        case Committed(run=run, message=message, generation=generation):
            return _without(_with(state, message), run, generation)
        case Withdrawn(run=run, generation=generation):
            return _without(state, run, generation)
        case HeadMoved(head=head):
            return replace(state, head=head)
        case MessagesAdded(messages=messages):
            return _with(state, *messages)
        case MessagesDeleted(messages=messages):
            return replace(state, deleted=state.deleted | frozenset(messages))
        case DispatchChanged() | QuestionChanged() | CallChanged():
            return state
        case ConversationErased() | Repaired():
            return state
        case Decided() | GoalChanged() | SessionSwitched() | SessionActivated() | SchedulingSet():
            return state  # where the line ends then, `HeadMoved` says
        case _:
            assert_never(event)


def _with(state: State, *messages: MessageId) -> State:
    return replace(state, messages=state.messages | frozenset(messages))


def _without(state: State, run: RunId, generation: int | None = None) -> State:
    """Return the state without the run's preview, up to `generation`, or of any."""
    shown = state.previews.get(run)
    last = generation if generation is not None else (shown.generation if shown else None)
    if last is None:
        return state
    previews = state.previews
    if shown is not None and shown.generation <= last:
        previews = {name: other for name, other in previews.items() if name != run}
    over = {**state.over, run: max(last, state.over.get(run, 0))}
    return replace(state, previews=previews, over=over)


# Previews.


def _is_over(state: State, run: RunId, generation: int) -> bool:
    """Whether a preview of this generation has no place any more."""
    status = state.runs.get(run)
    shown = state.previews.get(run, _NOTHING)
    return (
        generation <= state.over.get(run, 0)
        or generation < shown.generation
        or (status is not None and status not in OPEN_RUN)
    )


def _snapshot(state: State, frame: Snapshot) -> State:
    if _is_over(state, frame.run, frame.generation):
        return state
    shown = state.previews.get(frame.run, _NOTHING)
    held = {block.block: block for block in shown.blocks}
    if shown.generation != frame.generation:
        held = {}
    for block in frame.blocks:
        known = held.get(block.block)
        if known is None or len(known.text) < len(block.text):  # an older one may come twice
            held[block.block] = block
    return _showing(state, frame.run, frame.generation, held)


def _delta(state: State, frame: Delta) -> State:
    if _is_over(state, frame.run, frame.generation):
        return state
    shown = state.previews.get(frame.run, _NOTHING)
    held = {block.block: block for block in shown.blocks}
    if shown.generation != frame.generation:
        held = {}
    known = held.get(frame.block)
    text = known.text if known is not None else ""
    if frame.offset > len(text):
        return replace(state, behind=True)
    more = frame.text[len(text) - frame.offset :]
    if not more:
        return state
    held[frame.block] = Held(block=frame.block, channel=frame.channel, text=text + more)
    return _showing(state, frame.run, frame.generation, held)


def _showing(state: State, run: RunId, generation: int, held: dict[int, Held]) -> State:
    blocks = tuple(held[number] for number in sorted(held))
    shown = Shown(generation=generation, blocks=blocks)
    return replace(state, previews={**state.previews, run: shown})
