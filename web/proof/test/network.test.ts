/** Whatever a network, a tab or a server does: afterwards the screen is what the server has. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { begun, conversationOf, neverSent, says, screen, settled, showing } from "../src/console.ts";
import { gate, type Saying } from "../src/model.ts";
import { antiphon, model, opened, proxy, until } from "../src/stage.ts";

/** Say these words one by one, each after the one before has had the time to be seen. */
const words = (...all: string[]) => async (saying: Saying) => {
  for (const word of all) {
    saying.say(word);
    await new Promise((done) => setTimeout(done, 30));
  }
  saying.end();
};

const TALE = ["gnu ", "walks ", "over ", "the ", "wide ", "plain ", "and ", "drinks ", "at ", "dusk"];

test("the network cut at random bytes, again and again", async () => {
  await opened("/", async (page) => {
    let drawn = 20261130;
    const bytes = () => (drawn = (Math.imul(drawn, 1103515245) + 12345) >>> 1) % 900;
    await begun(page, "Begin", "ready");
    for (let round = 0; round < 4; round++) {
      proxy.cuts.push(...Array.from({ length: 6 }, bytes));
      proxy.cutAll();
      model.will(words(...TALE));
      await says(page, `Tell tale ${round}`);
      await until(() => screen(page), (seen) => seen.at(-2) === `Tell tale ${round}` && seen.at(-1) === TALE.join(""));
      await settled(page);
    }
    neverSent("gnu", "dusk");
  });
});

test("frames that come twice, and in another order", async () => {
  await opened("/", async (page) => {
    await begun(page, "Begin", "ready");
    let held: string | null = null;
    let count = 0;
    proxy.mangle = (frame) => {
      count++;
      if (frame.startsWith(":")) return [frame];
      if (held !== null) {
        const late = held;
        held = null;
        return [frame, frame, late];
      }
      if (count % 5 === 0 && !frame.includes("run.changed")) {
        held = frame; // it comes after the next one, and of a run there is always one more
        return [];
      }
      return [frame, frame];
    };
    proxy.cutAll();
    for (let round = 0; round < 3; round++) {
      model.will(words(...TALE));
      await says(page, `Tell tale ${round}`);
      await until(() => screen(page), (seen) => seen.at(-2) === `Tell tale ${round}` && seen.at(-1) === TALE.join(""));
    }
    proxy.mangle = null;
    proxy.cutAll();
    await settled(page);
    assert.ok(count > 30);
    neverSent("gnu", "dusk");
  });
});

test("the network is gone for a while, and what was written meanwhile is sent once", async () => {
  await opened("/", async (page) => {
    await begun(page, "Begin", "ready");
    proxy.down = true;
    proxy.cutAll();
    await says(page, "Written offline");
    await page.getByText("Sending…").waitFor();
    await page.getByText("Reconnecting. What was saved stays.").waitFor();
    proxy.down = false;
    await until(() => screen(page), (seen) => seen.at(-1) === "Answer to Written offline.");
    await settled(page);
    const { messages } = await antiphon.api<{ messages: unknown[] }>("GET", `/conversations/${conversationOf(page)}/tree`);
    assert.equal(messages.length, 4);
  });
});

test("two tabs are in step, previews and decisions included", async () => {
  await opened("/", async (page) => {
    await begun(page, "Begin", "ready");
    const other = await page.context().newPage();
    await other.goto(page.url());
    await showing(other, "Begin", "ready");
    const go = gate();
    model.will(async (saying) => {
      saying.say("lynx ");
      await go.passed;
      saying.say("waits");
      saying.end();
    });
    await says(page, "Go on");
    for (const tab of [page, other]) await until(() => screen(tab), (seen) => seen.at(-1) === "preview: lynx");
    go.open();
    for (const tab of [page, other]) await showing(tab, "Begin", "ready", "Go on", "lynx waits");
    model.will((saying) => saying.say("endless"));
    await says(other, "And on");
    await until(() => screen(page), (seen) => seen.at(-1) === "preview: endless");
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    for (const tab of [page, other]) await until(() => screen(tab), (seen) => seen.at(-1) === "stopped: endless");
    neverSent("lynx", "endless");
  });
});

