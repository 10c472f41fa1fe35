/** All of it at once: a provider, a server, a proxy and one browser, for the whole run. */

import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { Model } from "./model.ts";
import { Proxy } from "./proxy.ts";
import { Antiphon } from "./server.ts";

const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];

export const WAIT_MS = 30_000;

export const model = new Model();
export let antiphon: Antiphon;
export const proxy = new Proxy(() => antiphon.url);
let browser: Browser;

export async function raise(): Promise<void> {
  await model.open();
  antiphon = new Antiphon(model.url);
  await Promise.all([antiphon.start(), proxy.open(), launch()]);
}

async function launch(): Promise<void> {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: [...FLAGS, "--disable-component-update", "--disable-sync"] });
}

export async function strike(): Promise<void> {
  await browser?.close();
  proxy.close();
  await antiphon?.close();
  model.close();
}

/** Give a page of a browser that knows nothing yet; what it throws is a failure. */
export async function opened(path: string, use: (page: Page) => Promise<void>, options: BrowserContextOptions = {}): Promise<void> {
  const context = await browser.newContext({ locale: "en-GB", reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(WAIT_MS);
  proxy.bodies.length = 0;
  try {
    const page = await context.newPage();
    const thrown: string[] = [];
    page.on("pageerror", (error) => thrown.push(String(error)));
    await page.goto(proxy.url + path);
    await use(page);
    if (thrown.length > 0) throw new Error(`the page threw: ${thrown.join("\n")}`);
  } finally {
    model.forget();
    proxy.cuts.length = 0;
    proxy.mangle = null;
    proxy.down = false;
    await context.close();
  }
}

/** Come back once `found` is true, or say what was seen last. */
export async function until<T>(look: () => T | Promise<T>, found: (seen: T) => boolean): Promise<T> {
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const seen = await look();
    if (found(seen)) return seen;
    if (Date.now() > deadline) throw new Error(`waited in vain; last seen: ${JSON.stringify(seen)}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

/** One task of a page's main thread: how long it took, and how much of that it worked. */
export interface Task {
  readonly ms: number;
  readonly cpuMs: number;
}

interface Traced {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly dur?: number;
  readonly tdur?: number;
  readonly args: { readonly name?: string };
}

/** Return what the page's main thread did while `use` went on. */
export async function traced(page: Page, use: () => Promise<void>): Promise<readonly Task[]> {
  await browser.startTracing(page, { categories: ["disabled-by-default-devtools.timeline"] });
  await use();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: readonly Traced[] };
  const mains = traceEvents.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain");
  const tasks = mains.map(({ pid, tid }) => traceEvents.filter((one) => one.name === "RunTask" && one.pid === pid && one.tid === tid));
  const busiest = tasks.sort((a, b) => b.length - a.length)[0] ?? []; // there are renderers in reserve
  return busiest.map(({ dur = 0, tdur = 0 }) => ({ ms: dur / 1000, cpuMs: tdur / 1000 }));
}
