/**
 * How a large conversation feels: how long until its newest messages are on the screen, and how long the
 * page is busy at a stretch while it opens, is scrolled, and an answer of 100 pieces a second streams in.
 *
 * Each figure is the median of several tries, in a browser that knows nothing yet; the first try, which
 * warms the server, does not count. Tasks are told by the time that passed, as people feel it, and by the
 * processor time that they took, which does not depend on what else the machine does meanwhile.
 */

import { loadavg } from "node:os";
import type { Page } from "playwright-core";
import { says, screen } from "../src/console.ts";
import { brought, MESSAGES, NEWEST } from "../src/large.ts";
import { gate } from "../src/model.ts";
import { model, opened, raise, strike, traced, until } from "../src/stage.ts";

const TRIES = Number(process.env["TRIES"] ?? 5);
const SECONDS = 3;

/** Look on from inside the page for when one of `texts` has been painted. */
function looking(texts: readonly string[]): void {
  const looked = () => {
    if (!texts.some((text) => document.body?.textContent?.includes(text))) return requestAnimationFrame(looked);
    // What is in the document now is on the screen once the next frame begins.
    return requestAnimationFrame(() => Object.assign(globalThis, { painted: performance.now() }));
  };
  requestAnimationFrame(looked);
}

const paintedAt = (page: Page) => page.evaluate(() => (globalThis as { painted?: number }).painted ?? null);

/** Go to the conversation; return when its newest messages were on the screen. */
async function arrive(page: Page, id: string): Promise<number> {
  await page.addInitScript(looking, [NEWEST, "piece 299"]);
  const whole = page.waitForResponse(/\/tree$/).then((answer) => answer.finished());
  await page.goto(`${new URL(page.url()).origin}/c/${id}`);
  const at = await until(() => paintedAt(page), (seen) => seen !== null);
  await whole;
  await page.waitForTimeout(500); // until it is drawn
  return at ?? NaN;
}

const figures = new Map<string, number[]>();
const note = (what: string, value: number) => void figures.set(what, [...(figures.get(what) ?? []), value]);

function noteTasks(when: string, tasks: Awaited<ReturnType<typeof traced>>): void {
  note(`longest task ${when}, ms`, Math.max(0, ...tasks.map(({ ms }) => ms)));
  note(`longest task ${when}, CPU ms`, Math.max(0, ...tasks.map(({ cpuMs }) => cpuMs)));
  note(`tasks of 50 ms or more ${when}`, tasks.filter(({ ms }) => ms >= 50).length);
  note(`all tasks ${when}, CPU ms`, tasks.reduce((sum, { cpuMs }) => sum + cpuMs, 0));
}

await raise();
try {
  const id = await brought();
  for (let n = 0; n <= TRIES; n++) {
    if (n === 1) figures.clear();
    await opened("/operations", async (page) => {
      const opening = await traced(page, async () => note("newest messages on the screen after, ms", await arrive(page, id)));
      noteTasks("while it opens", opening);
      await page.mouse.move(640, 400);
      const scrolling = await traced(page, async () => {
        for (let turn = 0; turn < 60; turn++) {
          await page.mouse.wheel(0, -400);
          await page.waitForTimeout(16);
        }
      });
      noteTasks("while it is scrolled", scrolling);
    });
  }
  for (let n = 0; n < TRIES; n++) {
    await opened("/operations", async (page) => {
      await arrive(page, id);
      const [begin, go] = [gate(), gate()];
      const all = 100 * SECONDS;
      model.will(async (saying) => {
        saying.say("Now: ");
        await begin.passed;
        const begun = Date.now();
        for (let piece = 0; piece < all; piece++) {
          saying.say(`piece ${piece} `);
          const ahead = begun + 10 * (piece + 1) - Date.now();
          if (ahead > 0) await new Promise((done) => setTimeout(done, ahead));
        }
        await go.passed;
        saying.end();
      });
      await says(page, "Talk for a while");
      await page.locator("[data-ink=preview]").getByText("Now:").waitFor();
      const streaming = await traced(page, async () => {
        begin.open();
        await page.locator("[data-ink=preview]").getByText(`piece ${all - 1}`).waitFor();
      });
      noteTasks("while an answer streams", streaming);
      await page.getByRole("button", { name: "Stop", exact: true }).click();
      await until(() => screen(page), (seen) => seen.at(-1)?.startsWith("stopped") === true);
      go.open();
    });
  }
} finally {
  await strike();
}

console.log(`${MESSAGES} messages; load ${loadavg()[0]?.toFixed(1)}; the median of ${TRIES} tries, and each of them`);
for (const [what, values] of figures) {
  const sorted = values.map(Math.round).sort((a, b) => a - b);
  console.log(`${what}: ${sorted[Math.floor(sorted.length / 2)]} (${sorted.join(", ")})`);
}
