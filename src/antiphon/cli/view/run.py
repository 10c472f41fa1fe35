"""A run on the screen: what was asked, what was sent, how each attempt ended, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from antiphon.cli.view.text import Ink, clip, count, harmless, lasted, one_line, short, table
from antiphon.cli.view.tree import SPEAKERS, Place, gist
from antiphon.core.answers.usage import Cost, Used
from antiphon.core.blocks import Message, ResultPart, Text, decode_blocks
from antiphon.core.dispatch import State
from antiphon.core.records import (
    LATE_TOOL_RESULT,
    TERMINAL_CALL,
    Approval,
    Attempt,
    Call,
    CallState,
    LateResult,
    Quarantined,
    Run,
    RunKind,
    Runner,
    RunStatus,
)
from antiphon.core.telling.explanation import Explanation, OperationTold
from antiphon.core.tools.bounding import shown_of

_ENDS: Final = frozenset(
    {State.COMMITTED, State.FAILED, State.CANCELED, State.CLOSED, State.UNKNOWN}
)

STATUS_STYLES: Final = {
    RunStatus.SUCCESS: "good",
    RunStatus.ERROR: "bad",
    RunStatus.UNKNOWN: "warn",
    RunStatus.WAITING: "warn",
}

CODES: Final = {
    "outcome_unknown": "nobody knows whether the provider did the work",
    "stream_incomplete": "the answer broke off before its end",
    "missing_finish_reason": "the answer ended without saying that it was complete",
    "unclosed_arguments": "the arguments of a tool call were cut",
    "truncated_by_length": "the token limit cut a tool call",
    "content_filter": "the provider withheld the answer",
    "malformed_event": "the provider sent something that cannot be read",
    "idle_timeout": "the provider fell silent",
    "interrupted": "this process stopped while the answer was under way",
    "crash": "the process died while the answer was under way",
    "model_call_limit": "the run used up its model calls",
    "tool_unknown": "the fate of a tool call is unknown",
    "key_missing": "the environment lacks the key",
    "dns": "the provider's name was not found; nothing was sent",
    "connect": "no connection to the provider; nothing was sent",
    "connect_timeout": "no connection in time; nothing was sent",
    "tls": "no secure connection; nothing was sent",
}
"""What the commonest codes mean, for those who have not met them yet."""


def explained(code: str | None) -> str:
    """Return a code with what it means, where that is known here."""
    if not code:
        return "no reason was recorded"
    return f"{code}: {CODES[code]}" if code in CODES else code


def timeline(told: Explanation, ink: Ink, width: int) -> list[str]:
    """Return the whole story of a run."""
    run = told.run
    rows = [
        f"{ink(run.id, 'bold')}  {ink(run.status, STATUS_STYLES.get(run.status, 'dim'))}"
        + (f"  {run.error_code or run.end_code}" if run.error_code or run.end_code else ""),
        *_facts(run, told.input, width),
    ]
    for operation in told.operations:
        rows += ["", *_operation(operation, run.created_ms, ink, width)]
    if told.calls:
        rows += ["", *_calls(told.calls, ink, width)]
    if told.quarantined:
        rows += ["", *_quarantined(told.quarantined, ink, width)]
    return rows


def _facts(run: Run, asked: Message | None, width: int) -> list[str]:
    kind = {RunKind.SEND: "a new message", RunKind.REGENERATE: "another answer"}[run.kind]
    facts = [
        ("conversation", run.conversation),
        (
            "asked for",
            kind + (f" {short(asked.id)}: {clip(gist(asked), width // 2)}" if asked else ""),
        ),
        ("model", run.options.model),
        ("tokens", tokens(run)),
        ("cost", money(run.cost)),
    ]
    if run.error_code:
        facts.append(("ended", explained(run.error_code)))
    if run.ended_ms is not None:
        facts.append(("took", lasted(run.ended_ms - run.created_ms)))
    return [f"  {row}" for row in table(facts)]


def tokens(counted: Run | Used) -> str:
    """Return how many tokens went in and came out, and what of them was not plain."""
    beside = [(counted.cached_tokens, "cached"), (counted.cache_write_tokens, "put into a cache")]
    inner = ", ".join(f"{many:,} {what}" for many, what in beside if many)
    thought = f" ({counted.reasoning_tokens:,} thought)" if counted.reasoning_tokens else ""
    given = f"{counted.input_tokens:,} in" + (f" ({inner})" if inner else "")
    return f"{given}, {counted.output_tokens:,} out{thought}"


def money(cost: Cost | None) -> str:
    """Return what tokens cost, or that nobody knows."""
    if cost is None:
        return "not known: this model has no price, or its provider counted nothing"
    at = f", at the prices of {cost.prices_of}" if cost.prices_of else ""
    return f"{cost.micros / 1_000_000:.6f} {cost.currency}{at}"


def operation(told: OperationTold, ink: Ink, width: int) -> list[str]:
    """Return the story of one operation, told from its own beginning."""
    return _operation(told, told.attempts[0].prepared_ms, ink, width)


def _operation(told: OperationTold, zero_ms: int, ink: Ink, width: int) -> list[str]:
    manifest = told.manifest
    mapped = ", ".join(f"{m.rule} at {m.block}" for m in told.mappings) or "none"
    facts = [
        ("model", f"{manifest.model_revision} at {manifest.provider}"),
        ("adapter", f"{manifest.adapter} version {manifest.adapter_version}"),
        (
            "asked on",
            f"{short(manifest.base_leaf)} at revision {manifest.conversation_revision}",
        ),
        ("request", manifest.request_digest),
        ("sequence", manifest.sequence_digest),
        ("manifest", told.digest),
        ("mapped", mapped),
    ]
    rows = [f"{ink(manifest.operation, 'bold')}  {manifest.purpose}"]
    rows += [ink(f"  {row}", "dim") for row in table(facts)]
    for attempt in told.attempts:
        rows += _attempt(attempt, zero_ms, ink)
    if told.answer is not None:
        rows.append(f"  {ink('answered', 'dim')}  {clip(one_line(told.answer), width - 12)}")
    return rows


def _attempt(attempt: Attempt, zero_ms: int, ink: Ink) -> Iterator[str]:
    generation = f", generation {attempt.generation}" if attempt.generation else ""
    handle = f"  {harmless(attempt.handle)}" if attempt.handle else ""
    yield f"  attempt {attempt.number}{generation}{ink(handle, 'dim')}"
    steps = [
        (attempt.prepared_ms, State.PREPARED, "written down, nothing sent"),
        (attempt.accepted_ms, State.DISPATCHING, "accepted: from here on it may be sent"),
        (attempt.written_ms, State.SENT, "the first byte may have left"),
        (attempt.opened_ms, State.STREAMING, "the answer has begun"),
    ]
    for at_ms, state, meaning in steps:
        if at_ms is not None:
            yield _step(at_ms - zero_ms, state, meaning, ink)
    if attempt.state in _ENDS:
        why = explained(attempt.error_code) if attempt.error_code else ""
        words = ""
        if attempt.said is not None and attempt.said.message:
            # Without a status it may be our own sentence, as for a connection that broke.
            who = "the reason given" if attempt.said.status is None else "it said"
            words = f"{who}: {harmless(attempt.said.message)}"
        proof = f"ended for certain: {attempt.proof}" if attempt.proof else ""
        kept = f"{_MEANINGS[attempt.state]}: {tokens(attempt.used)}" if attempt.used else ""
        meaning = "; ".join(filter(None, (why, words, proof, kept)))
        yield _step(
            None if attempt.ended_ms is None else attempt.ended_ms - zero_ms,
            attempt.state,
            meaning or _MEANINGS[attempt.state],
            ink,
        )


_MEANINGS: Final = {
    State.COMMITTED: "the whole answer is kept",
    State.FAILED: "nothing of it was kept",
    State.CANCELED: "canceled; nothing of it can be committed any more",
    State.CLOSED: "nothing of it was kept",
    State.UNKNOWN: "nobody knows yet what the provider did",
}

_STATE_STYLES: Final = {
    State.COMMITTED: "good",
    State.FAILED: "bad",
    State.CLOSED: "bad",
    State.UNKNOWN: "warn",
}


def _step(after_ms: int | None, state: State, meaning: str, ink: Ink) -> str:
    when = "" if after_ms is None else f"+{after_ms / 1000:.3f}"
    return (
        f"  {when:>11} s  {ink(f'{state:<11}', _STATE_STYLES.get(state, 'dim'))}  "
        f"{ink(meaning, 'dim')}"
    )


def _calls(calls: Iterable[Call], ink: Ink, width: int) -> Iterator[str]:
    yield ink("tool calls", "bold")
    for call in calls:
        yield f"  {call_line(call, ink, width - 2)}"
        facts = table([(name, one_line(value)) for name, value in _call_facts(call)])
        yield from (ink(f"    {clip(fact, width - 4)}", "dim") for fact in facts)


def _call_facts(call: Call) -> Iterator[tuple[str, str]]:
    """Yield what a call's line has no room for: whose it is, how often it was run, what was shown."""
    yield "call", call.call_id
    if call.approval is not None:
        waits = call.approval is Approval.NEEDED
        yield "approval", "nobody has agreed to it" if waits else "somebody agreed to it"
    if call.changed_arguments is not None and not call.erased:
        yield "changed to", call.changed_arguments
    if call.runner is Runner.CLIENT:
        yield "run", "by the application"
    else:
        times = count(call.attempt, "time") if call.attempt else "never"
        yield "run", f"{times}, under the key {call.idempotency_key}"
    if call.state in TERMINAL_CALL and not call.erased:
        parts = [part for part in call.content if isinstance(part, ResultPart)]
        shown, total = shown_of(parts, call.max_result_chars)
        whole = "all of it" if shown == total else f"the first {shown:,} of {total:,} characters"
        yield "model shown", whole


