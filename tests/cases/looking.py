"""Looking at a case under way: rows, bytes and screens at one moment."""

from __future__ import annotations

import json
from typing import Any, Final

from antiphon.core.blocks import Status
from tests.cases.assertions import REQUEST_KEYS
from tests.cases.facts import Asked, Facts, Rows
from tests.cases.played import ENDED, Playing
from tests.cases.probe import follow_up

GRACE_S: Final = 2.5
NEXT_KEYS: Final = REQUEST_KEYS | {"history_contains_partial", "terminates"}


class Looking(Playing):
    """Gathers facts; changes nothing but time that has to pass and gates that hold no longer."""

    async def look(self, *expects: dict[str, Any]) -> Facts:
        """Return what can be seen now; `expects` say what has to be looked at closely."""
        keys = {key for expect in expects for key in expect}
        if "model_calls" in keys:
            await self.release()
        if keys & {"quarantined", "quarantined_at_least"}:
            await self._let_grace_pass()
        asked: dict[str, Asked] = {}
        for expect in expects:
            name = expect.get("request_of")
            if name is None and not expect.keys() & NEXT_KEYS:
                continue
            if name is None or name == "next":
                asked["next"] = asked.get("next") or await self._next()
            else:
                asked[name] = await self._request(name)
        rows = await self._rows()
        errors, self._errors = self._errors, []
        return Facts(
            rows=rows,
            names={**self._names, **self._kept_names(rows)},
            said=dict(self._said),
            committed=set(self._committed),
            runs={name: list(run.chain) for name, run in self._runs.items() if run.chain},
            refused_runs={n: r.refused for n, r in self._runs.items() if r.refused},
            asked=asked,
            bodies=[exchange.body for exchange in self._provider.exchanges],
            repeated=self._repeated(),
            executions=self._executions(),
            screens={name: screen.text() for name, screen in self._screens.items()},
            screen_problems=self._screen_problems(),
            errors=errors,
            at_the_door=self._at_the_door,
            kept_texts=self._kept_texts(rows),
        )

    async def _let_grace_pass(self) -> None:
        """Let the engine hang up on what was canceled: what was on its way has arrived by then."""
        for run in self._runs.values():
            if self._stage.alive and run.live and (await self._row(run.id))["status"] in ENDED:
                await self._stage.do("advance", seconds=GRACE_S)
                return

    async def _next(self) -> Asked:
        return await follow_up(self._start(), self._conversation(), self._now_ms)

    async def _request(self, name: str) -> Asked:
        run = self._runs.get(name)
        if run is None or run.refused is not None:
            return Asked(error=run.refused if run is not None else "no such run")
        if self._stage.alive and run.live is None:
            await self._demand(run)
        if run.exchanges:
            return Asked(run.exchanges[-1][1])
        row = await self._row(run.id)
        return Asked(error=row["error_code"] or row["status"])

    def _kept_names(self, rows: dict[str, Rows]) -> dict[str, str]:
        """Name what a canceled run left for people as the case names what it would have said."""
        found: dict[str, str] = {}
        for run in self._runs.values():
            for message in rows[run.conversation].tree if run.answers else ():
                if message.run in run.chain and message.status is Status.CANCELED:
                    name = run.answers[-1]
                    if name not in self._names:
                        found[name] = message.id
        return found

    def _kept_texts(self, rows: dict[str, Rows]) -> dict[str, str]:
        return {
            run.name: message.text
            for run in self._runs.values()
            for message in rows[run.conversation].tree
            if message.run in run.chain and message.status is Status.CANCELED
        }

    def _repeated(self) -> bool:
        bodies = [exchange.body for exchange in self._provider.exchanges]
        again = len(bodies) - len(set(bodies))
        return again > self._asked_again or any(n > 1 for n in self._executions().values())

    def _executions(self) -> dict[str, int]:
        found = dict(self._by_client)
        if self._effects.exists():
            for line in self._effects.read_text(encoding="utf-8").splitlines():
                note = json.loads(line)
                if note["what"] == "started":
                    found[note["call"]] = found.get(note["call"], 0) + 1
        return found

    def _screen_problems(self) -> list[str]:
        problems = []
        for screen in self._screens.values():
            problems += [f"{screen.client}: {problem}" for problem in screen.problems]
            run = next((r for r in self._runs.values() if screen.run in r.chain), None)
            if run is not None and run.live is not None and screen.connected:
                said = run.live.text[screen.hides :]
                if screen.text() != said:
                    shown = screen.text()
                    problems.append(f"{screen.client} shows {shown!r} where {said!r} was said")
        return problems
