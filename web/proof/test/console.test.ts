/** Every action of the console, by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { accessible, begun, conversationOf, line, neverSent, rows, says, screen, settled, showing } from "../src/console.ts";
import { gate } from "../src/model.ts";
import { antiphon, model, opened, until } from "../src/stage.ts";

test("an answer is shown as a preview, lighter, and then as saved", async () => {
  await opened("/", async (page) => {
    const go = gate();
    model.will(async (saying) => {
      saying.say("heron ");
      await go.passed;
      saying.say("stands");
      saying.end();
    });
    await says(page, "Name a bird");
    await showing(page, "waiting: Name a bird", "preview: heron");
    await page.getByText("not saved yet").waitFor();
    const faint = await page.locator("[data-ink=preview] .words p").evaluate((p) => getComputedStyle(p).color);
    go.open();
    await showing(page, "Name a bird", "heron stands");
    const solid = await page.locator(".response[data-ink=saved] .words p").evaluate((p) => getComputedStyle(p).color);
    assert.notEqual(faint, solid);
    await settled(page);
    neverSent("heron");
  });
});

test("stop is a call; what was shown stays, as stopped, and can be kept", async () => {
  await opened("/", async (page) => {
    model.will((saying) => saying.say("otters swim"));
    await says(page, "Name a mammal");
    await showing(page, "waiting: Name a mammal", "preview: otters swim");
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await until(() => screen(page), (seen) => seen.at(-1) === "stopped: otters swim");
    assert.deepEqual(await line(conversationOf(page)), ["Name a mammal"]);
    await page.getByRole("button", { name: "Keep this text" }).click();
    await until(() => line(conversationOf(page)), (saved) => saved.at(-1) === "otters swim");
    await until(() => screen(page), (seen) => seen.includes("otters swim"));
    neverSent("otters");
  });
});

test("an edit and another answer stand beside the first, and the arrows go between them", async () => {
  await opened("/", async (page) => {
    await begun(page, "Name a tree", "birch one");
    model.will((saying) => (saying.say("birch two"), saying.end()));
    await page.locator(".response").getByRole("button", { name: "Answer again", exact: true }).click();
    await showing(page, "Name a tree", "birch two");
    await page.getByText("Version 2 of 2").waitFor({ state: "attached" });
    await page.getByRole("button", { name: "Previous version" }).click();
    await showing(page, "Name a tree", "birch one");
    await page.reload(); // which version is looked at is kept by the server
    await showing(page, "Name a tree", "birch one");
    model.will((saying) => (saying.say("birch three"), saying.end()));
    await page.locator(".call").getByRole("button", { name: "Edit", exact: true }).click();
    const field = page.getByLabel("New version of your message");
    await field.fill("Name another tree");
    await field.press("Enter");
    await showing(page, "Name another tree", "birch three");
    await settled(page);
    await page.locator(".call").getByRole("button", { name: "Previous version" }).click();
    await until(() => screen(page), (seen) => seen[0] === "Name a tree");
    await settled(page);
    assert.deepEqual(JSON.parse(model.requests.at(-1) ?? "").messages.map((one: { content: string }) => one.content), ["Name another tree"]);
    neverSent("birch");
  });
});

test("the whole tree: every version is there, and one is chosen", async () => {
  await opened("/", async (page) => {
    await begun(page, "Name a stone", "flint one");
    model.will((saying) => (saying.say("flint two"), saying.end()));
    await page.locator(".response").getByRole("button", { name: "Answer again", exact: true }).click();
    await showing(page, "Name a stone", "flint two");
    await page.getByRole("button", { name: "Whole tree" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("flint two").waitFor();
    await dialog.getByText("flint one").click();
    await showing(page, "Name a stone", "flint one");
    await settled(page);
  });
});

test("fork, rename, search in Chinese, export, delete", async () => {
  await opened("/", async (page) => {
    await begun(page, "鲸鱼住在哪里？", "海里");
    const first = conversationOf(page);
    const foot = page.locator(".response");
    await foot.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name: "Fork from here" }).click();
    await until(() => conversationOf(page), (now) => now !== first && now !== "");
    await showing(page, "鲸鱼住在哪里？", "海里");
    await page.locator(".top-title button").click();
    await page.getByRole("textbox", { name: "Title", exact: true }).fill("Whales");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("navigation").getByText("Whales").waitFor();
    await page.getByLabel("Search titles and texts").fill("鲸鱼");
    await until(() => page.getByRole("navigation").locator("a.entry").count(), (count) => count === 2);
    await page.getByLabel("Search titles and texts").fill("nowhere-at-all");
    await page.getByText("Nothing holds “nowhere-at-all”.").waitFor();
    await page.getByLabel("Search titles and texts").fill("");
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "Conversation menu" }).click();
    await page.getByRole("menuitem", { name: "Export" }).click();
    assert.match((await saving).suggestedFilename(), /\.jsonl$/);
    await page.getByRole("button", { name: "Conversation menu" }).click();
    await page.getByRole("menuitem", { name: "Delete conversation" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete conversation" }).click();
    await until(() => page.url(), (url) => !url.includes("/c/"));
    await assert.rejects(antiphon.api("GET", `/conversations/${first}x`), /404/);
  });
});

test("a message is deleted: it leaves the line, and says first what goes with it", async () => {
  await opened("/", async (page) => {
    await begun(page, "Name a fish", "perch");
    await page.locator(".response").getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.getByRole("dialog").getByText("left out of every line").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await showing(page, "Name a fish");
    await settled(page);
  });
});

for (const [decision, outcome] of [["Approve", "done"], ["Refuse", "failed"]] as const) {
  test(`a tool call waits until a person decides: ${decision.toLowerCase()}`, async () => {
    await opened("/", async (page) => {
      model.will(
        (saying) => saying.call(`console-${decision}`, "time_get_current_time", { timezone: "UTC" }),
        (saying) => (saying.say("Understood."), saying.end()),
      );
      await says(page, "What time is it?");
      const card = page.locator(".call-card");
      await card.getByText("needs your approval").waitFor();
      await card.getByRole("button", { name: decision, exact: true }).click();
      if (decision === "Refuse") await card.getByRole("button", { name: decision, exact: true }).click();
      await card.getByText(outcome, { exact: true }).waitFor();
      await until(() => screen(page), (seen) => seen.at(-1)?.endsWith("Understood.") === true);
    });
  });
}

test("a file goes with a message, and a long one is sent whole", async () => {
  await opened("/", async (page) => {
    await page.locator("input[type=file]").setInputFiles({ name: "note.png", mimeType: "image/png", buffer: Buffer.from(PIXEL, "base64") });
    await page.getByRole("button", { name: "Remove image/png" }).waitFor();
    await says(page, "What is this?");
    await until(() => screen(page), (seen) => seen.length === 2 && !seen[1]?.startsWith("preview"));
    assert.ok(model.requests.at(-1)?.includes(PIXEL));
    assert.equal(await page.locator(".call img").count(), 1);
  });
});

test("text that is taken back leaves the answer, and a line says so that opens", async () => {
  await opened("/", async (page) => {
    const [seen, go] = [gate(), gate()];
    model.will(
      async (saying) => {
        saying.say("zebra stripes");
        await seen.passed;
        saying.cut();
      },
      async (saying) => {
        await go.passed;
        saying.say("plain horse");
        saying.end();
      },
    );
    await says(page, "Name an animal");
    await until(() => screen(page), (now) => now.at(-1) === "preview: zebra stripes");
    seen.open();
    await page.locator("details.withdrawn").waitFor();
    assert.ok(!(await rows(page)).some((row) => row.text.includes("zebra") && row.kind !== "withdrawn"));
    go.open();
    await until(() => screen(page), (now) => now.at(-1) === "plain horse" || now.includes("plain horse"));
    await settled(page);
    await page.locator("details.withdrawn summary").click();
    await page.getByText("zebra stripes").waitFor();
    neverSent("zebra", "horse");
  });
});

test("operations count what was taken back", async () => {
  await opened("/operations", async (page) => {
    const figure = page.locator("dl.figures > div", { hasText: "Previews taken back" });
    const before = Number(await figure.locator("dd").first().innerText());
    model.will(
      async (saying) => {
        saying.say("ibex");
        await new Promise((done) => setTimeout(done, 300));
        saying.cut();
      },
      (saying) => (saying.say("goat"), saying.end()),
    );
    const { id } = await antiphon.api<{ id: string }>("POST", "/conversations", {});
    await antiphon.api("POST", `/conversations/${id}/messages`, { content: "Name one" });
    await until(() => figure.locator("dd").first().innerText(), (now) => Number(now) === before + 1);
  });
});

/** Ask a provider that takes the request and dies: what it works on in the background may still come to something. */
async function unsure(page: Page, question: string): Promise<string> {
  model.dies = 1;
  await page.getByLabel("Model", { exact: true }).selectOption("kept");
  await says(page, question);
  await page.getByRole("group", { name: "Nobody knows whether the provider answered." }).waitFor();
  return conversationOf(page);
}

