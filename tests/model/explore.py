"""Breadth first through every world that can be reached; then, what cannot end.

A world is *stuck* when no path of helpful moves leads from it to a finished one: crashes,
cancels and the other misfortunes may happen, but nothing may depend on them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.model.world import Breach

W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an exploration saw. `path` leads to the breach, `rows` are those of the table it took."""

    states: int
    transitions: int
    breach: Breach | None = None
    path: tuple[tuple[object, ...], ...] = ()
    rows: frozenset[tuple[int, str]] = frozenset()


class Explorer(Generic[W]):
    """Explores one model.

    Args:
        moves: The moves that are possible in a world: label, next world, breach, helpful.
        standing: The breach that a world is by itself, or None.
        finished: Whether everything that was asked has come to an end.
        wanted: Which breaches end the exploration; the others are looked past.
        limit: More states than this are a mistake of the scenario.
    """

    def __init__(
        self,
        moves: Callable[[W], Iterable[tuple[tuple[object, ...], W, Breach | None, bool]]],
        standing: Callable[[W], Breach | None],
        finished: Callable[[W], bool],
        *,
        wanted: Callable[[Breach], bool] = lambda _: True,
        limit: int = 200_000,
    ) -> None:
        self._moves = moves
        self._standing = standing
        self._finished = finished
        self._wanted = wanted
        self._limit = limit

    def run(self, first: W) -> Found:
        """Explore everything that can be reached from `first`."""
        seen: dict[W, int] = {first: 0}
        worlds: list[W] = [first]
        parents = array("q", [-1])
        labels: list[tuple[object, ...]] = [()]
        sources, targets = array("q"), array("q")
        transitions = 0

        def path(place: int, last: tuple[object, ...] = ()) -> tuple[tuple[object, ...], ...]:
            steps = [last] if last else []
            while place > 0:
                steps.append(labels[place])
                place = parents[place]
            return tuple(reversed(steps))

        place = 0
        while place < len(worlds):
            for label, world, breach, help_ in self._moves(worlds[place]):
                transitions += 1
                if breach and self._wanted(breach):
                    return Found(
                        states=len(worlds),
                        transitions=transitions,
                        breach=breach,
                        path=path(place, label),
                    )
                target = seen.get(world)
                if target is None:
                    target = len(worlds)
                    if target >= self._limit:
                        raise RuntimeError(f"more than {self._limit} states")
                    seen[world] = target
                    worlds.append(world)
                    parents.append(place)
                    labels.append(label)
                    stands = self._standing(world)
                    if stands and self._wanted(stands):
                        return Found(
                            states=len(worlds),
                            transitions=transitions,
                            breach=stands,
                            path=path(target),
                        )
                if help_ and target != place:
                    sources.append(place)
                    targets.append(target)
            place += 1
        stuck = self._stuck(worlds, sources, targets)
        breach = Breach("stuck", "stuck: no way on from here") if stuck is not None else None
        if breach is None or not self._wanted(breach):
            return Found(states=len(worlds), transitions=transitions)
        return Found(
            states=len(worlds), transitions=transitions, breach=breach, path=path(stuck or 0)
        )

    def _stuck(self, worlds: list[W], sources: array[int], targets: array[int]) -> int | None:
        """Return the first world from which helpful moves lead to no finished one, or None."""
        # Edges sorted by target, so that one pass backwards from the finished worlds meets every edge once.
        before: list[list[int]] = [[] for _ in worlds]
        for source, target in zip(sources, targets, strict=True):
            before[target].append(source)
        ends = [self._finished(world) for world in worlds]
        todo = [place for place, end in enumerate(ends) if end]
        while todo:
            for place in before[todo.pop()]:
                if not ends[place]:
                    ends[place] = True
                    todo.append(place)
        return next((place for place, end in enumerate(ends) if not end), None)
