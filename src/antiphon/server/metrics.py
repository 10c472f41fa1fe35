"""Metrics in Prometheus' text form: counted from the durable events, so they tell what is true.

Labels are words of ours or routes; never an id, and never what somebody said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.dispatch import State
from antiphon.core.events import CallChanged, Committed, DispatchChanged, RunChanged, Withdrawn
from antiphon.core.events import decode_event as decoded
from antiphon.core.ids import CallId, ConversationId, OperationId, RunId
from antiphon.core.manifest import Purpose
from antiphon.core.records import OPEN_RUN, TERMINAL_CALL, CallState, RunStatus, StoredEvent
from antiphon.core.rules.findings import GRAPH_CODES, PROFILE_CODES
from antiphon.core.traffic.keys import Right
from antiphon.engine.world import World
from antiphon.errors import AntiphonError, NotFound
from antiphon.server.describing.endpoints import Endpoint

PATH: Final = "/metrics"
MEDIA_TYPE: Final = "text/plain; version=0.0.4"

METRICS: Final = {
    "runs_total": ("counter", "Runs that ended, by outcome."),
    "run_seconds": ("histogram", "From the acknowledgement of a run to its end."),
    "tokens_total": ("counter", "Tokens of committed answers, as providers counted, by direction."),
    "dispatches_total": ("counter", "Changes of attempts, by the state that they entered."),
    "tool_calls_total": ("counter", "Tool calls that were closed, by outcome."),
    "validator_refusals_total": ("counter", "Requests that were illegal and not sent, by reason."),
    "tool_results_rejected_total": ("counter", "Tool results that were not taken, by kind."),
    "unknown_dispatches": ("gauge", "Dispatches of unknown outcome."),
    "unknown_dispatch_age_seconds": ("gauge", "Age of the oldest of them; 0 where there is none."),
    "handle_recoveries_total": ("counter", "Attempts taken up again by their handle, by result."),
    "late_blocks_total": ("counter", "What came too late or from elsewhere and changed nothing."),
    "previews_withdrawn_total": ("counter", "Previews that were taken back."),
    "commit_conflicts_total": ("counter", "Whole answers for a base that had moved; stays 0."),
    "partial_tool_dispatches_total": ("counter", "Tools run from an unfinished stream; stays 0."),
    "http_requests_total": ("counter", "Requests, by method, route and status."),
    "http_request_seconds": ("histogram", "Until the end of an answer; streams are left out."),
    "conversations_paused": ("gauge", "Conversations that wait for another adapter's version."),
    "calls_waiting": ("gauge", "Calls that wait for their model to take them."),
    "store_waiting": ("gauge", "Pieces of work that wait because the store takes nothing."),
    "streams": ("gauge", "Open streams of events."),
}
"""Every metric, with its kind and what it is; each name begins with `antiphon_`."""

BUCKETS_S: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
REFUSALS: Final = frozenset({*GRAPH_CODES, *PROFILE_CODES})
REJECTED_RESULTS: Final = {
    "orphan_tool_result": "orphan",
    "duplicate_tool_result": "duplicate",
    "missing_tool_result": "missing",
}
MOST_OPEN: Final = 100_000
"""Runs and operations that are remembered while they are open; older ones are let go."""

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Histogram:
    """How often something took how long."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum += seconds