test("seven tabs see the same answer over one connection, and go on when the tab that held it is closed", async () => {
  await opened("/", async (page) => {
    await begun(page, "Begin", "ready");
    const tabs = [page];
    // A browser opens six connections to a host: with one a tab, the seventh would be told nothing.
    while (tabs.length < 7) {
      const tab = await page.context().newPage();
      await tab.goto(page.url());
      await showing(tab, "Begin", "ready");
      tabs.push(tab);
    }
    const [more, end] = [gate(), gate()];
    model.will(async (saying) => {
      saying.say("storks ");
      await more.passed;
      saying.say("travel ");
      await end.passed;
      saying.say("south");
      saying.end();
    });
    await says(tabs[6] as Page, "Go on");
    for (const tab of tabs) await until(() => screen(tab), (seen) => seen.at(-1) === "preview: storks");
    assert.equal(proxy.streams, 1);
    const [first, ...left] = tabs;
    await first?.close();
    more.open();
    for (const tab of left) await until(() => screen(tab), (seen) => seen.at(-1) === "preview: storks travel");
    assert.equal(proxy.streams, 1);
    end.open();
    for (const tab of left) await showing(tab, "Begin", "ready", "Go on", "storks travel south");
    for (const tab of left) await settled(tab);
    neverSent("storks", "south");
  });
});

test("more than a hundred conversations in one browser: a hundred share a stream, and the next one is told as well", async () => {
  await opened("/", async (page) => {
    await begun(page, "Begin", "ready");
    const rooms = await Promise.all(Array.from({ length: 99 }, () => antiphon.api<{ id: string }>("POST", "/conversations", {})));
    // What 99 further tabs would say to the one that fetches.
    await page.evaluate((ids) => {
      const channel = new BroadcastChannel("antiphon /antiphon/v1");
      ids.forEach((of, at) => channel.postMessage({ say: "join", of, id: `tab_${at}`, after: 0 }));
    }, rooms.map(({ id }) => id));
    const followed = () => [...proxy.newest.matchAll(/conv_\w+/g)].map(([name]) => name);
    await until(followed, (seen) => seen.length === 100);
    const late = await page.context().newPage();
    await late.goto(new URL("/", page.url()).href);
    for (const tab of [late, page]) {
      model.will(words(...TALE));
      await says(tab, "Tell a tale");
      await until(() => screen(tab), (seen) => seen.at(-1) === TALE.join(""));
      await settled(tab);
    }
    assert.equal(proxy.streams, 1);
    assert.equal(followed().length, 100);
    assert.ok(!followed().includes(conversationOf(late)));
    neverSent("gnu", "dusk");
  });
});

test("eight tabs with a conversation each need one connection, and none of them is kept waiting", async () => {
  await opened("/", async (page) => {
    const animals = ["auk", "boa", "cod", "doe", "eel", "fox", "gnu", "hen"];
    const tabs = [page];
    while (tabs.length < animals.length) tabs.push(await page.context().newPage());
    for (const [at, tab] of tabs.entries()) {
      await tab.goto(new URL("/", page.url()).href);
      await begun(tab, `Begin ${at}`, "ready");
    }
    assert.equal(proxy.streams, 1);
    const followed = [...proxy.newest.matchAll(/conv_\w+/g)].map(([name]) => name);
    assert.deepEqual(followed.sort(), tabs.map(conversationOf).sort());
    const end = gate();
    for (const [at, tab] of tabs.entries()) {
      model.will(async (saying) => {
        saying.say(`${animals[at]} hears `);
        await end.passed;
        saying.say("rain");
        saying.end();
      });
      await says(tab, "Go on");
      await until(() => screen(tab), (seen) => seen.at(-1) === `preview: ${animals[at]} hears`);
    }
    assert.equal(proxy.streams, 1);
    // Who looks at another conversation is told of that one, over the same connection, from its beginning.
    await tabs[1]?.goto(tabs[7]?.url() ?? "");
    await until(() => screen(tabs[1] as Page), (seen) => seen.at(-1) === "preview: hen hears");
    await tabs[0]?.close(); // it was the one that fetched
    end.open();
    for (const [at, tab] of tabs.entries()) {
      const animal = at === 1 ? "hen" : animals[at];
      if (at > 0) await showing(tab, `Begin ${at === 1 ? 7 : at}`, "ready", "Go on", `${animal} hears rain`);
    }
    assert.equal(proxy.streams, 1);
    // One that is gone says so in its own tab; the others are followed on.
    await antiphon.api("DELETE", `/conversations/${conversationOf(tabs[2] as Page)}`);
    await tabs[2]?.reload();
    await tabs[2]?.getByRole("heading", { name: "There is no such conversation." }).waitFor();
    await says(tabs[3] as Page, "And on");
    await until(() => screen(tabs[3] as Page), (seen) => seen.at(-1) === "Answer to And on.");
    for (const tab of tabs.slice(3)) await settled(tab);
    neverSent(...animals);
  });
});

