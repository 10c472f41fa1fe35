"""One kill and its consequences: what happened, read from outside, and what must hold of it."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Self

import msgspec

from tests.cases.chat_rules import objections
from tests.crash.effects import AGAIN, OWN_WORDS
from tests.crash.places import LONG_LEASE_S, SHORT_LEASE_S, Files, Place
from tests.crash.program import FOLLOW_UP, WAIT_S, Config
from tests.support.upstream_process import ROOT, UpstreamProcess

KILLED: Final = -signal.SIGKILL
IN_FLIGHT: Final = {"DISPATCHING", "SENT", "STREAMING", "UNKNOWN"}
CALL: Final = {"id": "call_1", "name": "ring", "arguments": {"times": 3}}
AT_ONCE: Final = [
    {"id": "call_3", "name": "charge", "arguments": {"cents": 500}},
    {"id": "call_4", "name": "light", "arguments": {"on": True}},
    {"id": "call_5", "name": "count", "arguments": {}},
]
THEN: Final = [
    {"id": "call_6", "name": "charge", "arguments": {"cents": 500}},
    {"id": "call_7", "name": "pay", "arguments": {"cents": 900}},
]
GO: Final = "go"
"""The file for which another node waits until the first one is dead."""

READ: Final = {"id": "call_2", "name": "read_list", "arguments": {}}


def _says(last: str, number: int, text: str, *, hold: bool = False) -> dict[str, Any]:
    pieces: list[dict[str, Any]] = [{"text": f"PARTIAL-{number} "}]
    pieces += [{"hold": True}] if hold else [{"text": text}, {"finish": "stop"}]
    return {"last": last, "answers": [pieces]}


def script(*, holding: bool) -> list[dict[str, Any]]:
    """Return what the upstream says; in the first life one answer is held for ever."""
    asks, reads, at_once, then = (
        [*({"call": call} for call in calls), {"finish": "tool_calls"}]
        for calls in ([CALL], [READ], AT_ONCE, THEN)
    )
    whole = _says("", 8, "I am back.")["answers"][0]
    return [
        _says("Name a tree.", 1, "Alder."),
        _says("Name a bush.", 2, "Hazel."),
        _says("Name a herb.", 3, "Thyme."),
        _says("rung", 4, "It rang."),
        _says("salt", 5, "Salt."),
        _says("paid", 10, "All done."),
        _says("told later", 6, "I see."),
        _says("Tell a long tale.", 7, "The end.", hold=holding),
        _says(FOLLOW_UP, 9, "Well."),
        {"last": "Ring the bell.", "answers": [asks]},
        {"last": "What is on the list?", "answers": [reads]},
        {"last": "Do all of it.", "answers": [at_once]},
        {"last": "counted", "answers": [then]},
        {"last": "Are you busy?", "answers": [[{"status": 503, "code": "overloaded"}], whole]},
        {"last": "Are you there?", "answers": [[{"text": "PARTIAL-0 "}, {"cut": True}], whole]},
        {"last": "May I?", "answers": [[{"status": 403, "code": "no_you_may_not"}]]},
    ]


@dataclass(slots=True)
class Evidence:
    """What one kill left behind.

    Attributes:
        points: Every point that was passed before the end.
        shared: Another node came for what the dead one had left, and not its successor.
        exits: How each life ended; the last one is the one that came back.
        received_before: Bodies that the provider had received when the process died.
        received: All bodies, in the end.
        attempts: Operation to the state of its newest attempt, as stored at the death.
        calls: Call to its state, as stored at the death.
        notes: What the client remembers as acknowledged.
        effects: What the tools did, in order: which, and under which key.
        report: What the program found when it came back.
    """

    scenario: str
    kill: str | None
    shared: bool
    points: list[str]
    exits: list[int]
    received_before: list[bytes]
    received: list[bytes]
    attempts: dict[str, str]
    calls: dict[str, str]
    notes: list[dict[str, Any]]
    effects: list[dict[str, str]]
    report: dict[str, Any]
    log: str

    @property
    def killed(self) -> bool:
        return self.exits[0] == KILLED


class Lives:
    """Runs the program, as often as it takes, against an upstream in another process."""

    def __init__(self, folder: Path, place: Place | None = None) -> None:
        self._folder = folder
        self._place = place or Files()
        self._upstream = UpstreamProcess(folder)
        self._numbers = count()
        self._zygote: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._upstream.__enter__()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.program"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._zygote is not None
        self._zygote.communicate(timeout=20)
        self._upstream.__exit__()

    def points(self, scenario: str) -> list[str]:
        """Return the points that a scenario passes when nobody kills it."""
        return self.evidence(scenario, None).points

    def evidence(self, scenario: str, kill: str | None, *recoveries: str) -> Evidence:
        """Kill a scenario at `kill`, its recoveries where `recoveries` say, then let it come back."""
        name = f"{scenario}-{next(self._numbers)}"
        folder, place = self._folder / name, self._place
        self._upstream.script(name, script(holding=True))
        config = Config(
            folder=str(folder),
            db=place.new(folder),
            base_url=self._upstream.base_url(name),
            scenario=scenario,
            kill=kill,
            lease_s=LONG_LEASE_S,
        )
        back = [
            msgspec.structs.replace(config, returning=True, kill=point, lease_s=SHORT_LEASE_S)
            for point in (*recoveries, None)
        ]
        beside = self._stand_by(back.pop(0)) if place.shared else None
        exits = [self._end(self._begin(config))]
        points = (folder / "trace.txt").read_text(encoding="utf-8").splitlines()
        self._upstream.script(name, script(holding=False))
        self._upstream.quiet()
        received_before = self._upstream.received(name)
        attempts, calls = place.stored(config.db)
        place.gone(config.db)
        if beside is not None:
            (folder / GO).touch()
            exits.append(self._end(beside))
        exits += [self._end(self._begin(life)) for life in back]
        place.done(config.db)
        report = folder / "report.json"
        found = Evidence(
            scenario=scenario,
            kill=kill,
            shared=place.shared,
            points=points,
            exits=exits,
            received_before=received_before,
            received=self._upstream.received(name),
            attempts=attempts,
            calls=calls,
            notes=_lines(folder / "notes.jsonl"),
            effects=_lines(folder / "effects.jsonl"),
            report=json.loads(report.read_text(encoding="utf-8")) if report.exists() else {},
            log=(folder / "log.txt").read_text(encoding="utf-8"),
        )
        shutil.rmtree(folder)
        return found

    def _stand_by(self, config: Config) -> int:
        """Start a life that waits for its turn as another node, and return its process."""
        trace = "trace-beside.txt"
        beside = self._begin(msgspec.structs.replace(config, after=GO, trace=trace))
        until = time.monotonic() + WAIT_S
        while not config.path("ready").exists():
            assert time.monotonic() < until, config.path("log.txt").read_text()
            time.sleep(0.005)
        return beside

    def _begin(self, config: Config) -> int:
        return self._ask(msgspec.json.encode(config).decode())

    def _end(self, process: int) -> int:
        """Return how a process ended."""
        return self._ask(str(process))

    def _ask(self, line: str) -> int:
        assert self._zygote is not None
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(line + "\n")
        self._zygote.stdin.flush()
        return int(self._zygote.stdout.readline())


Plan = tuple[str, ...]
"""A scenario, the point at which it is killed, and those at which its recoveries are."""

TOGETHER: Final = 3
"""How many stories are told side by side: much of each is waiting."""


def evidences(lives: Sequence[Lives], plans: Iterable[Plan]) -> Iterator[tuple[Plan, Evidence]]:
    """Kill as planned, as many at a time as there are lives, and yield what came of each."""
    idle: SimpleQueue[Lives] = SimpleQueue()
    for one in lives:
        idle.put(one)

    def work(plan: Plan) -> tuple[Plan, Evidence]:
        scenario, *points = plan
        one = idle.get()
        try:
            return plan, one.evidence(scenario, *points)
        finally:
            idle.put(one)

    with ThreadPoolExecutor(len(lives)) as pool:
        yield from pool.map(work, plans)


@contextmanager
def several_lives(folder: Path, place: Callable[[], Place]) -> Iterator[list[Lives]]:
    """Give lives that may be lived side by side."""
    with ExitStack() as stack:
        lives = []
        for number in range(TOGETHER):
            (folder / str(number)).mkdir()
            lives.append(stack.enter_context(Lives(folder / str(number), place())))
        yield lives


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def broken(e: Evidence) -> list[str]:
    """Return every promise that this evidence breaks."""
    if e.exits[-1] != 0 or not e.report:
        return [f"it did not come back: {e.exits}: {e.log[-600:]}"]
    return [
        *_of_requests(e),
        *_of_operations(e),
        *_of_acknowledged(e),
        *_of_effects(e),
        *_of_tools(e),
        *_of_history(e),
    ]


def _operations(e: Evidence) -> Iterator[tuple[dict[str, Any], dict[str, Any], bytes]]:
    for run in e.report["runs"]:
        for operation in run["operations"]:
            yield run, operation, base64.b64decode(operation["body"])


def _of_requests(e: Evidence) -> Iterator[str]:
    """Nothing left without a record; nothing illegal left; no half answer was sent back."""
    recorded = Counter(body for _, _, body in _operations(e))
    for number, body in enumerate(e.received):
        if body not in recorded:
            yield f"request {number} is recorded nowhere: {body[-300:]!r}"
        for objection in objections(body):
            yield f"request {number} is illegal: {objection}"
    said = [m["text"] for m in e.report["tree"] if m["status"] == "success"]
    for number, body in enumerate(e.received):
        for message in json.loads(body)["messages"]:
            text = message.get("content") or ""
            if message["role"] == "assistant" and text and text not in said:
                yield f"request {number} holds {text!r}, which was never committed"


def _of_operations(e: Evidence) -> Iterator[str]:
    """What was not sent goes on once; what may have been sent is not sent again by the restart."""
    received, before = Counter(e.received), Counter(e.received_before)
    told = {note["operation"] for note in e.notes if note["what"] == "said ended"}
    bodies = Counter(body for _, _, body in _operations(e))
    for run, operation, body in _operations(e):
        state = e.attempts.get(operation["id"])
        accepted = sum(generation > 0 for _, generation, _ in operation["attempts"])
        if bodies[body] == 1 and received[body] > accepted:
            yield f"{operation['id']} was sent {received[body]} times in {accepted} attempts"
        after = received[body] - before[body]
        if state is None or state == "PREPARED":
            if state is None and before[body] and bodies[body] == 1:
                yield f"{operation['id']} was sent before it was recorded"
            if bodies[body] == 1 and not after and run["status"] != "canceled":
                yield f"{operation['id']} had not been sent, and is not sent now"
        elif bodies[body] == 1 and after:
            yield f"{operation['id']} stood in {state} and was sent again"
        if state == "ENDED" and after:
            yield f"{operation['id']} had an unknown outcome and was sent again by the restart"
        if state in IN_FLIGHT:
            newest = operation["attempts"][-1][2]
            honest = (run["status"], run["error_code"]) == ("error", "outcome_unknown")
            if not honest or newest not in ("FAILED", "CLOSED"):
                yield f"{operation['id']} stood in {state}; its run is {run['status']}, it {newest}"
            if e.shared and operation["id"] not in told:
                yield f"{operation['id']} stood in {state}; another node settled it unasked"
    for run in e.report["runs"]:
        if run["newest"] is not None and run["newest"] != run["operations"][-1]["body"]:
            yield f"the newest request of {run['id']} is not its newest operation's"
        if run["status"] not in ("success", "error", "canceled"):
            yield f"{run['id']} is left {run['status']}"
    if e.report["active_operation"] or e.report["slot"]:
        yield "something still holds the conversation"


def _of_acknowledged(e: Evidence) -> Iterator[str]:
    """What the client was told is true, and what it repeats starts nothing twice."""
    runs = {run["id"]: run for run in e.report["runs"]}
    tree = {message["id"]: message for message in e.report["tree"]}
    for note in e.notes:
        run = runs.get(note.get("run", ""), {})
        match note["what"]:
            case "sent" | "repeated" if not run:
                yield f"the run of {note} is lost"
            case "sent" if note["message"] and note["message"] not in tree:
                withdrawn = run["status"] == "canceled"
                if not withdrawn:
                    yield f"the message of {note} is lost"
            case "committed":
                kept = tree.get(note["message"])
                if kept is None or kept["text"] != note["text"] or kept["status"] != "success":
                    yield f"the answer of {note} is lost: {kept}"
            case "ended" if run["status"] != note["status"]:
                yield f"a run that had ended is now {run['status']}: {note}"
            case "canceled" if run["status"] != "canceled":
                yield f"a canceled run is {run['status']}"
            case "answered" | "finished":
                states = [c["state"] for c in run["calls"] if c["id"] == note["call"]]
                if states != [note.get("state", "SUCCESS")]:
                    yield f"the result of {note} is lost: {states}"
            case "deleted" if note["message"] not in e.report["deleted"]:
                yield f"a deleted message is back: {note}"
            case _:
                pass
    first = [n["run"] for n in e.notes if n["what"] == "sent" and n["message"] == "q1"]
    again = [n["run"] for n in e.notes if n["what"] == "repeated"]
    if len({*first, *again}) != 1:
        yield f"the first message started {len({*first, *again})} runs"


def _of_effects(e: Evidence) -> Iterator[str]:
    """What may not happen twice does not; what may has one key; nothing is lost and not said so."""
    calls = {c["key"]: c for run in e.report["runs"] for c in run["calls"]}
    done = Counter((effect["tool"], effect["key"]) for effect in e.effects)
    for tool, times in Counter(effect["tool"] for effect in e.effects).items():
        if times > 1 and tool not in AGAIN:
            yield f"{tool} was done {times} times"
    for tool, key in done:
        if key not in calls or calls[key]["name"] != tool:
            yield f"{tool} was done under a key of no such call: {key}"
    approved = {note["call"] for note in e.notes if note["what"] == "approving"}
    for key, call in calls.items():
        ran, own = done[call["name"], key], call["text"] in OWN_WORDS
        if call["reused"] is not None or call["name"] == "read_list":
            if ran:
                yield f"{call['id']} is answered from the ledger, and was run"
        elif own != bool(ran) and not (ran and call["text"] == "told later"):
            yield f"{call['id']} was run {ran} times, and says {call['text']!r}"
        if ran and call["name"] == "pay" and call["id"] not in approved:
            yield f"{call['id']} was run before anybody agreed"
        if call["id"] == "call_6" and call["reused"] != "call_3":
            yield "the second charge was not answered with the first"


def _of_tools(e: Evidence) -> Iterator[str]:
    """A call of unknown fate says so, one that may be run again has been; each has one result."""
    recovered = {c["id"]: c for run in e.report["recovered"]["runs"] for c in run["calls"]}
    # A life between the first and the last may have been told the result before it was killed.
    told_between = len(e.exits) > 2
    for call, state in e.calls.items():
        wanted = "SUCCESS" if recovered[call]["name"] in AGAIN else "UNKNOWN"
        if state == "EXECUTING" and recovered[call]["state"] != wanted and not told_between:
            yield f"{call} was executing at the death and is then {recovered[call]['state']}"
        if state in ("SUCCESS", "ERROR", "CANCELED") and recovered[call]["state"] != state:
            yield f"{call} had ended in {state} and is then {recovered[call]['state']}"
    results = Counter(c for m in e.report["tree"] for c, _ in m["results"])
    for run in e.report["runs"]:
        for call in run["calls"]:
            if results[call["id"]] != 1 or call["state"] not in ("SUCCESS", "ERROR", "CANCELED"):
                yield f"{call['id']} is {call['state']} with {results[call['id']]} results"


def _of_history(e: Evidence) -> Iterator[str]:
    """One answer to each question of a run; the talk goes on."""
    answers = Counter(
        (m["parent"], m["run"])
        for m in e.report["tree"]
        if (m["role"], m["status"]) == ("assistant", "success") and m["origin"] == "model"
    )
    for (parent, run), number in answers.items():
        if number > 1:
            yield f"{number} answers of {run} below {parent}"
    ids = {message["id"] for message in e.report["tree"]}
    for message in e.report["tree"]:
        if message["parent"] is not None and message["parent"] not in ids:
            yield f"{message['id']} hangs in the air"
    follow_up = next(run for run in e.report["runs"] if run["id"] == e.report["follow_up"])
    if follow_up["status"] != "success":
        yield f"the talk does not go on: {follow_up['status']} {follow_up['error_code']}"
