/**
 * What a follower knows: one value, and one function that folds a frame into it.
 *
 * Rule 1: nothing here reads a clock, a socket or another frame than the one given.
 * Rule 2: whatever a network does to the frames, cut, double or reorder them, the state is one
 * that the server was in, or says that it is `behind`; then its owner attaches again at `seq`.
 * Rule 3: previews live in a map of their own, as text of a type of its own. Nothing that is sent
 * can be built from it.
 *
 * The cases are data, and the Python client folds the same ones: tests/data/client/reduce.json.
 */

import type { Channel, Delta, DurableEvent, Ending, Frame, Snapshot, Unsaved } from "./frames.ts";
import { isOpen, type RunStatus } from "./rows.ts";

/** All text of one block so far; `points` counts its code points, as offsets do. */
export interface ShownBlock {
  readonly block: number;
  readonly channel: Channel;
  readonly text: Unsaved;
  readonly points: number;
}

/** The preview of one run. All of it may still be withdrawn. */
export interface Shown {
  readonly generation: number;
  readonly blocks: readonly ShownBlock[];
}

/** A conversation as far as its frames were followed. */
export interface State {
  /** Number of the last durable event: the cursor to come back with. */
  readonly seq: number;
  /** Where the active line ends, as far as the events told. */
  readonly head: string | null;
  /** The status of each run that the events named. */
  readonly runs: ReadonlyMap<string, RunStatus>;
  /** Every message that the events named. */
  readonly messages: ReadonlySet<string>;
  /** Those of them that are skipped on every line. */
  readonly deleted: ReadonlySet<string>;
  /** What is being shown, by run. */
  readonly previews: ReadonlyMap<string, Shown>;
  /** By run, the newest generation whose preview is over: a late frame brings nothing back. */
  readonly over: ReadonlyMap<string, number>;
  /** Whether what comes now is happening now. */
  readonly caughtUp: boolean;
  /** Whether frames are missing: attach again at `seq`. Until then nothing is taken. */
  readonly behind: boolean;
  /** Why the server ended the stream in good order, if it did. */
  readonly ended: Ending | null;
}

/** Return what is known before the first frame after event number `seq`. */
export function beginning(seq = 0): State {
  return {
    seq,
    head: null,
    runs: new Map(),
    messages: new Set(),
    deleted: new Set(),
    previews: new Map(),
    over: new Map(),
    caughtUp: false,
    behind: false,
    ended: null,
  };
}

/** Return the state at the beginning of a new stream from its cursor; what it knows stays. */
export function attached(state: State): State {
  return { ...state, caughtUp: false, behind: false, ended: null };
}

/** Return the state after `frame`; the state given is left as it was. */
export function reduce(state: State, frame: Frame): State {
  if (state.behind || state.ended !== null) return state;
  switch (frame.type) {
    case "durable":
      if (frame.seq <= state.seq) return state;
      if (frame.seq > state.seq + 1) return { ...state, behind: true };
      return { ...after(state, frame.event), seq: frame.seq };
    case "preview.snapshot":
      return snapshot(state, frame);
    case "preview.delta":
      return delta(state, frame);
    case "caught_up":
      return frame.seq > state.seq ? { ...state, behind: true } : { ...state, caughtUp: true };
    case "end":
      return frame.seq > state.seq ? { ...state, behind: true } : { ...state, ended: frame.reason };
    default:
      frame satisfies never; // a kind that a later release sends, and that is no event
      return state;
  }
}

/** What a step told: a durable event, text that is new, or that all of the past has been told. */
export type Told =
  | { readonly type: "event"; readonly seq: number; readonly at_ms: number; readonly event: DurableEvent }
  | {
      readonly type: "preview";
      readonly run: string;
      readonly generation: number;
      readonly block: number;
      readonly channel: Channel;
      readonly offset: number;
      readonly text: Unsaved;
    }
  | { readonly type: "caught_up"; readonly seq: number };

/** Return what the step from `before` to `after` by `frame` tells a reader. */
export function told(before: State, after: State, frame: Frame): readonly Told[] {
  if (frame.type === "durable" && after.seq > before.seq) {
    return [{ type: "event", seq: frame.seq, at_ms: frame.at_ms, event: frame.event }];
  }
  if (after.caughtUp && !before.caughtUp) return [{ type: "caught_up", seq: after.seq }];
  return fresh(before, after);
}

