/** A request is repeated where that is the same thing, and nowhere else. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { AntiphonError, connect, newId } from "../src/index.ts";
import { broken, fault, json, never, Server } from "./server.ts";

const client = (server: Server, totalMs = 5_000, answerMs = 5_000) =>
  connect({ fetch: server.fetch, key: "secret", patience: { totalMs, answerMs } });

const code = (wanted: string) => (error: unknown) => error instanceof AntiphonError && error.code === wanted;

test("a message whose answer is lost is sent again under its id", async () => {
  const server = new Server();
  server.will(broken, fault(503, "not_durable", true), () => new Response("busy", { status: 502 }), json({ id: "run_1" }, 202));
  const run = await client(server).messages.send("conv 1", "Hi", { model: "m" });
  assert.equal(run.id, "run_1");
  const [first, ...others] = server.asked;
  assert.equal(first?.path, "/antiphon/v1/conversations/conv%201/messages");
  assert.match((first?.body as { id: string }).id, /^msg_[0-9a-hjkmnp-tv-z]{26}$/);
  assert.equal(others.length, 3);
  for (const asked of others) assert.deepEqual(asked.body, first?.body);
  assert.equal(first?.headers.get("authorization"), "Bearer secret");
});

test("an answer that does not come is given up and asked for again", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(never, json({ id: "run_1" }));
  assert.equal((await client(server, 5_000, 20).runs.cancel("run_1")).id, "run_1");
  assert.deepEqual(server.asked[0]?.body, { reason: "canceled" });
});

test("another answer is asked for under one key, however often", async () => {
  const server = new Server();
  server.will(broken, json({}));
  await client(server).messages.regenerate("conv_1", "msg_1");
  const keys = server.asked.map((asked) => asked.headers.get("idempotency-key"));
  assert.equal(new Set(keys).size, 1);
  assert.match(keys[0] ?? "", /^regenerate_/);
});

test("what would stand there twice is not sent again", async () => {
  const server = new Server();
  server.will(broken, json({}));
  await assert.rejects(client(server).conversations.create(), code("server_unavailable"));
  await assert.rejects(client(new Server()).messages.keep("conv_1", "msg_1"), code("server_unavailable"));
  assert.equal(server.asked.length, 1);
});

test("patience ends", async () => {
  const server = new Server();
  server.will(broken);
  await assert.rejects(client(server, 0).runs.get("run_1"), code("server_unavailable"));
});

test("what the server says is said as it was, and not asked again", async () => {
  const server = new Server();
  server.will(fault(409, "conversation_busy"));
  await assert.rejects(client(server).messages.send("conv_1", "Hi", { alone: true }), (error: unknown) => {
    assert.ok(error instanceof AntiphonError);
    assert.deepEqual([error.code, error.status, error.at, error.requestId], ["conversation_busy", 409, "x", "req_1"]);
    return true;
  });
  assert.equal(server.asked.length, 1);
  assert.equal(server.asked[0]?.headers.get("antiphon-when-busy"), "refuse");
});

test("ids sort by time and are never the same", () => {
  const ids = [0, 1, 2 ** 40].flatMap((ms) => [newId("msg_", ms), newId("msg_", ms)]);
  assert.equal(new Set(ids).size, ids.length);
  const times = ids.map((id) => id.slice(0, 14));
  assert.deepEqual(times, [...times].sort());
  assert.ok(ids.every((id) => id.length === 30));
});