class Metrics:
    """Counts what the store and the edge tell."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._times = {
            name: Histogram() for name, (kind, _) in METRICS.items() if kind == "histogram"
        }
        self._started: dict[RunId, int] = {}
        self._unknown: dict[OperationId, None] = {}
        self._committed: dict[tuple[RunId, CallId], None] = {}
        self._uncertain: set[tuple[ConversationId, RunId, CallId]] = set()
        world.store.on_events(self.take)

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        """Count `by` more."""
        self._counts[name, tuple(labels.items())] += by

    def refused(self, error: AntiphonError) -> None:
        """Count what was refused at the door; a run that is refused tells so by its event."""
        if error.code in REJECTED_RESULTS:
            self.count("tool_results_rejected_total", kind=REJECTED_RESULTS[error.code])
        elif error.code in REFUSALS:
            self.count("validator_refusals_total", reason=error.code)

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count a request; `seconds` is None for a stream."""
        self.count("http_requests_total", method=method, route=route, status=str(status))
        if seconds is not None:
            self._times["http_request_seconds"].observe(seconds)

    def take(self, events: list[StoredEvent]) -> None:
        """Count what a transaction has told."""
        for stored in events:
            match decoded(stored.data):
                case RunChanged() as event:
                    self._run(event, stored.at_ms)
                case DispatchChanged() as event:
                    self._dispatch(event)
                case Committed() as event:
                    self.count("tokens_total", event.input_tokens, direction="input")
                    self.count("tokens_total", event.output_tokens, direction="output")
                    for call in event.calls:
                        _remember(self._committed, (event.run, call))
                case Withdrawn():
                    self.count("previews_withdrawn_total")
                case CallChanged() as event:
                    self._call(event, stored.conversation)
                case _:
                    pass

    def _run(self, event: RunChanged, at_ms: int) -> None:
        if event.status is RunStatus.QUEUED:
            _remember(self._started, event.run, at_ms)
        elif event.status not in OPEN_RUN:
            self.count("runs_total", outcome=event.status)
            started_ms = self._started.pop(event.run, None)
            if started_ms is not None:
                self._times["run_seconds"].observe((at_ms - started_ms) / 1000)
            if event.status is RunStatus.ERROR and event.code in REFUSALS:
                self.count("validator_refusals_total", reason=event.code)

    def _dispatch(self, event: DispatchChanged) -> None:
        self.count("dispatches_total", state=event.state)
        if event.state is State.UNKNOWN:
            _remember(self._unknown, event.operation)
            return
        if event.operation in self._unknown:
            del self._unknown[event.operation]
            # Out of UNKNOWN these two are reached by the handle alone.
            if event.state in (State.STREAMING, State.COMMITTED):
                result = "resumed" if event.state is State.STREAMING else "found"
                self.count("handle_recoveries_total", result=result)
        if event.code == "conflict":
            self.count("commit_conflicts_total")

    def _call(self, event: CallChanged, conversation: ConversationId) -> None:
        if event.state in TERMINAL_CALL:
            self.count("tool_calls_total", outcome=event.state.lower())
            self._committed.pop((event.run, event.call), None)
        elif event.state is CallState.EXECUTING and (event.run, event.call) not in self._committed:
            # Committed by an earlier process, or not at all: looked up when somebody asks.
            self._uncertain.add((conversation, event.run, event.call))

    async def text(self, streams: int) -> str:
        """Return everything, as Prometheus reads it."""
        await self._judge_uncertain()
        late = sum(
            number
            for reason, number in (await self._world.store.quarantined()).items()
            if reason != "conflict"
        )
        now_ms = self._world.clock.now_ms()
        unknown = await self._world.store.attempts_in({State.UNKNOWN})
        ages = [
            now_ms - (a.ended_ms or a.written_ms or a.accepted_ms or now_ms)
            for a in unknown
            if a.purpose is Purpose.TURN
        ]
        values = {
            "unknown_dispatches": len(ages),
            "unknown_dispatch_age_seconds": max(ages, default=0) / 1000,
            "late_blocks_total": late,
            "conversations_paused": len(self._world.rollouts.paused),
            "calls_waiting": self._world.gates.waiting,
            "store_waiting": self._world.waiting,
            "streams": streams,
        }
        return "".join(f"{line}\n" for line in self._lines(values))

    async def _judge_uncertain(self) -> None:
        store = self._world.store
        while self._uncertain:
            conversation, run, name = self._uncertain.pop()
            calls = await store.calls(conversation, run)
            asked = next((call.message for call in calls if call.call_id == name), None)
            try:
                assert asked is not None
                await store.message(conversation, asked)
            except (AssertionError, NotFound):
                self.count("partial_tool_dispatches_total")

    def _lines(self, values: dict[str, float]) -> Iterator[str]:
        for name, (kind, words) in METRICS.items():
            whole = f"antiphon_{name}"
            yield f"# HELP {whole} {words}"
            yield f"# TYPE {whole} {kind}"
            if kind == "histogram":
                yield from _histogram(whole, self._times[name])
                continue
            if name in values:
                yield f"{whole} {values[name]:g}"
                continue
            counted = [(labels, n) for (of, labels), n in self._counts.items() if of == name]
            if not counted and name in _PLAIN:
                yield f"{whole} 0"
            for labels, number in sorted(counted):
                yield f"{whole}{_written(labels)} {number}"


_PLAIN: Final = frozenset(
    {"previews_withdrawn_total", "commit_conflicts_total", "partial_tool_dispatches_total"}
)
"""Counters without labels: they stand at 0 from the start."""


def _histogram(name: str, histogram: Histogram) -> Iterator[str]:
    so_far = 0
    for bound, number in zip((*BUCKETS_S, "+Inf"), histogram.counts, strict=True):
        so_far += number
        yield f'{name}_bucket{{le="{bound}"}} {so_far}'
    yield f"{name}_sum {histogram.sum:g}"
    yield f"{name}_count {so_far}"


def _written(labels: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def _remember(known: dict, key: object, value: object = None) -> None:  # type: ignore[type-arg]
    known[key] = value
    if len(known) > MOST_OPEN:
        del known[next(iter(known))]


async def _metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text form."""
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return Response(await metrics.text(len(request.app.state.streams.open)), media_type=MEDIA_TYPE)


routes: Final = [
    Endpoint("GET", PATH, _metrics, answer=str, media_type=MEDIA_TYPE, right=Right.OPERATE)
]