function fresh(before: State, after: State): readonly Told[] {
  if (before.previews === after.previews) return [];
  const pieces: Told[] = [];
  for (const [run, shown] of after.previews) {
    const held = before.previews.get(run);
    if (held === shown) continue;
    const same = held?.generation === shown.generation ? held.blocks : [];
    for (const { block, channel, text, points } of shown.blocks) {
      const known = same.find((other) => other.block === block);
      const offset = known?.points ?? 0;
      if (offset < points) {
        const { generation } = shown;
        const rest = text.slice(known?.text.length ?? 0) as Unsaved;
        pieces.push({ type: "preview", run, generation, block, channel, offset, text: rest });
      }
    }
  }
  return pieces;
}

// Durable events.

function after(state: State, event: DurableEvent): State {
  switch (event.type) {
    case "run.changed": {
      const changed = { ...state, runs: new Map(state.runs).set(event.run, event.status) };
      return isOpen(event.status) ? changed : without(changed, event.run);
    }
    case "message.placed":
    case "results.placed":
    case "message.kept":
      return naming(state, [event.message]);
    case "message.committed":
      return without(naming(state, [event.message]), event.run, event.generation);
    case "preview.withdrawn":
      return without(state, event.run, event.generation);
    case "head.moved":
      return { ...state, head: event.head };
    case "messages.added":
      return naming(state, event.messages);
    case "messages.deleted":
      return { ...state, deleted: new Set([...state.deleted, ...event.messages]) };
    case "dispatch.changed":
    case "call.changed":
    case "conversation.erased":
      return state;
    default:
      event satisfies never; // of a later release: its number counts all the same
      return state;
  }
}

function naming(state: State, messages: readonly string[]): State {
  return { ...state, messages: new Set([...state.messages, ...messages]) };
}

/** Return the state without the run's preview, up to `generation`, or of any. */
function without(state: State, run: string, generation?: number): State {
  const shown = state.previews.get(run);
  const last = generation ?? shown?.generation;
  if (last === undefined) return state;
  const over = new Map(state.over).set(run, Math.max(last, state.over.get(run) ?? 0));
  if (shown === undefined || shown.generation > last) return { ...state, over };
  const previews = new Map(state.previews);
  previews.delete(run);
  return { ...state, previews, over };
}

// Previews.

/** Whether a preview of this generation has no place any more. */
function isOver(state: State, run: string, generation: number): boolean {
  const status = state.runs.get(run);
  return (
    generation <= (state.over.get(run) ?? 0) ||
    generation < (state.previews.get(run)?.generation ?? 0) ||
    (status !== undefined && !isOpen(status))
  );
}

function heldOf(state: State, run: string, generation: number): readonly ShownBlock[] {
  const shown = state.previews.get(run);
  return shown?.generation === generation ? shown.blocks : [];
}

function snapshot(state: State, frame: Snapshot): State {
  if (isOver(state, frame.run, frame.generation)) return state;
  let held = heldOf(state, frame.run, frame.generation);
  for (const { block, channel, text } of frame.blocks) {
    const known = held.find((other) => other.block === block);
    const points = pointsIn(text);
    // An older one may come twice.
    if (known === undefined || known.points < points) held = put(held, { block, channel, text, points });
  }
  return showing(state, frame.run, frame.generation, held);
}

function delta(state: State, frame: Delta): State {
  if (isOver(state, frame.run, frame.generation)) return state;
  const held = heldOf(state, frame.run, frame.generation);
  const known = held.find((other) => other.block === frame.block);
  const points = known?.points ?? 0;
  if (frame.offset > points) return { ...state, behind: true };
  const more = from(frame.text, points - frame.offset);
  if (more === "") return state;
  const block: ShownBlock = {
    block: frame.block,
    channel: frame.channel,
    text: ((known?.text ?? "") + more) as Unsaved,
    points: points + pointsIn(more),
  };
  return showing(state, frame.run, frame.generation, put(held, block));
}

function showing(state: State, run: string, generation: number, blocks: readonly ShownBlock[]): State {
  return { ...state, previews: new Map(state.previews).set(run, { generation, blocks }) };
}

/** Return the blocks with `block` in its place by number. */
function put(held: readonly ShownBlock[], block: ShownBlock): readonly ShownBlock[] {
  return [...held.filter((other) => other.block !== block.block), block].sort((a, b) => a.block - b.block);
}

/** Return how many code points `text` has. */
function pointsIn(text: string): number {
  let points = text.length;
  for (let at = 0; at < text.length - 1; at++) {
    if (isPair(text, at)) {
      points--;
      at++;
    }
  }
  return points;
}

/** Return `text` without its first `points` code points. */
function from(text: string, points: number): string {
  let at = 0;
  for (let left = points; left > 0 && at < text.length; left--) at += isPair(text, at) ? 2 : 1;
  return text.slice(at);
}

function isPair(text: string, at: number): boolean {
  return (text.charCodeAt(at) & 0xfc00) === 0xd800 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00;
}
