/** Events come out whole, however their text is cut. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { EventStream } from "../src/sse.ts";

const STREAM = ': hello\n\nid: 1\nevent: a\ndata: {"a":1}\n\ndata: two\r\ndata:lines\r\n\r\ndata: old\r\r: \n\ndata: cut';
const EVENTS = ['{"a":1}', "two\nlines", "old"];

test("a stream in one piece", () => {
  assert.deepEqual(new EventStream().feed(STREAM), EVENTS);
});

test("a stream cut at any two places", () => {
  for (let first = 0; first <= STREAM.length; first++) {
    for (let second = first; second <= STREAM.length; second++) {
      const stream = new EventStream();
      const pieces = [STREAM.slice(0, first), STREAM.slice(first, second), STREAM.slice(second)];
      assert.deepEqual(pieces.flatMap((piece) => stream.feed(piece)), EVENTS, JSON.stringify(pieces));
    }
  }
});

test("a stream that comes letter by letter", () => {
  const stream = new EventStream();
  assert.deepEqual([...STREAM].flatMap((letter) => stream.feed(letter)), EVENTS);
});
