"""An event loop whose time is a number: the same program takes the same steps, every time.

Callbacks run in the order in which they were scheduled, as asyncio promises; time moves only when
nothing is left to run, and then to the next timer. Nothing here knows threads, sockets or the
machine's clock, so a run depends on its seed alone, and can be stopped between any two steps.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")

_Base: Any = asyncio.AbstractEventLoop


class VirtualLoop(_Base):  # type: ignore[misc]  # its stub wants sockets, signals and processes too
    """Runs one life of a process. Drive it with `step`; give it up with `abandon`."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []
        self.steps = 0
        self.faults: list[str] = []
        """What nobody awaited: exceptions of callbacks and of tasks that were dropped."""

    # Driving.

    def step(self) -> bool:
        """Run one callback, after moving time to it where nothing else is left; False at rest."""
        while not self._ready and self._timers:
            due_s, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._now_s = max(self._now_s, due_s)
                self._ready.append(timer)
        if not self._ready:
            return False
        handle = self._ready.popleft()
        if not handle.cancelled():
            self.steps += 1
            with self.entered():
                handle._run()
        return True

    def finish(self, work: Coroutine[Any, Any, T], most_steps: int) -> T:
        """Step until `work` is done, and return what it came to."""
        with self.entered():
            task = self.create_task(work)
        for _ in range(most_steps):
            if task.done():
                done: T = task.result()
                return done
            if not self.step():
                raise AssertionError(f"{task.get_name()} waits for what never comes")
        raise AssertionError(f"{task.get_name()} is not done after {most_steps} steps")

    def abandon(self) -> None:
        """Die: nothing that was under way goes on, and none of it may complain later."""
        self._ready.clear()
        self._timers.clear()
        with self.entered():
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it did not end
                # The dead wait for nothing any more; a group of tasks makes a group of that.
                with suppress(RuntimeError, ValueError, BaseExceptionGroup):
                    task.get_coro().close()
        self._ready.clear()
        self._timers.clear()

    @contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Be the running loop of this thread for a while."""
        outer, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=_unseen, finalizer=_unseen)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        raise AssertionError("a simulated process has one thread")

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do in one step what a thread would do meanwhile."""
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            asyncio._set_running_loop(None)  # a thread has no loop
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                done.set_exception(error)
            else:
                done.set_result(result)
            finally:
                asyncio._set_running_loop(self)

        self.call_soon(work)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(f"{context['message']}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def _unseen(_: object) -> None:
    """Take no note of a generator: one that its process has left behind ends with it."""