/** Stop everything that a page does, as a browser does with a tab in the background; then let it go on. */
async function frozen(page: Page, meanwhile: () => Promise<void>): Promise<void> {
  const session = await page.context().newCDPSession(page);
  await session.send("Page.setWebLifecycleState", { state: "frozen" });
  await meanwhile();
  await session.send("Page.setWebLifecycleState", { state: "active" });
  await session.detach();
}

test("a tab that was frozen in the middle of an answer", async () => {
  await opened("/", async (page) => {
    await begun(page, "Begin", "ready");
    const go = gate();
    model.will(async (saying) => {
      saying.say("mole ");
      await go.passed;
      saying.say("digs");
      saying.end();
    });
    await says(page, "Go on");
    await until(() => screen(page), (seen) => seen.at(-1) === "preview: mole");
    await frozen(page, async () => {
      go.open();
      const conversation = conversationOf(page);
      await until(() => antiphon.api<{ slot: string | null }>("GET", `/conversations/${conversation}`), (row) => row.slot === null);
      proxy.cutAll(); // and its connections are long gone
    });
    await showing(page, "Begin", "ready", "Go on", "mole digs");
    await settled(page);
  });
});

test("a page that is loaded anew in the middle of an answer has all of it", async () => {
  await opened("/", async (page) => {
    const go = gate();
    model.will(async (saying) => {
      saying.say("hare runs ");
      await go.passed;
      saying.say("far");
      saying.end();
    });
    await says(page, "Name one");
    await showing(page, "waiting: Name one", "preview: hare runs");
    await page.reload();
    await showing(page, "waiting: Name one", "preview: hare runs");
    go.open();
    await showing(page, "Name one", "hare runs far");
    await settled(page);
  });
});

test("the server is killed in the middle of an answer, and between a commit and its event", async () => {
  await opened("/", async (page) => {
    await begun(page, "Begin", "ready");
    model.will(async (saying) => saying.say("newt sleeps"));
    await says(page, "Go on");
    await until(() => screen(page), (seen) => seen.at(-1) === "preview: newt sleeps");
    await antiphon.kill();
    await antiphon.start();
    await page.getByRole("group", { name: "No answer" }).waitFor();
    assert.ok(!(await screen(page)).includes("newt sleeps"));

    // The commit is durable; no event of it leaves.
    const conversation = conversationOf(page);
    proxy.mangle = (frame) => (frame.includes("message.committed") || frame.includes("run.changed") ? [] : [frame]);
    model.will((saying) => (saying.say("newt wakes"), saying.end()));
    await says(page, "Once more");
    await until(
      () => antiphon.api<{ messages: { blocks: { text?: string }[] }[] }>("GET", `/conversations/${conversation}/tree`),
      (tree) => JSON.stringify(tree).includes("newt wakes"),
    );
    await antiphon.kill();
    proxy.mangle = null;
    await antiphon.start();
    await until(() => screen(page), (seen) => seen.at(-1) === "newt wakes");
    neverSent("newt");
  });
});