test("the list says of each conversation whether it is being answered, waits for a person, or nobody knows", async () => {
  await opened("/", async (page) => {
    const list = page.getByRole("navigation");
    await unsure(page, "Name a coast");
    await list.getByRole("link", { name: "Name a coast" }).getByRole("img", { name: "outcome unknown" }).waitFor();
    await list.getByRole("link", { name: "New conversation" }).click();
    model.will((saying) => saying.call("listed", "time_get_current_time", { timezone: "UTC" }));
    await says(page, "What time is it there?");
    await list.getByRole("link", { name: "What time is it there?" }).getByRole("img", { name: "waits for you" }).waitFor();
    await list.getByRole("link", { name: "New conversation" }).click();
    model.will((saying) => saying.say("slowly"));
    await says(page, "Name a bay");
    await list.getByRole("link", { name: "Name a bay" }).getByRole("img", { name: "being answered" }).waitFor();
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await until(() => list.getByRole("link", { name: "Name a bay" }).getByRole("img").count(), (count) => count === 0);
    assert.equal(await list.getByRole("img", { name: "outcome unknown" }).count(), 1);
    await list.getByRole("link", { name: "Name a coast" }).click();
    await page.getByRole("group", { name: "Nobody knows whether the provider answered." }).getByRole("button", { name: "Stop waiting" }).click();
    await list.getByRole("img", { name: "outcome unknown" }).waitFor({ state: "detached" });
  });
});

