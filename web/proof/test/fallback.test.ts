/** The page that is served where no console was built: a person can still talk, and is told the truth. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { BrowserContextOptions, Page } from "playwright-core";
import { accessible, untilted } from "../src/console.ts";
import { gate } from "../src/model.ts";
import { Antiphon } from "../src/server.ts";
import { antiphon, model, opened, proxy, until } from "../src/stage.ts";

let bare: Antiphon;

before(async () => {
  bare = new Antiphon(model.url, { bare: true });
  await bare.start();
});
after(() => bare.close());

async function visited(use: (page: Page) => Promise<void>, options: BrowserContextOptions = {}): Promise<void> {
  proxy.target = () => bare.url;
  try {
    await opened("/", use, options);
  } finally {
    proxy.target = () => antiphon.url;
  }
}

const line = (page: Page) => page.locator("#line li").allInnerTexts();

test("without the bundle there is a page that talks, stops, and says what is not saved", async () => {
  await visited(async (page) => {
    await page.getByText("The full console was not built here").waitFor();
    await accessible(page, "the beginning");
    const go = gate();
    model.will(async (saying) => {
      saying.say("dunlin ");
      await go.passed;
      saying.say("wades");
      saying.end();
    });
    await page.getByLabel("Your message").fill("Name a wader");
    await page.getByRole("button", { name: "Send" }).click();
    const preview = page.locator("#preview");
    await until(() => preview.innerText(), (text) => text === "dunlin ");
    assert.equal(await preview.evaluate((element) => getComputedStyle(element, "::after").content), '" (not saved yet)"');
    assert.deepEqual(await line(page), ["Name a wader"]);
    await page.reload(); // the answer is the server's, and goes on
    await until(() => preview.innerText(), (text) => text === "dunlin ");
    go.open();
    await until(() => line(page), (seen) => seen.at(-1) === "dunlin wades");
    assert.ok(await preview.isHidden());
    await accessible(page, "a conversation");

    model.will((saying) => saying.say("endless"));
    await page.getByLabel("Your message").fill("Name more");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText("canceled").waitFor();
    assert.ok(await page.getByRole("button", { name: "Stop" }).isHidden());
    await until(() => line(page), (seen) => seen.at(-1) === "Name more");
    assert.ok(!proxy.bodies.some((body) => body.includes("dunlin")));
  });
});

test("without the bundle, what could not be sent is sent once", async () => {
  await visited(async (page) => {
    await page.getByLabel("Your message").fill("Begin");
    await page.getByRole("button", { name: "Send" }).click();
    await until(() => line(page), (seen) => seen.at(-1) === "Answer to Begin.");
    // The server takes it, and its answer is lost.
    await page.route(/\/messages$/, async (route) => {
      await route.fetch();
      await route.abort();
    }, { times: 1 });
    await page.getByLabel("Your message").fill("Once");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("Not sent").or(page.getByText("Answer to Once.")).first().waitFor();
    await page.getByRole("button", { name: "Send" }).click();
    await until(() => page.getByLabel("Your message").inputValue(), (text) => text === "");
    await until(() => line(page), (seen) => seen.at(-1) === "Answer to Once.");
    assert.deepEqual(await line(page), ["Begin", "Answer to Begin.", "Once", "Answer to Once."]);
  });
});

test("without the bundle: in Chinese, on a phone, by night", async () => {
  await visited(async (page) => {
    await page.getByLabel("你的消息").fill("一".repeat(80));
    await page.getByRole("button", { name: "发送" }).click();
    await until(() => line(page), (seen) => seen.length === 2);
    assert.equal(await page.evaluate(() => document.documentElement.lang), "zh-CN");
    await accessible(page, "a phone");
    await untilted(page);
  }, { locale: "zh-CN", colorScheme: "dark", viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
});
