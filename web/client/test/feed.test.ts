/** Whatever a network does, each event is told once, in order. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type AntiphonError, connect, type Connection, type Feed, type Frame, type Patience } from "../src/index.ts";
import { type Asked, broken, fault, json, never, Server, stream, written } from "./server.ts";

const moved = (seq: number): Frame => ({ type: "durable", seq, at_ms: 1, event: { type: "head.moved", head: `m${seq}` } });
const reached = (seq: number): Frame => ({ type: "caught_up", seq });
const end = (seq: number): Frame => ({ type: "end", reason: "recycled", seq, retry_ms: 0 });

class Follower {
  readonly told: number[] = [];
  readonly connections: Connection[] = [];
  readonly feed: Feed;
  error: AntiphonError | undefined;
  wake: (surely: boolean) => void = () => {};
  #waiting: [() => boolean, () => void][] = [];

  constructor(server: Server, patience: Partial<Patience> = {}) {
    const listener = {
      step: (_: unknown, __: unknown, frame: Frame) => {
        if (frame.type === "durable" && this.feed.state.seq === frame.seq) this.told.push(frame.seq);
        this.#look();
      },
      connection: (connection: Connection, error?: AntiphonError) => {
        this.connections.push(connection);
        this.error = error;
        this.#look();
      },
    };
    const wakes = (wake: (surely: boolean) => void) => {
      this.wake = wake;
      return () => {};
    };
    this.feed = connect({ fetch: server.fetch, patience }).follow("conv_1", listener, 0, wakes);
  }

  until(reached: () => boolean): Promise<void> {
    if (reached()) return Promise.resolve();
    return new Promise((done) => this.#waiting.push([reached, done]));
  }

  #look(): void {
    for (const [reached, done] of this.#waiting) if (reached()) done();
  }
}

const after = (asked: Asked) => Number(new URL(asked.path, "http://x").searchParams.get("after"));

test("a stream that breaks is attached again at the cursor", { timeout: 10_000 }, async () => {
  const server = new Server();
  const half = written([moved(3)]).slice(0, 20);
  server.will(
    stream([written([moved(1), moved(2)]), half], "breaks"),
    stream([written([moved(3), reached(3)])], "ends"),
    stream([written([reached(3), moved(4)])], "stays"),
  );
  const follower = new Follower(server);
  await follower.until(() => follower.feed.state.seq === 4);
  assert.deepEqual(follower.told, [1, 2, 3, 4]);
  assert.deepEqual(server.asked.map(after), [0, 2, 3]);
  follower.feed.close();
  await follower.until(() => follower.connections.includes("closed"));
  assert.deepEqual(follower.connections, ["live", "closed"]);
});

test("a stream cut at any byte tells each event once", { timeout: 20_000 }, async () => {
  const whole = written([moved(1), moved(2), reached(2)]);
  for (let cut = 0; cut < whole.length; cut += 7) {
    const server = new Server();
    server.will(stream([whole.slice(0, cut)], "breaks"), (asked, signal) =>
      stream([written([moved(1), moved(2)].slice(after(asked))) + written([reached(2)])], "stays")(asked, signal),
    );
    const follower = new Follower(server);
    await follower.until(() => follower.feed.state.caughtUp);
    assert.deepEqual(follower.told, [1, 2], `cut at ${cut}`);
    follower.feed.close();
  }
});

test("a frame that is missing makes it attach again, and doubled ones are dropped", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(
    stream([written([moved(1), moved(1), moved(3), moved(2)])], "stays"),
    stream([written([moved(2), moved(3), reached(3)])], "stays"),
  );
  const follower = new Follower(server);
  await follower.until(() => follower.feed.state.caughtUp);
  assert.deepEqual(follower.told, [1, 2, 3]);
  assert.deepEqual(server.asked.map(after), [0, 1]);
  follower.feed.close();
});

test("an end in good order is followed by another stream, without a word", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(stream([written([moved(1), reached(1), end(1)])], "stays"), stream([written([reached(1), moved(2)])], "stays"));
  const follower = new Follower(server);
  await follower.until(() => follower.feed.state.seq === 2);
  assert.deepEqual(follower.connections, ["live"]);
  follower.feed.close();
});

test("silence is a break", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(stream([written([reached(0)])], "stays"), stream([written([moved(1), reached(1)])], "stays"));
  const follower = new Follower(server, { silenceMs: 30 });
  await follower.until(() => follower.feed.state.seq === 1);
  follower.feed.close();
});

test("where streams come to nothing it polls, and tries a stream again", { timeout: 20_000 }, async () => {
  const server = new Server();
  const poll = (asked: Asked) => {
    assert.match(asked.path, /\/events\/poll\?after=\d+$/);
    const seq = after(asked) + 1;
    return new Response(JSON.stringify({ frames: [moved(seq), reached(seq)] }));
  };
  server.will(never, never, ...Array<typeof poll>(20).fill(poll), stream([written([reached(20), moved(21)])], "stays"));
  const follower = new Follower(server, { openingMs: 20 });
  await follower.until(() => follower.feed.state.seq === 21);
  assert.deepEqual(follower.told, [...Array(21).keys()].map((n) => n + 1));
  assert.match(server.asked[22]?.path ?? "", /\/events\?after=20$/);
  follower.feed.close();
});

test("a page that wakes attaches at once, whatever pause there was", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(broken);
  const follower = new Follower(server);
  await server.heard(3); // the pauses have begun to grow
  const asked = server.asked.length;
  server.will(stream([written([reached(0)])], "stays"), stream([written([reached(0), moved(1)])], "stays"));
  follower.wake(false);
  await follower.until(() => follower.feed.state.caughtUp);
  assert.ok(server.asked.length - asked <= 2);
  follower.wake(true); // the network is another one: this stream is dead, whatever it seems
  await follower.until(() => follower.feed.state.seq === 1);
  follower.feed.close();
});

test("a page that wakes leaves a stream alone that spoke just now", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(stream([written([reached(0)])], "stays"));
  const follower = new Follower(server);
  await follower.until(() => follower.feed.state.caughtUp);
  follower.wake(false);
  assert.equal(server.asked.length, 1);
  follower.feed.close();
});

test("what the server refuses ends it, with the reason", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(fault(404, "not_found"));
  const follower = new Follower(server);
  await follower.until(() => follower.connections.includes("closed"));
  assert.equal(follower.error?.code, "not_found");
  assert.equal(server.asked.length, 1);
});

test("what is no stream of ours ends it", { timeout: 10_000 }, async () => {
  const server = new Server();
  server.will(json({ hello: "there" }));
  const follower = new Follower(server);
  await follower.until(() => follower.connections.includes("closed"));
  assert.equal(follower.error?.code, "not_antiphon");
});
