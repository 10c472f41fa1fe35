/** The stream as the AI SDK's own transport and reader take it, the newest ones and older ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import * as ai from "ai";
import * as old from "ai-old";
import { gate } from "../src/model.ts";
import { antiphon, model } from "../src/stage.ts";

type Parts = readonly { readonly type: string; readonly text?: string; readonly state?: string }[];

const api = () => `${antiphon.url}/antiphon/v1/chat`;
const WITHDRAW = { "antiphon-withdraw": "1" };
const user = (id: string, text: string) => ({ id, role: "user" as const, parts: [{ type: "text" as const, text }] });

/** Return what a message is after each chunk, by the newest release. */
async function read(
  stream: ReadableStream<ai.UIMessageChunk>,
  message?: ai.UIMessage,
  look: (seen: ai.UIMessage) => void = () => {},
): Promise<ai.UIMessage[]> {
  const seen: ai.UIMessage[] = [];
  const given = message === undefined ? {} : { message };
  for await (const one of ai.readUIMessageStream({ stream, ...given, terminateOnError: true })) {
    seen.push(structuredClone(one));
    look(one);
  }
  return seen;
}

const asking = (chatId: string, messages: ai.UIMessage[]) => ({
  chatId,
  messages,
  trigger: "submit-message" as const,
  messageId: undefined,
  abortSignal: undefined,
});

const texts = (message: { readonly parts: Parts } | undefined) =>
  message?.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("|");

test("the newest release reads thoughts and text as they come, and sees what was taken back leave", async () => {
  const wrong = gate();
  model.will(
    async (saying) => {
      saying.say("wrong ");
      await wrong.passed;
      saying.cut();
    },
    (saying) => (saying.think("Hm."), saying.say("ri"), saying.say("ght"), saying.end()),
  );
  const transport = new ai.DefaultChatTransport({ api: api(), headers: WITHDRAW });
  const stream = await transport.sendMessages(asking("p1", [user("p1u", "Hello")]));
  const seen = await read(stream, undefined, (message) => texts(message) === "wrong " && wrong.open());
  const last = seen.at(-1);
  assert.equal(texts(last), "right");
  assert.deepEqual(last?.parts.filter((part) => part.type === "reasoning").map((part) => part.text), ["Hm."]);
});

test("an older release is shown what was committed, and nothing that it could not take back", async () => {
  model.will(
    (saying) => (saying.say("wrong "), saying.cut()),
    (saying) => (saying.say("right"), saying.end()),
  );
  const transport = new old.DefaultChatTransport({ api: api() });
  const asked = { chatId: "p2", messages: [user("p2u", "Hello")], trigger: "submit-message" as const };
  const stream = await transport.sendMessages({ ...asked, messageId: undefined, abortSignal: undefined });
  const seen: Parts[] = [];
  for await (const message of old.readUIMessageStream({ stream, terminateOnError: true })) seen.push(structuredClone(message.parts) as Parts);
  assert.ok(!JSON.stringify(seen).includes("wrong"));
  assert.equal(texts({ parts: seen.at(-1) ?? [] }), "right");
});

test("a call waits for approval, and the same message goes on", async () => {
  model.will(
    (saying) => saying.call("call-1", "time_get_current_time", { timezone: "UTC" }),
    (saying, asked) => (saying.say(asked.includes("timezone") ? "It is late." : asked), saying.end()),
  );
  const transport = new ai.DefaultChatTransport({ api: api(), headers: WITHDRAW });
  const said = user("p3u", "What time is it?");
  const waiting = (await read(await transport.sendMessages(asking("p3", [said])))).at(-1);
  const part = waiting?.parts.find(ai.isToolUIPart);
  assert.ok(waiting !== undefined && part?.state === "approval-requested");
  assert.deepEqual(part.input, { timezone: "UTC" });
  Object.assign(part, { state: "approval-responded", approval: { id: part.approval.id, approved: true } });
  const more = await read(await transport.sendMessages(asking("p3", [said, waiting])), structuredClone(waiting));
  const whole = more.at(-1);
  assert.equal(whole?.id, waiting.id);
  assert.equal(whole?.parts.find(ai.isToolUIPart)?.state, "output-available");
  assert.equal(texts(whole), "It is late.");
  const stored = (await (await fetch(`${api()}/p3`)).json()) as { messages: ai.UIMessage[] };
  const valid = await ai.safeValidateUIMessages({ messages: stored.messages });
  assert.ok(valid.success);
  assert.equal(texts(valid.data.at(-1)), "It is late.");
});

test("a stream that was left is told from its beginning to whoever comes back", async () => {
  const [begun, go] = [gate(), gate()];
  model.will(async (saying) => {
    saying.say("one ");
    begun.open();
    await go.passed;
    saying.say("two");
    saying.end();
  });
  const transport = new ai.DefaultChatTransport({ api: api(), headers: WITHDRAW });
  const leaving = new AbortController();
  const first = await transport.sendMessages({ ...asking("p4", [user("p4u", "Count")]), abortSignal: leaving.signal });
  await begun.passed;
  leaving.abort();
  await first.cancel().catch(() => {});
  const again = await transport.reconnectToStream({ chatId: "p4" });
  assert.ok(again !== null);
  go.open();
  assert.equal(texts((await read(again)).at(-1)), "one two");
  assert.equal(await transport.reconnectToStream({ chatId: "p4" }), null);
});

test("what goes wrong is an error of the reader, in its words", async () => {
  model.will((saying) => (saying.say("x"), saying.end("content_filter")));
  const transport = new ai.DefaultChatTransport({ api: api(), headers: WITHDRAW });
  const stream = await transport.sendMessages(asking("p5", [user("p5u", "Hello")]));
  await assert.rejects(read(stream), /content_filter/);
  const welcome = { id: "welcome", role: "assistant" as const, parts: [{ type: "text" as const, text: "Hi" }] };
  await assert.rejects(transport.sendMessages(asking("p5", [welcome, user("p5v", "Hello")])), /unknown_message/);
});
