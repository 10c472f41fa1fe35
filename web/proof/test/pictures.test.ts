/**
 * The pictures of the README and the docs. Each run goes through the same scenes; `make pictures`
 * keeps what it saw.
 */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { begun, says, screen } from "../src/console.ts";
import { gate } from "../src/model.ts";
import { model, opened, until } from "../src/stage.ts";

const KEPT = join(import.meta.dirname, "../../../../docs/pictures");
const SEEN = join(import.meta.dirname, "../pictures");

async function picture(page: Page, name: string): Promise<void> {
  const folder = process.env["PICTURES"] === undefined ? SEEN : KEPT;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), animations: "disabled", caret: "initial" });
}

const QUESTION = "Two towns, one river: where should the ferry land?";
const FIRST = "Land it at the **lower town**. The bank is flat there, and the current carries a boat towards it.\n\n1. Fewer strokes upstream\n2. A road that is there already";
const SECOND = "At the **upper town**, if it must run in winter: the ice goes there first.";

async function talked(page: Page): Promise<void> {
  model.will(
    (saying) => (saying.say(FIRST), saying.end()),
    (saying) => (saying.say(SECOND), saying.end()),
  );
  await says(page, QUESTION);
  await until(() => screen(page), (seen) => seen.at(-1)?.includes("lower town") === true && !seen.at(-1)?.startsWith("preview"));
  await page.locator(".response").getByRole("button", { name: "Answer again", exact: true }).click();
  await until(() => screen(page), (seen) => seen.at(-1)?.includes("upper town") === true && !seen.at(-1)?.startsWith("preview"));
}

for (const colorScheme of ["light", "dark"] as const) {
  test(`pictures: a conversation, ${colorScheme}`, async () => {
    await opened("/", async (page) => {
      await talked(page);
      const go = gate();
      model.will(
        async (saying) => {
          saying.say("The ferryman asks");
          await go.passed;
          saying.cut();
        },
        (saying) => saying.say("A rope ferry needs no wind: one line across, a pulley, and the current does the"),
      );
      await says(page, "And without a sail?");
      await until(() => screen(page), (seen) => seen.at(-1) === "preview: The ferryman asks");
      go.open();
      await until(() => screen(page), (seen) => seen.at(-1)?.endsWith("the current does the") === true);
      await picture(page, `conversation-${colorScheme}`);
    }, { colorScheme, viewport: { width: 1280, height: 800 } });
  });
}

test("pictures: why this answer", async () => {
  await opened("/", async (page) => {
    await talked(page);
    await page.locator(".response").getByRole("button", { name: "Why this answer?" }).click();
    const panel = page.getByRole("complementary", { name: "Why this answer?" });
    await until(() => panel.innerText(), (text) => text.includes("COMMITTED"));
    await picture(page, "why");
  }, { colorScheme: "light", viewport: { width: 1280, height: 800 } });
});

test("pictures: a tool call that waits, on a phone, in Chinese", async () => {
  await opened("/", async (page) => {
    await page.evaluate(() => localStorage.setItem("antiphon.prefs", JSON.stringify({ language: "zh", theme: "system" })));
    await page.reload();
    model.will((saying) => saying.call("picture", "time_get_current_time", { timezone: "Asia/Shanghai" }));
    await page.getByLabel("你的消息", { exact: true }).fill("上海现在几点？");
    await page.keyboard.press("Enter");
    await page.getByText("需要你的批准").waitFor();
    await picture(page, "phone");
  }, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, locale: "zh-CN" });
});

test("pictures: operations", async () => {
  await opened("/", async (page) => {
    await begun(page, "Name a harbour", "Genoa");
    model.dies = 1;
    await page.getByLabel("Model", { exact: true }).selectOption("kept");
    await says(page, "Name a strait");
    await page.getByRole("group", { name: "Nobody knows whether the provider answered." }).waitFor();
    await page.getByRole("link", { name: "Operations" }).click();
    await page.getByText("UNKNOWN", { exact: true }).first().waitFor();
    await page.getByText("Tokens").first().waitFor();
    await picture(page, "operations");
  }, { colorScheme: "light", viewport: { width: 1280, height: 800 } });
});
