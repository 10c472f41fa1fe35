/** A screen is shown what the server holds, and never a hole or a step back. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Branches, connect, type Frame, leafOf, type Live, type Message, type View } from "../src/index.ts";
import { type Asked, json, Server, stream, written } from "./server.ts";

const message = (id: string, parent: string | null, role: Message["role"], status?: Message["status"]): Message => ({
  id,
  conversation: "conv_1",
  parent,
  role,
  blocks: [{ kind: "text", text: id }],
  origin: "client",
  trust: "user",
  ...(status === undefined ? {} : { status }),
});

const run = (status: string, more: object = {}) => ({ id: "run_1", conversation: "conv_1", status, input: "q", leaf: "q", head_left: null, ...more });
const durable = (seq: number, event: object) => ({ type: "durable", seq, at_ms: seq, event }) as Frame;
const delta = (offset: number, text: string) =>
  ({ type: "preview.delta", run: "run_1", generation: 1, block: 0, channel: "text", offset, text }) as unknown as Frame;

const SAYING: Frame[] = [
  durable(1, { type: "run.changed", run: "run_1", status: "pending" }),
  durable(2, { type: "message.placed", run: "run_1", message: "q", parent: null }),
  { type: "caught_up", seq: 2 },
  delta(0, "He"),
  delta(2, "llo"),
];
const SAID: Frame[] = [
  durable(3, { type: "message.committed", run: "run_1", message: "a", parent: "q", revision: 2, generation: 1 }),
  durable(4, { type: "head.moved", head: "a" }),
  durable(5, { type: "run.changed", run: "run_1", status: "success" }),
];

/** A server whose conversation stands as `rows` say by the time that somebody asks. */
function serving(frames: readonly Frame[], rows: Record<string, unknown>): Server {
  const server = new Server();
  server.will((asked: Asked, signal) => {
    const path = asked.path.replace("/antiphon/v1", "").replace(/\?.*/, "");
    if (path.endsWith("/events")) return stream(frames.map((frame) => written([frame])), "stays")(asked, signal);
    const row = rows[path];
    return json(row ?? { error: { code: "not_found", message: "no" } }, row === undefined ? 404 : 200)(asked, signal);
  });
  return server;
}

const conversation = (head: string | null, last_event: number) => ({ id: "conv_1", head, last_event, revision: last_event, deletions: [] });

function seen(live: Live, enough: (view: View) => boolean): Promise<View[]> {
  const views: View[] = [];
  return new Promise((done) =>
    live.subscribe(() => {
      views.push(live.view);
      if (enough(live.view)) done(views);
    }),
  );
}

/** What a screen makes of a view. */
function screen(view: View): string {
  const line = new Branches(view.messages, view.conversation?.deletions).line(leafOf(view));
  const shown = [...view.previews.values()].map(({ blocks }) => `(${blocks.map((block) => block.text).join("")})`);
  return [...line.map(({ id }) => id), ...shown].join(" ");
}

test("an answer grows as a preview and then is a message, with nothing between", { timeout: 10_000 }, async () => {
  const server = serving([...SAYING, ...SAID], {
    "/conversations/conv_1/tree": { conversation: conversation(null, 0), messages: [], runs: [] },
    "/conversations/conv_1": conversation("a", 5),
    "/messages/q": message("q", null, "user"),
    "/messages/a": message("a", "q", "assistant"),
    "/runs/run_1": { run: run("success", { leaf: "a", head_left: "a" }), input: message("q", null, "user"), operations: [], calls: [], quarantined: [] },
  });
  const live = connect({ fetch: server.fetch }).live("conv_1", () => () => {});
  const views = await seen(live, (view) => view.seq === 5 && view.messages.size === 2);
  for (const view of views) assert.match(screen(view), /^(|q|q \(He(llo)?\)|q a)$/);
  const last = views.at(-1) as View;
  assert.equal(screen(last), "q a");
  assert.deepEqual(last.conversation, conversation("a", 5));
  assert.equal(last.runs.get("run_1")?.status, "success");
  live.close();
});

test("a row that is read ahead of its event does not run ahead on the screen", { timeout: 10_000 }, async () => {
  const server = serving(SAYING, {
    "/conversations/conv_1/tree": { conversation: conversation(null, 0), messages: [], runs: [] },
    "/conversations/conv_1": conversation(null, 2),
    "/messages/q": message("q", null, "user", "pending"),
    "/runs/run_1": { run: run("success", { leaf: "a", head_left: "a" }), input: null, operations: [], calls: [], quarantined: [] },
  });
  const live = connect({ fetch: server.fetch }).live("conv_1", () => () => {});
  const views = await seen(live, (view) => screen(view).endsWith("(Hello)"));
  assert.equal(views.at(-1)?.runs.get("run_1")?.status, "pending");
  assert.equal(screen(views.at(-1) as View), "q (Hello)");
  live.close();
});