def call_line(call: Call, ink: Ink, width: int) -> str:
    """Return a tool call and what it came to, in one line."""
    style = {CallState.SUCCESS: "good", CallState.ERROR: "bad", CallState.UNKNOWN: "warn"}
    arguments = "(erased)" if call.erased else call.arguments
    asked = clip(one_line(f"{call.name} {arguments}"), width // 2)
    state = ink(call.state, style.get(call.state, "dim"))
    return f"{asked}  {state}  ← {clip(outcome(call), max(12, width // 2 - 16))}"


def outcome(call: Call) -> str:
    """Return what a call came to, in one line."""
    if call.erased:
        return "(erased)"
    said = one_line(" ".join(part.text for part in call.content if isinstance(part, Text)))
    if call.reused_from is not None:
        return f"{said} (reused from {call.reused_from})"
    if call.state is CallState.SUCCESS:
        return said or "(nothing)"
    return ", ".join(filter(None, (call.code or call.state.lower(), said)))


def _quarantined(put_aside: Iterable[Quarantined], ink: Ink, width: int) -> Iterator[str]:
    yield ink("put aside, because it came too late", "bold")
    for item in put_aside:
        yield clip(f"  generation {item.generation}  {item.reason}  {_put_aside(item)}", width)


def _put_aside(item: Quarantined) -> str:
    if item.reason != LATE_TOOL_RESULT:
        return one_line(item.data)
    late = msgspec.json.decode(item.data, type=LateResult)
    said = " ".join(part.text for part in decode_blocks(late.content) if isinstance(part, Text))
    return f"{late.call} {late.state}: {one_line(said)}"


def message_page(message: Message, place: Place | None, ink: Ink, width: int) -> list[str]:
    """Return one message whole, with where it comes from."""
    facts = [
        ("role", f"{message.role} ({SPEAKERS[message.role]})"),
        ("status", message.status + (f", {message.error_code}" if message.error_code else "")),
        ("origin", f"{message.origin}, trusted as {message.trust}"),
        ("parent", message.parent or "none: it begins a line"),
    ]
    if place is not None:
        facts.append(("one of", str(place)))
    if message.run:
        facts.append(("run", message.run))
    facts += [(name, one_line(value)) for name, value in message.metadata.items()]
    rows = [ink(message.id, "bold"), *(ink(f"  {row}", "dim") for row in table(facts)), ""]
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    if texts and len(texts) == len(message.blocks):
        return rows + harmless("\n".join(texts)).split("\n")
    return [*rows, clip(gist(message), width), ink(count(len(message.blocks), "block"), "dim")]
