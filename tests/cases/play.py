"""Playing a case: each step of its file as something that a person, a provider or a crash does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from antiphon.core.blocks import Role, Status
from antiphon.core.records import OPEN_RUN
from tests.cases.facts import Said
from tests.cases.looking import Looking
from tests.cases.played import ARRIVAL_S, ENDED, RunOf
from tests.cases.screens import Screen
from tests.cases.stage import Refused

SECONDS: Final = {"seconds": 1.0, "s": 1.0, "ms": 0.001, "minutes": 60.0, "hours": 3600.0}

STATUSES: Final = {
    "success": "success",
    "completed": "success",
    "committed": "success",
    "error": "error",
    "failed": "error",
    "canceled": "canceled",
    "cancelled": "canceled",
    "pending": "pending",
}


class Play(Looking):
    """One case under way."""

    async def step(self, position: int) -> None:
        """Do what stands at a position of the case.

        Raises:
            KeyError: There is no such step.
        """
        step = self._steps[position]
        self._position = position
        handler: Callable[[dict[str, Any]], Awaitable[None]] | None
        handler = getattr(self, f"step_{step['op']}", None)
        if handler is None:
            raise KeyError(f"no such step: {step['op']}")
        if not self._stage.alive and step["op"] not in ("recover", "crash", "disconnect"):
            self._meanwhile.append(step)
            return
        await self._carry_out(handler, step)
        if self._stage.alive:
            await self._quiet()

    async def _carry_out(
        self, handler: Callable[[dict[str, Any]], Awaitable[None]], step: dict[str, Any]
    ) -> None:
        if "conversation" in step:
            self._touched = step["conversation"]
        try:
            await handler(step)
        except Refused as refused:
            self._errors.append(refused.code)
            self._note(f"{step['op']} was refused: {refused.code}")
            if "run" in step and step["op"] in ("send", "edit", "regenerate", "start_run"):
                run = self._runs.setdefault(step["run"], RunOf(step["run"], self._conversation()))
                run.refused = refused.code

    # What people do.

    async def step_conversation(self, step: dict[str, Any]) -> None:
        name = step["id"]
        self._conversations.append(name)
        messages = [_fields(message) for message in step.get("messages", ())]
        for fields in messages:
            calls, results = tuple(fields["calls"]), tuple(fields["results"])
            said = Said(fields["id"], name, fields["role"], fields["text"], calls, results)
            self._said[said.name] = said
            self._names[said.name] = said.name
            if fields["status"] == "success":
                self._committed.add(said.name)
        head = step.get("active_leaf")
        await self._stage.do("create", conversation=name, messages=messages, head=head)

    async def step_send(self, step: dict[str, Any]) -> None:
        conversation = step.get("conversation") or self._conversation()
        run = self._runs.setdefault(step["run"], RunOf(step["run"], conversation))
        name, text = step.get("message"), step["text"]
        parent = step.get("parent", "active")
        if parent is None and any(s.conversation == conversation for s in self._said.values()):
            self._note("a parent of null is taken as the default parent")
        real = await self._stage.do(
            "send",
            conversation=conversation,
            text=text,
            parent=None if parent == "active" else self._names.get(parent, parent),
            message=name,
            key=step.get("key") or step.get("idempotency_key"),
        )
        self._begun(run, real, name, text)

    async def step_edit(self, step: dict[str, Any]) -> None:
        conversation = self._conversation_of(step, step["message"])
        run = self._runs.setdefault(step["run"], RunOf(step["run"], conversation))
        real = await self._stage.do(
            "edit",
            conversation=conversation,
            edited=self._names.get(step["message"], step["message"]),
            text=step["text"],
            message=step.get("new_message"),
        )
        self._begun(run, real, step.get("new_message"), step["text"])

    def _begun(self, run: RunOf, real: str, name: str | None, text: str) -> None:
        run.chain.append(real)
        if name is not None and name not in self._said:
            self._said[name] = Said(name, run.conversation, "user", text)
            self._names[name] = name
            self._committed.add(name)

    async def step_regenerate(self, step: dict[str, Any]) -> None:
        conversation = self._conversation_of(step, step["message"])
        run = self._runs.setdefault(step["run"], RunOf(step["run"], conversation))
        message = self._names.get(step["message"], step["message"])
        run.chain.append(
            await self._stage.do(
                "regenerate", conversation=conversation, message=message, key=step.get("key")
            )
        )
        if step.get("new_message"):
            run.answers.append(step["new_message"])

    async def step_start_run(self, step: dict[str, Any]) -> None:
        """A worker takes up a message: as a queue would hand it out, under a key of the message.

        Handed out twice it is the same run, and belongs to the worker that began it.
        """
        conversation = self._conversation_of(step, step["parent"])
        message = self._names.get(step["parent"], step["parent"])
        taken = self._taken_up.setdefault(message, [])
        ended = [real for real in taken if (await self._row(real))["status"] in ENDED]
        real = await self._stage.do(
            "regenerate", conversation=conversation, message=message, key=f"{message} {len(ended)}"
        )
        run = self._runs.setdefault(step["run"], RunOf(step["run"], conversation))
        if real not in taken:
            taken.append(real)
            run.worker = step.get("worker", "")
        if real not in run.chain:
            run.chain.append(real)

    async def step_cancel(self, step: dict[str, Any]) -> None:
        run = self._runs[step["run"]] if "run" in step else list(self._runs.values())[-1]
        if run.chain:
            reason = step.get("reason") or "canceled"
            await self._stage.do("cancel", conversation=run.conversation, run=run.id, reason=reason)

    async def step_delete(self, step: dict[str, Any]) -> None:
        names = step.get("messages") or [step["message"]]
        conversation = self._conversation_of(step, names[0])
        stored = [self._names.get(name, name) for name in names]
        await self._stage.do("delete", conversation=conversation, messages=stored)

    # What the provider does.

    async def step_state(self, step: dict[str, Any]) -> None:
        run, to = self._runs[step["run"]], step["to"].upper()
        match to:
            case "PREPARED":
                await self._quiet()
            case "DISPATCHING":
                await self._demand(run, until="DISPATCHING")
            case "SENT":
                await self._exchange(run, step.get("attempt"))
            case "STREAMING":
                exchange = await self._exchange(run, step.get("attempt"))
                if exchange is not None:
                    await exchange.begin()
            case "UNKNOWN":
                await self.step_fail({**step, "terminated": False})
            case "FAILED":
                await self.step_fail({**step, "terminated": True})
            case "CANCELED":
                await self.step_cancel(step)
            case "COMMITTED":
                await self.step_complete({"text": "Done.", "finish": "stop", **step})
            case _:
                self._note(f"no such state: {to}")

    async def step_delta(self, step: dict[str, Any]) -> None:
        exchange = await self._exchange(self._runs[step["run"]], step.get("attempt"))
        self._arrived(step, exchange is not None and await exchange.say(step["text"]))

    async def step_late_delta(self, step: dict[str, Any]) -> None:
        run = self._runs[step["run"]]
        old = run.of_attempt(step.get("attempt", run.attempt))
        self._arrived(step, old is not None and await old.say(step["text"]))

    async def step_block(self, step: dict[str, Any]) -> None:
        exchange = await self._exchange(self._runs[step["run"]], step.get("attempt"))
        words = [step.get(key) for key in ("state", "to", "status") if key in step]
        is_open = "open" in words or step.get("open") is True
        call = step.get("tool_call") or step
        call_id = call.get("call") or call.get("call_id") or call.get("id")
        if exchange is None:
            self._arrived(step, False)
        elif call is not step or call_id or step.get("kind") == "tool_call" or "name" in step:
            given = call.get("arguments", {})
            text = given if isinstance(given, str) else json.dumps(given)
            if is_open and not isinstance(given, str):
                text = text[: max(1, len(text) - 1)]
            name = call.get("name") or next(iter(self._given.get("tools") or ()), "tool")
            self._arrived(step, await exchange.call(call_id or "call-1", name, text))
        else:
            text = step.get("text") or ""
            rest = text[len(exchange.text) :] if text.startswith(exchange.text) else text
            self._arrived(step, await (exchange.say(rest) if rest else exchange.begin()))

    async def step_complete(self, step: dict[str, Any]) -> None:
        run = self._runs[step["run"]]
        if step.get("complete_if_started") and not self._started(run, step):
            return
        exchange = await self._exchange(run, step.get("attempt"))
        if step.get("message"):
            run.answers.append(step["message"])
        if exchange is None:
            self._arrived(step, False)
            return
        text, calls = step.get("text") or "", step.get("tool_calls") or []
        if not text.startswith(exchange.text):
            self._note(f"{step['message']} does not go on from its deltas: they stand before it")
        rest = text[len(exchange.text) :] if text.startswith(exchange.text) else text
        middle = len(rest) // 2
        delivered = exchange.reachable
        for piece in filter(None, (rest[:middle], rest[middle:])):
            delivered = await exchange.say(piece)
        for call in calls:
            self._call_runs[call["id"]] = run
            await exchange.call(call["id"], call["name"], json.dumps(call["arguments"]))
        word = step.get("finish", "tool_calls" if calls else "stop")
        delivered = await exchange.finish(word, step.get("usage")) and delivered
        self._arrived(step, delivered)
        await self._quiet()
        await self._name_answer(run, step, text, tuple(calls))

    def _started(self, run: RunOf, step: dict[str, Any]) -> bool:
        worker = step.get("worker")
        return bool(run.chain) and (worker is None or run.worker == worker)

    async def _name_answer(
        self, run: RunOf, step: dict[str, Any], text: str, calls: tuple[dict[str, Any], ...]
    ) -> None:
        """Learn under which id an answer was stored, if it was."""
        name = step.get("message")
        if name is None:
            return
        rows = (await self._rows())[run.conversation]
        known = set(self._names.values())
        for message in rows.tree:
            ours = message.run in run.chain and message.role is Role.ASSISTANT
            if ours and message.id not in known and message.status is Status.SUCCESS:
                self._names[name] = message.id
                self._said[name] = Said(name, run.conversation, "assistant", text, calls)
                self._committed.add(name)
                return
        self._said.setdefault(name, Said(name, run.conversation, "assistant", text, calls))

    async def step_fail(self, step: dict[str, Any]) -> None:
        run = self._runs[step["run"]]
        exchange = await self._exchange(run, step.get("attempt"))
        if exchange is None:
            self._arrived(step, False)
        elif step.get("terminated"):
            again = self._retried_next(run)
            code = step.get("error") or "provider_error"
            await exchange.refuse(code, status=503 if again else 400)
        else:
            await exchange.cut()

    def _retried_next(self, run: RunOf) -> bool:
        """Say whether the case goes on with another attempt of this run."""
        for step in self._steps[self._position + 1 :]:
            if step.get("run") == run.name and step["op"] in ("retry", "fail", "complete"):
                return bool(step["op"] == "retry")
        return False

    def _arrived(self, step: dict[str, Any], arrived: bool) -> None:
        if not arrived:
            self._at_the_door += 1
            what = f"{step['op']} of {step['run']}, attempt {step.get('attempt', 1)}"
            self._note(f"{what}: it met a closed connection, or nothing had been asked")

    # A run goes on.

    async def step_retry(self, step: dict[str, Any]) -> None:
        await self._again(self._runs[step["run"]], new_attempt=True)

    async def step_resume(self, step: dict[str, Any]) -> None:
        await self._again(self._runs[step["run"]], new_attempt=False)

    async def _again(self, run: RunOf, *, new_attempt: bool) -> None:
        """Let the next attempt begin: the engine's own, or where the run has ended a person's.

        Where nobody knows yet what the last attempt did, there is none.
        """
        self._asked_again += 1
        row = await self._row(run.id)
        if row["status"] == "error":
            run.chain.append(
                await self._stage.do(
                    "regenerate", conversation=run.conversation, message=row["leaf"], key=None
                )
            )
            self._note(f"{run.name} had ended ({row['error_code']}): a person asks again")
        elif row["status"] in ("success", "canceled"):
            self._note(f"{run.name} has ended: nothing goes on")
            return
        elif row["status"] in ("unknown", "waiting", "queued"):
            self._note(f"{run.name} is {row['status']}: no attempt may begin now")
            return
        if new_attempt:
            run.attempt += 1
        await self._demand(run)

    # What tools do.

    async def step_tool_started(self, step: dict[str, Any]) -> None:
        if not await self._open(f"call {step['call']}"):
            self._note(f"{step['call']} is not the engine's to begin now")

    async def step_tool_effect(self, step: dict[str, Any]) -> None:
        await self._open(f"call {step['call']}")
        if not await self._open(f"effect {step['call']}"):
            self._note(f"no execution of {step['call']} is under way")

    async def step_tool_result(self, step: dict[str, Any]) -> None:
        call = step["call"]
        outcome = {"outcome": step.get("outcome", "success"), "content": step.get("content") or ""}
        await self._open(f"call {call}")
        await self._open(f"effect {call}")
        if await self._stage.do("open", gate=f"result {call}", value=outcome):
            return
        run = self._call_runs.get(call)
        if run is None:
            run = next(iter(self._runs.values()))
        self._outputs.setdefault(run.id, {})[call] = outcome
        outputs = self._outputs[run.id]
        try:
            await self._stage.do(
                "answer", conversation=run.conversation, run=run.id, outputs=outputs
            )
        except Refused as refused:
            if refused.code == "missing_tool_result":
                return  # the others have to be brought along
            del self._outputs[run.id]
            raise
        if not self._is_function(call):
            self._by_client[call] = 1
        del self._outputs[run.id]

    async def _open(self, gate: str) -> bool:
        opened: bool = await self._stage.do("open", gate=gate)
        return opened

    # Crashes, time, clients.

    async def step_crash(self, _: dict[str, Any]) -> None:
        await self._stage.kill()
        for screen in self._screens.values():
            screen.leave()
        for run in self._runs.values():
            for _attempt, exchange in run.exchanges:
                if not exchange.over:
                    await asyncio.wait_for(exchange.gone.wait(), ARRIVAL_S)

    async def step_recover(self, _: dict[str, Any]) -> None:
        if not self._stage.alive:
            await self._stage.start(self._start())
        await self._quiet()
        steps, self._meanwhile = self._meanwhile, []
        for step in steps:
            await self._carry_out(getattr(self, f"step_{step['op']}"), step)

    async def step_sweep(self, _: dict[str, Any]) -> None:
        await self._stage.do("sweep")

    async def step_advance_clock(self, step: dict[str, Any]) -> None:
        units = {u: f for k, f in SECONDS.items() for u in (k, f"by_{k}", f"advance_{k}")}
        seconds = sum(float(step[unit]) * factor for unit, factor in units.items() if unit in step)
        await self._stage.do("advance", seconds=seconds)

    async def step_subscribe(self, step: dict[str, Any]) -> None:
        run = self._runs[step["run"]]
        screen = self._screens.setdefault(step["client"], Screen(step["client"]))
        row = await self._row(run.id)
        pieces = run.live.pieces if run.live is not None else []
        hides = len("".join(pieces[: int(step.get("from_seq") or 0)]))
        after = max(screen.last_seq, row["seq"] - 1)
        screen.attach(run.id, after, hides=hides)
        await self._stage.do(
            "follow", client=screen.client, conversation=run.conversation, after=after
        )

    async def step_disconnect(self, step: dict[str, Any]) -> None:
        screen = self._screens[step["client"]]
        screen.leave()
        if self._stage.alive:
            await self._stage.do("unfollow", client=screen.client)

    async def step_reload(self, step: dict[str, Any]) -> None:
        """The page is loaded again: the screen is empty, and is filled by what the server tells."""
        screen = self._screens.setdefault(step["client"], Screen(step["client"]))
        follows, conversation = screen.run, step.get("conversation") or self._conversation()
        screen.clear()
        open_runs = [r.id for r in (await self._rows())[conversation].runs if r.status in OPEN_RUN]
        run = follows or (open_runs[-1] if open_runs else None)
        if run is not None:
            row = await self._row(run)
            screen.attach(run, row["seq"] - 1, hides=0)
            await self._stage.do(
                "follow", client=screen.client, conversation=conversation, after=row["seq"] - 1
            )


def _fields(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of a starting tree in one form."""
    results = [
        {
            "call": result.get("call") or result.get("call_id") or result.get("tool_call_id"),
            "content": result.get("content") or result.get("text") or "",
            "outcome": result.get("outcome", "success"),
        }
        for result in (message.get("results") or ([message] if message["role"] == "tool" else []))
    ]
    calls = [
        {
            "id": call.get("id") or call["call_id"],
            "name": call["name"],
            "arguments": call["arguments"],
        }
        for call in message.get("tool_calls") or ()
    ]
    text = "" if results else message.get("text", message.get("content")) or ""
    return {
        "id": message["id"],
        "parent": message.get("parent"),
        "role": message["role"],
        "text": text,
        "calls": calls,
        "results": results,
        "status": STATUSES.get(message.get("status", "success"), "error"),
    }