test("text that is taken back is kept apart, with the reason", { timeout: 10_000 }, async () => {
  const gone = durable(3, { type: "preview.withdrawn", run: "run_1", generation: 1, reason: "cut" });
  const server = serving([...SAYING, gone], {
    "/conversations/conv_1/tree": { conversation: conversation(null, 0), messages: [], runs: [] },
    "/conversations/conv_1": conversation(null, 3),
    "/messages/q": message("q", null, "user", "pending"),
    "/runs/run_1": { run: run("pending"), input: null, operations: [], calls: [], quarantined: [] },
  });
  const live = connect({ fetch: server.fetch }).live("conv_1", () => () => {});
  const [view] = (await seen(live, ({ withdrawn }) => withdrawn.length > 0)).slice(-1);
  assert.equal(view?.previews.size, 0);
  const [taken] = view?.withdrawn ?? [];
  assert.deepEqual([taken?.reason, taken?.generation, taken?.shown?.blocks[0]?.text], ["cut", 1, "Hello"]);
  live.close();
});

test("an event of a later release makes it read everything again", { timeout: 10_000 }, async () => {
  const tree = { conversation: conversation(null, 0), messages: [] as Message[], runs: [] };
  const server = serving([durable(1, { type: "weather.changed" })], { "/conversations/conv_1/tree": tree });
  const live = connect({ fetch: server.fetch }).live("conv_1", () => () => {});
  tree.messages = [message("q", null, "user")];
  await seen(live, (view) => view.seq === 1 && view.messages.size === 1);
  live.close();
});

test("a conversation that is not there is an error, and no loop", { timeout: 10_000 }, async () => {
  const server = serving([], {});
  const live = connect({ fetch: server.fetch }).live("conv_1");
  const views = await seen(live, (view) => view.error !== null);
  assert.equal(views.at(-1)?.error?.code, "not_found");
  assert.equal(views.at(-1)?.connection, "closed");
  live.close();
  assert.equal(server.asked.length, 1);
});

test("branches: what is deleted is skipped, and its children count as its parent's", () => {
  const all = [
    message("q", null, "user"),
    message("a1", "q", "assistant"),
    message("a2", "q", "assistant"),
    message("q2", "a1", "user"),
    message("a3", "q2", "assistant"),
  ];
  const messages = new Map(all.map((one) => [one.id, one]));
  const ids = (some: readonly Message[]) => some.map(({ id }) => id).join(" ");
  const branches = new Branches(messages, ["a1"]);
  assert.equal(ids(branches.line("a3")), "q q2 a3");
  assert.equal(ids(branches.children("q")), "a2 q2");
  assert.equal(ids(branches.siblings(all[2] as Message)), "a2");
  assert.equal(ids(new Branches(messages).siblings(all[1] as Message)), "a1 a2");
  assert.equal(new Branches(messages).leafBelow("a1"), "a3");
  assert.equal(ids(branches.line(null)), "");
});

test("the newest messages are there at once, the others when they come, and what happens meanwhile stays", { timeout: 10_000 }, async () => {
  let come = () => {};
  const rest = new Promise<void>((done) => (come = done));
  const server = new Server();
  server.will(async (asked: Asked, signal) => {
    const path = asked.path.replace("/antiphon/v1/", "");
    const row = conversation("a2", 5);
    const old = { conversation: row, messages: ["q1", "a1", "q2"].map((id) => message(id, null, "user")), runs: [run("success", { id: "run_0" }), run("pending")] };
    if (path.includes("/events")) return stream(SAID.map((frame, at) => written([{ ...frame, seq: at + 6 } as Frame])), "stays")(asked, signal);
    if (path.endsWith("/tree?newest=60")) {
      return json({ conversation: row, messages: [message("q2", null, "user")], runs: [run("pending")], whole: false }, 200)(asked, signal);
    }
    if (path.endsWith("/tree")) await rest;
    const rows: Record<string, unknown> = {
      "conversations/conv_1/tree": old,
      "conversations/conv_1": { ...row, last_event: 8 },
      "messages/a?conversation=conv_1": message("a", "q2", "assistant"),
      "runs/run_1": { run: run("success", { leaf: "a" }), input: message("q2", "a1", "user", "canceled"), operations: [], calls: [], quarantined: [] },
    };
    return json(rows[path] ?? {}, path in rows ? 200 : 404)(asked, signal);
  });
  const live = connect({ fetch: server.fetch }).live("conv_1", () => () => {});
  const before = (await seen(live, (view) => view.messages.has("a") && view.seq === 8)).at(-1) as View;
  assert.deepEqual([[...before.messages.keys()], before.whole], [["q2", "a"], false]);
  come();
  const after = (await seen(live, (view) => view.whole)).at(-1) as View;
  assert.deepEqual([...after.messages.keys()], ["q1", "a1", "q2", "a"]);
  assert.deepEqual([...after.runs.keys()], ["run_0", "run_1"]);
  // The tree still says that it is at work.
  assert.deepEqual([after.messages.get("q2")?.status, after.runs.get("run_1")?.status], ["canceled", "success"]);
  live.close();
});
