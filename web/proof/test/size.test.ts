/** A conversation of 5,000 messages with 200 branches, and an answer of 100 pieces a second. What was measured is printed. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { says, screen } from "../src/console.ts";
import { gate } from "../src/model.ts";
import { PYTHON } from "../src/server.ts";
import { antiphon, model, opened, until } from "../src/stage.ts";

const MESSAGES = 5_000;
const BRANCHES = 200;
const SECONDS = 3;

/** Bring a conversation into the server, as any export is brought. */
async function brought(): Promise<string> {
  const id = "conv_0000000000000000000000size";
  const messages: object[] = [];
  let parent: string | null = null;
  const say = (name: string, below: string | null, role: string) =>
    messages.push({ kind: "message", id: name, parent_id: below, role, blocks: [{ kind: "text", text: `${role} ${name}: ${"some words ".repeat(12)}` }] });
  for (let n = 0; n < MESSAGES - BRANCHES; n++) {
    const name = `m${n}`;
    say(name, parent, n % 2 === 0 ? "user" : "assistant");
    if (n % 2 === 1 && (n - 1) / 2 < BRANCHES) say(`b${n}`, parent, "assistant");
    parent = name;
  }
  const head = { kind: "conversation", id, title: "Large", head: parent, messages: messages.length };
  const lines = [{ kind: "export", version: 1 }, head, ...messages].map((line) => JSON.stringify(line));
  const file = join(antiphon.folder, "large.jsonl");
  writeFileSync(file, lines.join("\n") + "\n");
  await antiphon.kill(); // an import works on the file itself
  const done = spawnSync(PYTHON, ["-m", "antiphon", "import", file, "--db", `sqlite:///${join(antiphon.folder, "a.db")}`, "--json"], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr + done.stdout);
  await antiphon.start();
  return id;
}

/** How long each task of the page took that took 50 ms or more, while `use` goes on. */
async function longTasks(page: Page, use: () => Promise<void>): Promise<number[]> {
  await page.evaluate(() => {
    const seen: number[] = [];
    Object.assign(globalThis, { seen });
    new PerformanceObserver((list) => seen.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });
  });
  await use();
  return page.evaluate(() => (globalThis as unknown as { seen: number[] }).seen);
}

test("a conversation of 5,000 messages with 200 branches opens, and stays smooth while it is answered", async (t) => {
  const id = await brought();
  await opened("/", async (page) => {
    await page.locator("textarea:focus").waitFor();
    const begun = Date.now();
    await page.goto(`${new URL(page.url()).origin}/c/${id}`);
    await page.getByText(`m${MESSAGES - BRANCHES - 1}:`).waitFor();
    const openedMs = Date.now() - begun;
    t.diagnostic(`measured: 5,000 messages with 200 branches opened in ${openedMs} ms`);
    const go = gate();
    model.will(async (saying) => {
      for (let n = 0; n < 100 * SECONDS; n++) {
        saying.say(`piece ${n} `);
        if (n % 2 === 1) await new Promise((done) => setTimeout(done, 20));
      }
      await go.passed;
      saying.end();
    });
    const tasks = await longTasks(page, async () => {
      await says(page, "Talk for a while");
      await until(() => screen(page), (seen) => seen.at(-1)?.includes(`piece ${100 * SECONDS - 1}`) === true);
    });
    go.open();
    t.diagnostic(`measured: ${tasks.length} tasks of 50 ms or more in ${SECONDS} s of 100 pieces a second: ${tasks.map(Math.round).join(", ")}`);
    await until(() => screen(page), (seen) => seen.at(-1)?.startsWith("preview") === false);
    assert.ok(openedMs < 20_000 && tasks.every((ms) => ms < 2_000));
  });
});
