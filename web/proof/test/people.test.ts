/** For everybody: with a keyboard alone, with a screen reader, on a phone, in both languages, by day and by night. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { accessible, begun, conversationOf, says, screen, settled, showing } from "../src/console.ts";
import { antiphon, model, opened, until } from "../src/stage.ts";

/** A conversation in which there is something of everything. */
async function everything(page: Page): Promise<void> {
  await begun(page, "Show me code", "Here:\n\n```py\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- [two](https://example.com)").catch(() => {});
  await until(() => screen(page), (seen) => seen.length === 2 && !String(seen[1]).startsWith("preview"));
  model.will((saying) => (saying.think("Let me think."), saying.say("Thought through."), saying.end()));
  await says(page, "Think");
  await until(() => screen(page), (seen) => seen.at(-1)?.endsWith("Thought through.") === true);
  model.will((saying) => saying.call(`axe-${conversationOf(page)}`.slice(0, 40), "time_get_current_time", { timezone: "UTC" }));
  await says(page, "Call a tool");
  await page.getByText("needs your approval").or(page.getByText("需要你的批准")).waitFor();
}

for (const colorScheme of ["light", "dark"] as const) {
  test(`nothing keeps anybody out, on any page: ${colorScheme}`, async () => {
    await opened("/", async (page) => {
      await accessible(page, "the beginning");
      await everything(page);
      await accessible(page, "a conversation");
      await page.getByRole("button", { name: "Whole tree" }).click();
      await accessible(page, "the tree");
      const left = async () => {
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "detached" });
      };
      await left();
      await page.getByRole("button", { name: "No goal" }).click();
      await accessible(page, "the sessions");
      await left();
      await page.getByRole("button", { name: "Conversation menu" }).click();
      await accessible(page, "a menu");
      await page.getByRole("menuitem", { name: "Files and memories" }).click();
      await until(() => page.getByRole("dialog").innerText(), (text) => !text.includes("Loading"));
      await accessible(page, "the knowledge");
      await left();
      await page.keyboard.press("Control+k");
      await page.getByRole("dialog").waitFor();
      await accessible(page, "the palette");
      await left();
      await page.getByRole("button", { name: "Why this answer?" }).first().click();
      const panel = page.getByRole("complementary", { name: "Why this answer?" });
      for (const tab of await panel.getByRole("tab").all()) {
        await tab.click();
        await until(() => panel.innerText(), (text) => !text.includes("Loading"));
        await accessible(page, `why: ${await tab.innerText()}`);
      }
      await page.getByRole("link", { name: "Operations" }).click();
      await page.getByRole("heading", { level: 1 }).waitFor();
      await accessible(page, "operations");
      await page.getByRole("link", { name: "Keys" }).click();
      await accessible(page, "keys");
      await page.keyboard.press("?");
      await accessible(page, "the help");
    }, { colorScheme });
  });
}

test("with a keyboard alone: write, answer again, go between versions, edit, stop, find help", async () => {
  await opened("/", async (page) => {
    const key = (...keys: string[]) => keys.reduce((before, one) => before.then(() => page.keyboard.press(one)), Promise.resolve());
    model.will(
      (saying) => (saying.say("fern one"), saying.end()),
      (saying) => (saying.say("fern two"), saying.end()),
      (saying) => (saying.say("fern three"), saying.end()),
      (saying) => saying.say("fern endless"),
    );
    await page.locator("textarea:focus").waitFor(); // whoever opens the page may write at once
    await page.keyboard.type("Name a plant");
    await key("Enter");
    await showing(page, "Name a plant", "fern one");
    const leave = async () => {
      await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    };
    await leave();
    await key("r");
    await showing(page, "Name a plant", "fern two");
    await key("[");
    await showing(page, "Name a plant", "fern one");
    await key("]");
    await showing(page, "Name a plant", "fern two");
    await key("k", "k");
    await until(() => page.evaluate(() => document.activeElement?.getAttribute("data-row")), (seen) => seen === "0");
    await key("e");
    await page.keyboard.type(" again");
    await key("Enter");
    await showing(page, "Name a plant again", "fern three");
    await leave();
    await key("c");
    await page.keyboard.type("More");
    await key("Enter");
    await until(() => screen(page), (seen) => seen.at(-1) === "preview: fern endless");
    await leave();
    await key("s");
    await until(() => screen(page), (seen) => seen.at(-1) === "stopped: fern endless");
    await leave();
    await key("?");
    await page.getByRole("dialog").waitFor();
    await key("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await key("t");
    await page.getByRole("dialog").getByText("fern one").waitFor();
    await key("Escape");
    await settled(page);
  });
});

test("everything that can be clicked can be reached by Tab, and shows where the keyboard is", async () => {
  await opened("/", async (page) => {
    await begun(page, "Name a moss", "sphagnum");
    const clickable = await page.locator("button:visible:not(:disabled), a[href]:visible, select:visible, textarea:visible, input:visible").count();
    const reached = new Set<string>();
    for (let n = 0; n < clickable + 20; n++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const on = document.activeElement;
        if (on === null || on === document.body) return null;
        const style = getComputedStyle(on);
        const all = [...document.querySelectorAll("*")];
        return { at: String(all.indexOf(on)), seen: style.outlineStyle !== "none" || style.boxShadow !== "none" || style.borderColor !== "", tag: on.outerHTML.slice(0, 80) };
      });
      if (at === null) continue;
      assert.ok(at.seen, at.tag);
      reached.add(at.at);
    }
    assert.ok(reached.size >= clickable - 2, `${reached.size} of ${clickable}`);
  });
});

