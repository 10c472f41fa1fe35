/** A conversation of 5,000 messages with 200 branches: how much of it is fetched, drawn, and drawn again. How fast that is, `npm run bench` measures. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rows, says, screen } from "../src/console.ts";
import { brought, MESSAGES, NEWEST } from "../src/large.ts";
import { gate } from "../src/model.ts";
import { antiphon, model, opened, until } from "../src/stage.ts";

const PIECES = 300;

test("a conversation of 5,000 messages with 200 branches opens with its end, and an answer draws nothing but itself", async () => {
  const id = await brought();
  await opened("/", async (page) => {
    const first = page.waitForResponse(/\/tree\?newest=/);
    const rest = page.waitForResponse(/\/tree$/);
    await page.goto(`${new URL(page.url()).origin}/c/${id}`);
    const { messages, whole } = (await (await first).json()) as { messages: unknown[]; whole: boolean };
    assert.ok(!whole && messages.length <= 70, `${messages.length} messages before the first is shown`);
    await page.getByText(NEWEST).waitFor();
    await (await rest).finished();
    await until(() => page.locator("article[data-row]").last().getAttribute("aria-setsize"), (size) => size === String(MESSAGES - 200));
    await page.getByText(NEWEST).waitFor(); // what came above moved nothing
    const elements = await page.evaluate(() => document.querySelectorAll("*").length);
    assert.ok(elements < 1_500, `${elements} elements`);

    const [begin, go] = [gate(), gate()];
    model.will(async (saying) => {
      saying.say("Now: ");
      await begin.passed;
      for (let n = 0; n < PIECES; n++) {
        saying.say(`piece ${n} `);
        if (n % 2 === 1) await new Promise((done) => setTimeout(done, 20));
      }
      await go.passed;
      saying.end();
    });
    await says(page, "Talk for a while");
    await until(() => screen(page), (seen) => seen.at(-1) === "preview: Now:");
    // Everything that is changed in the thread, but for what streams in and the clock beside it.
    await page.evaluate(() => {
      const counts = { elsewhere: 0, answer: 0 };
      Object.assign(globalThis, { counts });
      new MutationObserver((all) => {
        for (const { target } of all) {
          const element = target instanceof Element ? target : target.parentElement;
          if (element?.closest("article[data-kind=live]") == null) counts.elsewhere++;
          else counts.answer++;
        }
      }).observe(document.querySelector(".thread-list") ?? document.body, { subtree: true, childList: true, characterData: true });
    });
    begin.open();
    await until(() => screen(page), (seen) => seen.at(-1)?.includes(`piece ${PIECES - 1}`) === true);
    const { elsewhere, answer } = await page.evaluate(() => (globalThis as unknown as { counts: { elsewhere: number; answer: number } }).counts);
    assert.ok(answer > 0 && answer <= PIECES + 20, `the answer was changed ${answer} times for ${PIECES} pieces`);
    assert.ok(elsewhere < 60, `${elsewhere} changes beside it`); // rows that scroll out of sight
    go.open();
    await until(() => screen(page), (seen) => seen.at(-1)?.startsWith("preview") === false);
    assert.ok((await rows(page)).length < 40);
  });
  assert.ok(antiphon.url !== "");
});
