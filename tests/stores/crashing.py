"""A process that works on a database until it dies: run as `crashing.py DATABASE STATEMENT`.

It dies by SIGKILL before the writer's statement of that number; with 0 it works until it is
killed. After each durable answer it prints how many events its conversation has, and how long
the write-ahead log is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from typing import Any

from antiphon.core.commands import Then
from antiphon.stores.sqlite import open_sqlite
from tests.stores.talk import Talk, done

REAL_CONNECT = sqlite3.connect


class Mortal(sqlite3.Connection):
    """Dies before its statement number `dies_at`, counted from its first transaction on."""

    dies_at = 0
    count = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if Mortal.count or sql.startswith("BEGIN IMMEDIATE"):
            Mortal.count += 1
            if Mortal.count == Mortal.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, parameters)


async def work(path: str) -> None:
    """One turn with a tool after another, each in two steps."""
    Mortal.count = 0
    store = await open_sqlite(path, linger_s=0.001)
    known = await store.conversations(Talk.tenant())
    name = f"conv_{len(known)}"
    Mortal.count = 1
    talk = await Talk.begin(store, name)
    turn, generation, revision, parent = 0, 0, 0, None

    async def acknowledge() -> None:
        log = os.path.getsize(f"{path}-wal")  # noqa: ASYNC240 - nobody else runs here
        print(name, (await talk.row()).last_event, log, flush=True)

    while True:
        run, first, second = f"{name}_run{turn}", f"{name}_op{turn}a", f"{name}_op{turn}b"
        question, answer, results, last = (f"{word}{turn}" for word in ("m", "a", "r", "z"))
        generation += 2
        steps: list[list[Any]] = [
            [
                talk.start(run, question),
                talk.place(run, parent=parent, revision=revision),
                talk.prepare(run, first, base=question, revision=revision + 1, answer=answer),
                talk.accept(first),
            ],
            [talk.written(first, generation - 1)],
            [talk.opened(first, generation - 1, f"resp_{generation}")],
            [
                talk.commit(
                    first, generation - 1, talk.answer(answer, f"call_{turn}"), then=Then.CONTINUE
                )
            ],
            [talk.start_call(run, f"call_{turn}")],
            [talk.finish_call(run, f"call_{turn}")],
            [
                talk.place_results(run, results),
                talk.prepare(run, second, base=results, revision=revision + 3, answer=last),
                talk.accept(second),
            ],
            [talk.written(second, generation)],
            [talk.opened(second, generation)],
            [talk.commit(second, generation, talk.answer(last))],
        ]
        for commands in steps:
            done(await store.do_all(*commands))
            await acknowledge()
        turn, revision, parent = turn + 1, revision + 4, last


def main() -> None:
    """Work until killed."""
    Mortal.dies_at = int(sys.argv[2])
    sqlite3.connect = lambda *args, **more: REAL_CONNECT(*args, **more, factory=Mortal)  # type: ignore[assignment]  # for this process only
    asyncio.run(work(sys.argv[1]))


if __name__ == "__main__":
    main()
