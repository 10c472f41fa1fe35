/** The console, as a person handles it and sees it. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { antiphon, model, proxy, until } from "./stage.ts";

/** One row of the thread: what kind, how sure the screen says that it is, and its words. */
export interface Row {
  readonly kind: string;
  readonly ink: string;
  readonly text: string;
}

export function rows(page: Page): Promise<Row[]> {
  return page.locator("article[data-row]").evaluateAll((all) =>
    all.map((row) => {
      const turn = row.querySelector(".turn");
      return {
        kind: row.getAttribute("data-kind") ?? "",
        ink: turn?.getAttribute("data-ink") ?? "",
        text: [...row.querySelectorAll(".words p:not(.awaiting):not(.aside)")].map((p) => p.textContent?.trim()).join("\n"),
      };
    }),
  );
}

/** What stands on the screen as saved, and what as something else, in order. */
export async function screen(page: Page): Promise<string[]> {
  return (await rows(page)).map(({ kind, ink, text }) => (ink === "saved" && kind === "message" ? text : `${ink || kind}: ${text}`));
}

export function showing(page: Page, ...wanted: string[]): Promise<string[]> {
  return until(() => screen(page), (seen) => JSON.stringify(seen) === JSON.stringify(wanted));
}

export async function says(page: Page, text: string): Promise<void> {
  await page.getByLabel("Your message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

export const conversationOf = (page: Page) => /\/c\/(conv_\w+)/.exec(page.url())?.[1] ?? "";

interface Message {
  readonly id: string;
  readonly role: string;
  readonly status?: string;
  readonly blocks: readonly { readonly kind: string; readonly text?: string }[];
}

const textOf = (message: Message) => message.blocks.map((block) => (block.kind === "text" ? block.text : "")).join("");

/** The line that the server has, as texts. */
export async function line(conversation: string): Promise<string[]> {
  const { data } = await antiphon.api<{ data: Message[] }>("GET", `/conversations/${conversation}/line`);
  return data.filter((message) => message.role !== "tool").map(textOf);
}

/** Wait until nothing is at work; then what the screen says is saved is what the server has, and nothing is left over. */
export async function settled(page: Page): Promise<void> {
  const conversation = conversationOf(page);
  await until(
    () => antiphon.api<{ slot: string | null }>("GET", `/conversations/${conversation}`),
    (row) => row.slot === null,
  );
  const wanted = await line(conversation);
  await until(
    async () => (await rows(page)).filter((row) => row.kind !== "withdrawn" && row.ink !== "stopped").map((row) => `${row.ink}: ${row.text}`),
    (seen) => JSON.stringify(seen) === JSON.stringify(wanted.map((text) => `saved: ${text}`)),
  );
}

/** Nothing that a model said, saved or not, was ever in a request of the browser. */
export function neverSent(...words: string[]): void {
  const sent = proxy.bodies.join("\n");
  for (const word of words) assert.ok(!sent.includes(word), `a request held ${word}`);
}

/** Begin a conversation with one question, answered so. */
export async function begun(page: Page, question: string, answer: string): Promise<void> {
  model.will((saying) => (saying.say(answer), saying.end()));
  await says(page, question);
  await showing(page, question, answer);
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
}

/** Look for what keeps people out, everything that axe knows of. */
export async function accessible(page: Page, where: string): Promise<void> {
  // A page may run nothing but its own scripts, so this one comes by the debugger.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: AXE });
  const looked = "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => JSON.stringify(violations))";
  const { result } = await session.send("Runtime.evaluate", { expression: looked, awaitPromise: true, returnByValue: true });
  await session.detach();
  const violations = JSON.parse(String(result.value)) as Violation[];
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} (${node.failureSummary ?? ""})`).join("; ")}`);
  assert.deepEqual(told, [], where);
}

/** Nothing is wider than the window. */
export async function untilted(page: Page): Promise<void> {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok((wide ?? Infinity) <= (window ?? 0), `${wide} pixels in a window of ${window}`);
}
