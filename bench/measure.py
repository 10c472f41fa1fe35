"""Measuring side by side: contestants take turns, and each is given its median.

The machine is never quiet. So contestants are interleaved, sample by sample, what is compared
is CPU time and bytes rather than wall time, and a figure is a ratio of two medians of one run.
"""

from __future__ import annotations

import gc
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import msgspec

Sample: TypeAlias = Callable[[], object] | Callable[[], Awaitable[object]]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report: a figure of ours beside its floor or rival from the same run.

    `ratio` is `ours / rival`. `goal` ends in `aim` where the target is where we want to be
    rather than the least that counts.
    """

    goal: str
    what: str
    ours: float
    rival: float
    rival_name: str
    ratio: float
    target: str
    met: bool
    unit: str


def figure(
    goal: str,
    what: str,
    ours: float,
    rival: float,
    rival_name: str,
    *,
    unit: str,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    """Return the line for two medians and the bound that their ratio should keep."""
    ratio = ours / rival if rival else float("inf")
    if at_most is not None:
        target, met = f"at most {at_most:.4g}", ratio <= at_most
    elif at_least is not None:
        target, met = f"at least {at_least:.4g}", ratio >= at_least
    else:
        raise ValueError("A figure needs a bound.")
    return Figure(
        goal=goal,
        what=what,
        ours=_short(ours),
        rival=_short(rival),
        rival_name=rival_name,
        ratio=_short(ratio),
        target=target,
        met=met,
        unit=unit,
    )


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def note(text: str) -> None:
    """Tell the person who waits; the report itself stays on standard output."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one sample took: CPU of the whole process, wall time, bytes passed to write()."""

    cpu_ms: float
    wall_ms: float
    written: float


async def cost(work: Sample, times: int) -> Cost:
    """Do `work` so many times, all its threads included, and return what one of them took."""
    written, cpu, wall = bytes_written(), time.process_time(), time.perf_counter()
    for _ in range(times):
        result = work()
        if inspect.isawaitable(result):
            await result
    return Cost(
        (time.process_time() - cpu) * 1000 / times,
        (time.perf_counter() - wall) * 1000 / times,
        (bytes_written() - written) / times,
    )


async def interleaved(
    contestants: Mapping[str, Sample], rounds: int, *, warm_up: int = 2, times: int = 1
) -> dict[str, list[Cost]]:
    """Give each contestant one sample a round; the first `warm_up` rounds do not count.

    A sample is its work done `times` times in a row, so that whatever the others left in the
    processor's caches is not all that is measured.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    gc.collect()
    gc.freeze()  # what was there before, six SDKs among it, is nobody's to walk through
    for number in range(warm_up + rounds):
        gc.collect()
        for name, work in contestants.items():
            taken = await cost(work, times)
            if number >= warm_up:
                costs[name].append(taken)
    gc.unfreeze()
    return costs


def cpu_ms(costs: Iterable[Cost]) -> float:
    """Return the median CPU milliseconds of a sample."""
    return median(c.cpu_ms for c in costs)


def written(costs: Iterable[Cost]) -> float:
    """Return the median bytes of a sample."""
    return median(c.written for c in costs)


def bytes_written() -> int:
    """Return the bytes that this process has passed to write() so far, in all its threads."""
    with open("/proc/self/io", "rb") as counters:
        for line in counters:
            if line.startswith(b"wchar:"):
                return int(line.split()[1])
    raise RuntimeError("This kernel does not count what a process writes.")