test("an edited message asks the model that was asked before, unless another one is chosen", async () => {
  await opened("/", async (page) => {
    await page.getByLabel("Model", { exact: true }).selectOption("other");
    await begun(page, "Name a hill", "Brocken");
    await page.locator(".call").getByRole("button", { name: "Edit", exact: true }).click();
    const editor = page.locator("form[data-editing]");
    assert.equal(await editor.getByLabel("Model", { exact: true }).inputValue(), "other");
    await editor.getByRole("textbox").fill("Name a higher hill");
    await editor.getByRole("textbox").press("Enter");
    await showing(page, "Name a higher hill", "Answer to Name a higher hill.");
    const asked = () => (JSON.parse(model.requests.at(-1) ?? "") as { model: string }).model;
    assert.equal(asked(), "played-2");
    await page.locator(".call").getByRole("button", { name: "Edit", exact: true }).click();
    await editor.getByLabel("Model", { exact: true }).selectOption({ label: "played" });
    await editor.getByRole("textbox").fill("Name the highest");
    await editor.getByRole("textbox").press("Enter");
    await showing(page, "Name the highest", "Answer to Name the highest.");
    assert.equal(asked(), "played-1");
  });
});

test("nobody knows whether a request was carried out: operations say so, and a person who knows that it ended says how", async () => {
  await opened("/", async (page) => {
    const conversation = await unsure(page, "Name a capital");
    const asked = model.requests.length;
    await page.getByRole("link", { name: "Operations" }).click();
    const list = page.getByRole("region", { name: "Outcome unknown" });
    const card = list.getByRole("listitem");
    await card.getByText("UNKNOWN", { exact: true }).waitFor();
    const age = await card.getByText(/ old$/).innerText();
    await until(() => card.getByText(/ old$/).innerText(), (now) => now !== age); // it is live
    await card.getByText("What comes next: wait for its deadline").waitFor();
    // Nothing is offered that would send it again, or that is not proven.
    assert.deepEqual(await card.getByRole("button").allInnerTexts(), ["It has ended: I know it", "Stop waiting"]);
    assert.equal(model.requests.length, asked);
    await card.getByRole("button", { name: "It has ended: I know it" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("How do you know?").fill("their status page says so");
    await dialog.getByRole("button", { name: "It has ended: I know it" }).click();
    await list.getByText("Nothing: every dispatch has a known outcome.").waitFor();
    await page.getByRole("link", { name: "Name a capital" }).or(page.locator(`a[href$="${conversation}"]`)).first().click();
    const outcome = page.getByRole("group", { name: "No answer" });
    await outcome.getByRole("button", { name: "What happened?" }).click();
    const panel = page.getByRole("complementary", { name: "Why this answer?" });
    await panel.getByText("their status page says so").waitFor(); // it is kept as the proof
    assert.equal(model.requests.length, asked); // and nothing was sent because of it
    await outcome.getByRole("button", { name: "Try again" }).click();
    await until(() => screen(page), (seen) => seen.at(-1) === "The capital of Norway is Oslo.");
    await settled(page);
  });
});

test("nobody knows whether a request was carried out, and a person stops waiting: nothing is sent again", async () => {
  await opened("/", async (page) => {
    await unsure(page, "Name another capital");
    const asked = model.requests.length;
    await page.getByRole("link", { name: "Operations" }).click();
    const list = page.getByRole("region", { name: "Outcome unknown" });
    await list.getByRole("button", { name: "Stop waiting" }).click();
    await list.getByText("Nothing: every dispatch has a known outcome.").waitFor();
    assert.equal(model.requests.length, asked);
  });
});

test("a message that is sent while another is answered waits its turn", async () => {
  await opened("/", async (page) => {
    const go = gate();
    model.will(async (saying) => {
      saying.say("slow");
      await go.passed;
      saying.end();
    });
    await says(page, "First");
    await showing(page, "waiting: First", "preview: slow");
    await says(page, "Second");
    await page.getByText("Next in turn").waitFor();
    go.open();
    await showing(page, "First", "slow", "Second", "Answer to Second.");
    await settled(page);
  });
});

test("why this answer: its attempts in time, its prompt, the exact request, and all that is recorded", async () => {
  await opened("/", async (page) => {
    await begun(page, "Name a metal", "copper");
    await page.locator(".response").getByRole("button", { name: "Why this answer?" }).click();
    const panel = page.getByRole("complementary", { name: "Why this answer?" });
    const views: readonly (readonly [string, RegExp])[] = [
      ["Timeline", /COMMITTED/],
      ["Prompt", /Name a metal|transcript/i],
      ["Request", /Name a metal/],
      ["Record", /op_/],
    ];
    assert.equal(await panel.getByRole("tab").count(), views.length);
    // 2 tokens at 2.5 dollars a million, 8 from the cache at 1.25, and 5 written at 10.
    const taken = await until(() => panel.locator("dl.summary").innerText(), (text) => text.includes("$"));
    assert.match(taken, /10 in, 5 out\s+8 from the cache \(80%\)/);
    assert.match(taken, /\$0\.000065\s+at the prices of the configuration/);
    for (const [at, [, wanted]] of views.entries()) {
      await panel.getByRole("tab").nth(at).click();
      await until(() => panel.innerText(), (text) => wanted.test(text));
    }
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "detached" });
  });
});