test("Enter that ends a word of an input method does not send", async () => {
  await opened("/", async (page) => {
    const field = page.getByLabel("Your message", { exact: true });
    await field.focus();
    const session = await page.context().newCDPSession(page);
    await session.send("Input.imeSetComposition", { text: "ni hao", selectionStart: 6, selectionEnd: 6 });
    await field.evaluate((area) => {
      const enter = { key: "Enter", code: "Enter", keyCode: 229, isComposing: true, bubbles: true, cancelable: true };
      area.dispatchEvent(new KeyboardEvent("keydown", enter));
    });
    await session.send("Input.insertText", { text: "你好" });
    assert.equal(await field.inputValue(), "你好");
    assert.equal(conversationOf(page), "");
    await page.keyboard.press("Enter");
    await showing(page, "你好", "Answer to 你好.");
    await settled(page);
  });
});

/** Nothing is wider than the window, and nothing that is clicked is smaller than a finger. */
async function fits(page: Page, where: string): Promise<void> {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${where} is ${wide} px too wide`);
  const small = await page.locator("button:visible, a.entry:visible").evaluateAll((all) =>
    all.filter((one) => {
      const { width, height } = one.getBoundingClientRect();
      return width > 0 && (width < 24 || height < 24);
    }).map((one) => one.outerHTML.slice(0, 80)),
  );
  assert.deepEqual(small, [], where);
}

test("on a phone of 360 px: talk, look at the list, the tree and the reasons", async () => {
  await opened("/", async (page) => {
    await fits(page, "the beginning");
    await begun(page, "Name a lake, please", "a rather long answer of many words that has to break somewhere".repeat(3));
    await fits(page, "a conversation");
    await accessible(page, "a conversation on a phone");
    await page.getByRole("button", { name: "Show conversations" }).click();
    await page.getByRole("link", { name: "Operations" }).waitFor();
    await fits(page, "the list");
    await page.getByRole("button", { name: "Hide conversations" }).click();
    await page.locator(".response").getByRole("button", { name: "Why this answer?" }).click();
    const panel = page.getByRole("complementary", { name: "Why this answer?" });
    await panel.getByRole("tab").nth(2).click();
    await fits(page, "the reasons");
    await panel.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Whole tree" }).click();
    await fits(page, "the tree");
  }, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
});

test("in Chinese no word of English is left over, on any page", async () => {
  await opened("/", async (page) => {
    await page.getByLabel("Language").selectOption("zh");
    assert.equal(await page.evaluate(() => document.documentElement.lang), "zh-CN");
    const english = async (where: string) => {
      const said = await page.evaluate(() => {
        const seen: string[] = [];
        const ours = (element: Element | null) => element?.closest(".words, .entry-title, .top-title, code, pre, .mono, select.model, option, .brand, kbd, time, .call-card, .inspector pre, .tabular") === null;
        const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        for (let node = walk.nextNode(); node !== null; node = walk.nextNode()) if (ours(node.parentElement)) seen.push(node.textContent ?? "");
        for (const one of document.querySelectorAll("[aria-label], [placeholder], [title]")) {
          if (ours(one)) seen.push(one.getAttribute("aria-label") ?? "", one.getAttribute("placeholder") ?? "", one.getAttribute("title") ?? "");
        }
        return seen.filter((text) => /[A-Za-z]{4,}/.test(text) && !/\p{Script=Han}/u.test(text));
      });
      assert.deepEqual(said.filter((text) => !/^(Antiphon|played|other|rehearsal|local|English)/.test(text.trim())), [], where);
    };
    await english("the beginning");
    await page.getByLabel("你的消息", { exact: true }).fill("说一种鸟");
    await page.keyboard.press("Enter");
    await until(() => screen(page), (seen) => seen.at(-1) === "Answer to 说一种鸟.");
    await english("a conversation");
    await page.getByRole("button", { name: "整棵树" }).click();
    await english("the tree");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "运维" }).click();
    await page.getByRole("heading", { level: 1 }).waitFor();
    await english("operations");
    await page.reload(); // the choice is kept
    await page.getByRole("link", { name: "运维" }).waitFor();
  });
  assert.ok(antiphon.url !== "");
});
