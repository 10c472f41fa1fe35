/**
 * What does not compile, proves: preview text reaches nothing that builds or sends history.
 *
 * Each `@ts-expect-error` is an error of the build if its line type-checks.
 */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import type { Client, Content, Delta, Message, Part, Saved, Shown, Unsaved, View } from "../src/index.ts";

export function previewsAreNotSent(client: Client, shown: Shown, delta: Delta, view: View): void {
  const text: Unsaved | undefined = shown.blocks[0]?.text;
  if (text === undefined) return;
  const onScreen: string = text; // it may be shown like any other
  // @ts-expect-error
  void client.messages.send("conv", text);
  // @ts-expect-error
  void client.messages.send("conv", [{ kind: "text", text }]);
  // @ts-expect-error
  void client.messages.send("conv", "Hello", { instructions: delta.text });
  // @ts-expect-error
  void client.messages.edit("conv", "msg", text);
  // @ts-expect-error
  void client.runs.outputs("run", [{ call_id: "call", output: text }]);
  // @ts-expect-error
  void client.calls.approve("run", "call", text);
  // @ts-expect-error
  void client.calls.refuse("run", "call", text);
  // @ts-expect-error
  void client.conversations.change("conv", { title: text });
  // @ts-expect-error
  const content: Content = text;
  // @ts-expect-error
  const part: Part = { kind: "text", text };
  // @ts-expect-error
  const saved: Saved = text;
  // @ts-expect-error
  const messages: ReadonlyMap<string, Message> = view.previews;
  void [onScreen, content, part, saved, messages];
}

export function whatPeopleWriteIsSent(client: Client, written: string, message: Message): void {
  void client.messages.send("conv", written);
  void client.messages.send("conv", `Say it again: ${written}`);
  void client.messages.send("conv", [{ kind: "text", text: written }, { kind: "image", url: "data:" }]);
  const [block] = message.blocks;
  if (block?.kind === "text") void client.messages.edit("conv", message.id, block.text);
}

test("what sends imports nothing that holds a preview", () => {
  const sources = new URL("../../src/", import.meta.url);
  const imports = (name: string) =>
    [...readFileSync(new URL(name, sources), "utf8").matchAll(/from "\.\/(\w+)\.ts"/g)].map((found) => `${found[1]}.ts`);
  assert.ok(readdirSync(sources).includes("wire.ts"));
  const reached = new Set<string>();
  const follow = (name: string) => {
    if (reached.has(name)) return;
    reached.add(name);
    imports(name).forEach(follow);
  };
  follow("wire.ts");
  assert.deepEqual([...reached].sort(), ["errors.ts", "wire.ts"]);
});