test("a provider's own words stand beside the attempt that failed", async () => {
  await opened("/", async (page) => {
    model.will((saying) => saying.fail("gnus are <b>not</b> supported", "invalid_request_error"));
    await says(page, "Name a gnu");
    await page.getByRole("group", { name: "No answer" }).getByRole("button", { name: "What happened?" }).click();
    const panel = page.getByRole("complementary", { name: "Why this answer?" });
    await panel.getByText("The reason given:", { exact: false }).waitFor();
    assert.equal(await panel.locator("q").innerText(), "gnus are <b>not</b> supported");
    await accessible(page, "a failed attempt with its provider's words");
  });
});

test("why this answer: the request as a command, and what is new in it since the one before", async () => {
  await opened("/", async (page) => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await begun(page, "Name an ore", "galena");
    model.will((saying) => (saying.say("cinnabar"), saying.end()));
    await says(page, "And another");
    await showing(page, "Name an ore", "galena", "And another", "cinnabar");
    await page.locator(".response").last().getByRole("button", { name: "Why this answer?" }).click();
    const panel = page.getByRole("complementary", { name: "Why this answer?" });
    await panel.getByRole("tab", { name: "Request" }).click();
    await panel.getByRole("button", { name: "Copy as curl" }).click();
    const command = await until(() => page.evaluate(() => navigator.clipboard.readText()), (text) => text !== "");
    assert.ok(command.startsWith("curl ") && command.includes(`${model.url}/v1/chat/completions`));
    assert.ok(command.replaceAll("'\\''", "'").includes(model.requests.at(-1) ?? "-"), command); // the bytes that had left
    assert.doesNotMatch(command, /bearer/i);
    await panel.getByLabel("Compare with the request before").check();
    const added = panel.locator("[data-sign='+']");
    await until(() => added.allInnerTexts(), (lines) => lines.some((line) => line.includes("And another")));
    assert.ok((await added.allInnerTexts()).every((line) => !line.includes("Name an ore")));
  });
});

test("a session with a goal begins, and the switch is taken back with what was said since", async () => {
  await opened("/", async (page) => {
    await begun(page, "Name a river", "Loire");
    await page.locator(".top button", { hasText: "No goal" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Its goal, in one sentence; empty for none").fill("Plan the trip");
    await dialog.getByRole("button", { name: "Begin a new session" }).click();
    const divider = page.getByRole("region", { name: "A new session begins" });
    await divider.getByText("Plan the trip").waitFor();
    await divider.getByText("since you asked for it").waitFor();
    await says(page, "How do we get there?");
    await until(() => screen(page), (seen) => seen.at(-1) === "Answer to How do we get there?.");
    await divider.getByRole("button", { name: "Undo" }).click();
    await divider.waitFor({ state: "detached" });
    await showing(page, "Name a river", "Loire", "How do we get there?", "Answer to How do we get there?.");
    await settled(page);
  });
});

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
