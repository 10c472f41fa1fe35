/** A run as spans of time: waiting, attempts with what each was busy with, tools. Pure. */

import type { Attempt, AttemptState, CallState, Explanation, Numbered } from "@antiphon/client";

export interface Part {
  readonly of: "prepare" | "send" | "wait" | "stream";
  readonly from: number;
  readonly to: number;
}

export interface Span {
  readonly key: string;
  readonly kind: "queue" | "attempt" | "approval" | "tool";
  /** Which model call an attempt is at, counted from 1. */
  readonly step: number;
  /** Of an attempt its number, of a tool its name. */
  readonly name: string;
  readonly state: AttemptState | CallState | null;
  readonly code: string | null;
  readonly from: number;
  readonly to: number;
  /** Whether it goes on. */
  readonly open: boolean;
  readonly parts: readonly Part[];
  /** When its preview was taken back. */
  readonly withdrawn: number | null;
  readonly attempt: Attempt | null;
}

/** Return the spans of a run, in the order in which they began; `nowMs` ends what goes on. */
export function spansOf(told: Explanation, history: readonly Numbered[], nowMs: number): readonly Span[] {
  const { run } = told;
  const spans: Span[] = [
    span("queue", "queue", "", run.created_ms, run.started_ms ?? run.ended_ms, nowMs),
  ];
  const takenBack = new Map<number, number>();
  for (const { at_ms, event } of history) {
    if (event.type === "preview.withdrawn") takenBack.set(event.generation, at_ms);
  }
  for (const [before, { attempts }] of told.operations.entries()) {
    for (const attempt of attempts) {
      spans.push({
        ...span(`${attempt.operation} ${attempt.number}`, "attempt", String(attempt.number), attempt.prepared_ms, attempt.ended_ms, nowMs),
        step: before + 1,
        state: attempt.state,
        code: attempt.error_code,
        parts: partsOf(attempt, nowMs),
        withdrawn: takenBack.get(attempt.generation) ?? null,
        attempt,
      });
    }
  }
  spans.push(...toolSpans(told, history, nowMs));
  return spans.filter((one) => one.kind !== "queue" || one.open || one.to > one.from).sort((a, b) => a.from - b.from);
}

function span(key: string, kind: Span["kind"], name: string, from: number, to: number | null, nowMs: number): Span {
  return {
    key,
    kind,
    name,
    from,
    to: Math.max(from, to ?? nowMs),
    open: to === null,
    step: 0,
    state: null,
    code: null,
    parts: [],
    withdrawn: null,
    attempt: null,
  };
}

function partsOf(attempt: Attempt, nowMs: number): readonly Part[] {
  const end = attempt.ended_ms ?? nowMs;
  const borders: readonly (readonly [Part["of"], number | null])[] = [
    ["prepare", attempt.prepared_ms],
    ["send", attempt.accepted_ms],
    ["wait", attempt.written_ms],
    ["stream", attempt.opened_ms],
  ];
  const known = borders.filter((border): border is readonly [Part["of"], number] => border[1] !== null);
  return known.map(([of, from], at) => ({ of, from, to: Math.max(from, known[at + 1]?.[1] ?? end) }));
}

/** When a call waited for a person, and when it ran: the events know. */
function toolSpans(told: Explanation, history: readonly Numbered[], nowMs: number): readonly Span[] {
  const spans: Span[] = [];
  const committed = new Map<string, number>();
  const began = new Map<string, number>();
  for (const { at_ms, event } of history) {
    if (event.type === "message.committed") for (const call of event.calls ?? []) committed.set(call, at_ms);
    if (event.type === "call.changed" && event.state === "EXECUTING" && !began.has(event.call)) began.set(event.call, at_ms);
  }
  for (const call of told.calls) {
    const asked = committed.get(call.call_id);
    const start = began.get(call.call_id) ?? null;
    if (asked === undefined) continue;
    const waits = call.approval !== null || call.runner === "client";
    if (waits) {
      const decided = start ?? call.ended_ms;
      spans.push({ ...span(`${call.call_id} wait`, "approval", call.name, asked, decided, nowMs), code: call.code });
      if (start === null) continue;
    }
    const from = start ?? asked;
    spans.push({
      ...span(call.call_id, "tool", call.name, from, call.ended_ms, nowMs),
      state: call.state,
      code: call.code,
    });
  }
  return spans;
}

/** Return the first and the last moment of `spans`. */
export function boundsOf(spans: readonly Span[]): readonly [from: number, to: number] {
  const from = Math.min(...spans.map((one) => one.from));
  const to = Math.max(...spans.map((one) => one.to));
  return [from, Math.max(to, from + 1)];
}
