/** Pages that know nothing of Antiphon but a URL. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { gate } from "../src/model.ts";
import { model, opened, proxy, until } from "../src/stage.ts";

const shown = (page: Page) =>
  page.locator("section").evaluateAll((all) => all.map((one) => `${one.getAttribute("data-role")}: ${[...one.querySelectorAll("p")].map((p) => p.textContent).join("|")}`));

const says = async (page: Page, text: string) => {
  await page.getByLabel("Message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
};

const showing = (page: Page, ...wanted: string[]) => until(() => shown(page), (seen) => JSON.stringify(seen) === JSON.stringify(wanted));

test("useChat: a message, another answer, an edit; then the page is loaded anew", async () => {
  await opened("/pages/usechat.html?id=w1", async (page) => {
    model.will(
      (saying) => (saying.say("Ship "), saying.say("one"), saying.end()),
      (saying) => (saying.say("Ship two"), saying.end()),
      (saying) => (saying.say("Ship three"), saying.end()),
    );
    await says(page, "Name a ship");
    await showing(page, "user: Name a ship", "assistant: Ship one");
    await page.getByRole("button", { name: "Regenerate" }).click();
    await showing(page, "user: Name a ship", "assistant: Ship two");
    await page.getByRole("button", { name: "Edit" }).click();
    await showing(page, "user: Name a ship, again", "assistant: Ship three");
    await page.reload();
    await showing(page, "user: Name a ship, again", "assistant: Ship three");
  });
});

test("useChat: text that is taken back leaves the screen, and no page sends it as history", async () => {
  await opened("/pages/usechat.html?id=w2", async (page) => {
    const [told, go] = [gate(), gate()];
    model.will(
      async (saying) => {
        saying.say("zebra stripes");
        await told.passed;
        saying.cut();
      },
      async (saying) => {
        await go.passed;
        saying.say("plain horse");
        saying.end();
      },
    );
    await says(page, "Name an animal");
    await showing(page, "user: Name an animal", "assistant: zebra stripes");
    told.open();
    await until(() => shown(page), (seen) => !seen.join().includes("zebra"));
    go.open();
    await showing(page, "user: Name an animal", "assistant: plain horse");
    await says(page, "Another");
    await until(() => shown(page), (seen) => seen.at(-1) === "assistant: Answer to Another.");
    assert.ok(!model.requests.at(-1)?.includes("zebra"));
    assert.ok(model.requests.at(-1)?.includes("plain horse"));
  });
});

test("useChat: loaded anew in the middle of an answer, it goes on; stop is a call", async () => {
  await opened("/pages/usechat.html?id=w3", async (page) => {
    const go = gate();
    model.will(async (saying) => {
      saying.say("first half, ");
      await go.passed;
      saying.say("second half");
      saying.end();
    });
    await says(page, "Tell me");
    await showing(page, "user: Tell me", "assistant: first half, ");
    await page.reload();
    await showing(page, "user: Tell me", "assistant: first half, ");
    go.open();
    await showing(page, "user: Tell me", "assistant: first half, second half");
    model.will((saying) => saying.say("endless"));
    await says(page, "And then?");
    await until(() => shown(page), (seen) => seen.at(-1) === "assistant: endless");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.locator("[data-status=ready]").waitFor({ state: "attached" });
    await showing(page, "user: Tell me", "assistant: first half, second half", "user: And then?", "assistant: endless");
  });
});

for (const [button, after] of [["Approve", "output-available"], ["Refuse", "output-denied"]] as const) {
  test(`useChat: ${button.toLowerCase()} a tool call`, async () => {
    await opened(`/pages/usechat.html?id=w4-${button}`, async (page) => {
      model.will(
        (saying) => saying.call(`call-${button}`, "time_get_current_time", { timezone: "UTC" }),
        (saying) => (saying.say("Understood."), saying.end()),
      );
      await says(page, "What time is it?");
      await page.getByRole("button", { name: button }).click();
      await until(() => shown(page), (seen) => seen.at(-1)?.endsWith("Understood.") === true);
      await page.locator(`[data-tool=${after}]`).waitFor();
    });
  });
}

test("useChat: a page that cannot take back what it showed is shown whole answers", async () => {
  await opened("/pages/usechat.html?id=w5&committed", async (page) => {
    const go = gate();
    model.will(async (saying) => {
      saying.say("half");
      await go.passed;
      saying.say(" and whole");
      saying.end();
    });
    await says(page, "Tell me");
    await page.locator("[data-status=submitted]").waitFor({ state: "attached" });
    go.open();
    await showing(page, "user: Tell me", "assistant: half and whole");
  });
});

test("assistant-ui: a message, another answer, and the arrows between them", async () => {
  await opened("/pages/assistant.html", async (page) => {
    model.will(
      (saying) => (saying.say("Ship one"), saying.end()),
      (saying) => (saying.say("Ship two"), saying.end()),
    );
    await says(page, "Name a ship");
    const answer = page.locator("[data-role=assistant]");
    await answer.getByText("Ship one").waitFor();
    await page.getByRole("button", { name: "Regenerate" }).click();
    await answer.getByText("Ship two").waitFor();
    await page.getByRole("button", { name: "Previous" }).click();
    await answer.getByText("Ship one").waitFor();
    await says(page, "More of this one");
    await page.getByText("Answer to More of this one.").waitFor();
    assert.deepEqual(said(model.requests.at(-1) ?? ""), ["Name a ship", "Ship one", "More of this one"]);
  });
  assert.ok(proxy.bodies.length > 0);
});

function said(request: string): string[] {
  return (JSON.parse(request) as { messages: { content: string }[] }).messages.map((message) => message.content);
}
