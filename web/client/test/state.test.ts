/** Frames are folded as the vectors say that the Python client folds too. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { attached, beginning, type DurableEvent, type Frame, reduce, type State, told } from "../src/index.ts";

type Piece = readonly [string, number, number, number, string];
interface Vector {
  readonly name: string;
  readonly after?: number;
  readonly frames: readonly (Frame | { readonly attach: true })[];
  readonly told: readonly (number | string | Piece)[];
}

const here = new URL("../../../../tests/data/client/reduce.json", import.meta.url);
export const VECTORS = JSON.parse(readFileSync(here, "utf8")) as readonly Vector[];

function folded(vector: Vector): [State, unknown[]] {
  let state = beginning(vector.after);
  const heard: unknown[] = [];
  for (const frame of vector.frames) {
    if ("attach" in frame) {
      state = attached(state);
      continue;
    }
    const before = state;
    state = reduce(before, frame);
    for (const item of told(before, state, frame)) {
      if (item.type === "event") heard.push(item.seq);
      else if (item.type === "caught_up") heard.push("caught_up");
      else heard.push([item.run, item.generation, item.block, item.offset, item.text]);
    }
  }
  return [state, heard];
}

function plain(state: State): Record<string, unknown> {
  const previews = [...state.previews].map(([run, { generation, blocks }]) => [
    run,
    { generation, blocks: blocks.map(({ block, channel, text }) => [block, channel, text]) },
  ]);
  return {
    seq: state.seq,
    head: state.head,
    runs: Object.fromEntries(state.runs),
    messages: [...state.messages].sort(),
    deleted: [...state.deleted].sort(),
    previews: Object.fromEntries(previews),
    caught_up: state.caughtUp,
    behind: state.behind,
    ended: state.ended,
  };
}

for (const vector of VECTORS) {
  test(vector.name, () => {
    const [state, heard] = folded(vector);
    const known = plain(state);
    const expected = Object.entries(vector).filter(([name]) => name in known);
    assert.ok(expected.length > 0);
    for (const [name, value] of expected) assert.deepEqual(known[name], value, name);
    assert.deepEqual(heard, vector.told);
  });
}

const WHOLE: readonly Frame[] = (
  [
    { type: "durable", seq: 1, at_ms: 1, event: { type: "run.changed", run: "r", status: "pending" } },
    { type: "preview.snapshot", run: "r", generation: 1, blocks: [{ block: 0, channel: "text", text: "a" }] },
    { type: "caught_up", seq: 1 },
    { type: "preview.delta", run: "r", generation: 1, block: 0, channel: "text", offset: 1, text: "b😀" },
    { type: "durable", seq: 2, at_ms: 1, event: { type: "preview.withdrawn", run: "r", generation: 1, reason: "x" } },
    { type: "preview.delta", run: "r", generation: 2, block: 0, channel: "text", offset: 0, text: "d😀" },
    { type: "preview.delta", run: "r", generation: 2, block: 0, channel: "text", offset: 2, text: "f" },
    {
      type: "durable",
      seq: 3,
      at_ms: 1,
      event: { type: "message.committed", run: "r", message: "m", parent: null, revision: 1, generation: 2 },
    },
    { type: "durable", seq: 4, at_ms: 1, event: { type: "head.moved", head: "m" } },
    { type: "durable", seq: 5, at_ms: 1, event: { type: "run.changed", run: "r", status: "success" } },
  ] as unknown[]
).map((frame) => frame as Frame);

test("whatever comes in whatever order, the state is true as far as it goes", () => {
  const truths = new Map<number, State>();
  let truth = beginning();
  truths.set(0, truth);
  for (const frame of WHOLE) truths.set((truth = reduce(truth, frame)).seq, truth);
  let drawn = 20261130;
  const draw = () => (drawn = (Math.imul(drawn, 1103515245) + 12345) >>> 1) % WHOLE.length;
  for (let round = 0; round < 2_000; round++) {
    let state = beginning();
    for (let n = 0; n < 40; n++) {
      state = reduce(state, WHOLE[draw()] as Frame);
      const true_ = truths.get(state.seq) as State;
      assert.deepEqual([state.runs, state.messages, state.head], [true_.runs, true_.messages, true_.head]);
      for (const shown of state.previews.values()) {
        const text = shown.blocks.map((block) => block.text).join("");
        assert.ok("ab😀".startsWith(text) || "d😀f".startsWith(text), text);
      }
      if (state.seq >= 3) assert.equal(state.previews.size, 0);
    }
  }
});

test("a frame leaves the state that it is folded into as it was", () => {
  const frozen = <T>(value: T): T => (typeof value === "object" && value !== null ? Object.freeze(value) : value);
  let state = beginning();
  for (const frame of WHOLE) {
    const before = JSON.stringify(plain(state));
    const next = reduce(frozen(state), frozen(frame));
    assert.equal(JSON.stringify(plain(state)), before);
    state = next;
  }
});

test("an event or a frame of a later release moves the cursor and is no fault", () => {
  const event = { type: "session.switched", to: "sess_2" } as unknown as DurableEvent;
  const state = reduce(beginning(), { type: "durable", seq: 1, at_ms: 1, event });
  assert.equal(state.seq, 1);
  assert.equal(reduce(state, { type: "weather" } as unknown as Frame), state);
});
