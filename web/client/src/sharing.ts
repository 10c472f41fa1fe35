/**
 * One stream of events for all tabs of a browser, whatever conversations they look at.
 *
 * A browser opens six connections to a host that speaks HTTP/1.1, and each stream holds one: seven
 * tabs, and nothing gets through any more. So whoever holds a lock fetches for all, and says on a
 * channel what it is told. The lock passes on when its tab is closed or dies; from a tab that is
 * frozen, and so answers nobody, it is taken.
 *
 * This knows events only as text, and of which conversation they are. What they mean, and what to
 * do about a gap, a repetition or an end, is up to each tab's `Feed`: it is told no more than any
 * network may tell it.
 */

import { newId } from "./ids.ts";

type Fetch = typeof globalThis.fetch;

type Said =
  /** A tab wants what came in a conversation after a number. */
  | { readonly say: "join"; readonly of: string; readonly id: string; readonly after: number }
  /** It does no more. */
  | { readonly say: "leave"; readonly id: string }
  /** Who fetches has taken note of it, and so is not frozen. */
  | { readonly say: "heard"; readonly id: string }
  /** Somebody else fetches from now on: whoever wants something says so again. */
  | { readonly say: "lead" }
  /** What follows is a new stream, which begins early enough for these. */
  | { readonly say: "open"; readonly ids: readonly string[] }
  /** Events of one conversation, or a sign of life for all. */
  | { readonly say: "text"; readonly of: string | null; readonly text: string }
  /** Nothing will come of one conversation, or of any. */
  | { readonly say: "refused"; readonly of: string | null; readonly status: number; readonly text: string }
  /** The stream is at its end, or there is none. */
  | { readonly say: "over" };

/** A request that was not answered for so long is given up for one that asks for more. */
const ANSWER_MS = 250;
/** A tab that fetches and does not answer for so long is frozen. */
const FROZEN_MS = 2_500;
/** A tab that attaches anew is gone for a moment only. */
const GONE_MS = 500;
/** A server tells of so many conversations in one stream; further ones are polled by their own tabs. */
const MOST = 100;
const STREAM = { headers: { "content-type": "text/event-stream" } };

/** Return a `fetch` whose streams of events are shared between the tabs of a browser, where it can do that. */
export function sharing(fetch: Fetch = (...asked) => globalThis.fetch(...asked)): Fetch {
  if (globalThis.navigator?.locks === undefined || globalThis.BroadcastChannel === undefined) return fetch;
  const circles = new Map<string, Circle>();
  return (input, init = {}) => {
    const [, root, of, after] = /^(.*)\/conversations\/([\w-]+)\/events\?after=(\d+)$/.exec(String(input)) ?? [];
    if (root === undefined || of === undefined) return fetch(input, init);
    let circle = circles.get(root);
    if (circle === undefined) circles.set(root, (circle = new Circle(root, fetch, () => circles.delete(root))));
    init.signal?.throwIfAborted();
    return circle.join(of, Number(after), init);
  };
}

/** Who in this tab reads the stream. */
interface Member {
  readonly of: string;
  /** The number of the last event that it was given. */
  after: number;
  readonly answer: (response: Response) => void;
  readonly fail: (reason: unknown) => void;
  heard: boolean;
  body: ReadableStreamDefaultController<Uint8Array> | null;
}

/** What one tab has to do with the streams of one server. */
class Circle {
  readonly #root: string;
  readonly #fetch: Fetch;
  readonly #channel: BroadcastChannel;
  readonly #dissolve: () => void;
  readonly #members = new Map<string, Member>();
  readonly #encoder = new TextEncoder();
  #init: RequestInit = {};
  #release: (() => void) | null = null;
  #contending = new AbortController();
  #gone: ReturnType<typeof setTimeout> | undefined;
  // Of who fetches: by conversation, who in any tab reads it, and how far it has been told.
  readonly #read = new Map<string, { after: number; readonly ids: Set<string> }>();
  /** Joins that no stream has been opened for. */
  readonly #joining = new Set<string>();
  #stream: AbortController | null = null;
  /** When the request left that is not answered yet. */
  #askedAt: number | null = null;
  #more = false;

  constructor(root: string, fetch: Fetch, dissolve: () => void) {
    this.#root = root;
    this.#fetch = fetch;
    this.#dissolve = dissolve;
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }) => this.#hear(data as Said);
    this.#contend({});
  }

  get #name(): string {
    return `antiphon ${this.#root}`;
  }

  join(of: string, after: number, { signal, ...init }: RequestInit): Promise<Response> {
    clearTimeout(this.#gone);
    this.#init = init;
    const id = newId("tab_");
    return new Promise((answer, fail) => {
      const member: Member = { of, after, answer, fail, heard: false, body: null };
      this.#members.set(id, member);
      signal?.addEventListener("abort", () => {
        this.#end(id, () => (member.body === null ? fail(signal.reason) : member.body.error(signal.reason)));
        this.#ask({ say: "leave", id });
        this.#leave();
      });
      this.#ask({ say: "join", of, id, after });
      setTimeout(() => {
        if (!member.heard && this.#release === null && this.#members.has(id)) this.#contend({ steal: true });
      }, FROZEN_MS);
    });
  }

  // The lock.

  #contend({ steal = false }: { steal?: boolean }): void {
    this.#contending.abort();
    const contending = (this.#contending = new AbortController());
    const options = steal ? { steal } : { signal: contending.signal };
    void navigator.locks
      .request(this.#name, options, () => {
        if (contending.signal.aborted) return undefined;
        return new Promise<void>((release) => {
          this.#release = release;
          this.#tell({ say: "lead" });
        });
      })
      .catch(() => {
        if (contending.signal.aborted) return;
        this.#stand(); // it was taken from us
        this.#contend({});
      });
  }

  /** Fetch no longer. */
  #stand(): void {
    this.#release?.();
    this.#release = null;
    this.#stop();
  }

  #stop(): void {
    this.#stream?.abort();
    this.#stream = this.#askedAt = null;
    this.#more = false;
    this.#read.clear();
    this.#joining.clear();
  }

  #leave(): void {
    if (this.#members.size > 0) return;
    clearTimeout(this.#gone);
    this.#gone = setTimeout(() => {
      this.#contending.abort();
      this.#stand();
      this.#channel.close();
      this.#dissolve();
    }, GONE_MS);
  }

  // What is said between tabs, this one included.

  #tell(said: Said): void {
    this.#channel.postMessage(said);
    this.#hear(said);
  }

  /** Say something to who fetches. */
  #ask(said: Said): void {
    if (this.#release === null) this.#channel.postMessage(said);
    else this.#hear(said);
  }

  #hear(said: Said): void {
    switch (said.say) {
      case "join":
        if (this.#release !== null) this.#admit(said);
        return;
      case "leave":
        for (const [of, { ids }] of this.#read) if (ids.delete(said.id) && ids.size === 0) this.#read.delete(of);
        return;
      case "heard": {
        const member = this.#members.get(said.id);
        if (member !== undefined) member.heard = true;
        return;
      }
      case "lead":
        for (const [id, { of, after }] of this.#members) this.#ask({ say: "join", of, id, after });
        return;
      case "open":
        for (const id of said.ids) this.#open(id);
        return;
      case "text": {
        const seq = Number([...said.text.matchAll(/^id: ?(\d+)/gm)].at(-1)?.[1] ?? 0);
        const known = this.#read.get(said.of ?? "");
        if (known !== undefined) known.after = Math.max(known.after, seq);
        for (const member of this.#members.values()) {
          if (member.body === null || (said.of !== null && said.of !== member.of)) continue;
          member.after = Math.max(member.after, seq);
          member.body.enqueue(this.#encoder.encode(said.text));
        }
        return;
      }
      case "refused":
        return this.#all(said.of, ({ body, answer }) => {
          if (body === null) answer(new Response(said.text, { ...STREAM, status: said.status }));
          else body.close();
        });
      case "over":
        return this.#all(null, ({ body, fail }) => (body === null ? fail(new TypeError("lost")) : body.close()));
    }
  }

  #open(id: string): void {
    const member = this.#members.get(id);
    if (member === undefined || member.body !== null) return;
    const body = new ReadableStream<Uint8Array>({ start: (controller) => void (member.body = controller) });
    member.answer(new Response(body, STREAM));
  }

  /** Let everyone go who reads a conversation; null for all of them. */
  #all(of: string | null, end: (member: Member) => void): void {
    for (const [id, member] of [...this.#members]) if (of === null || of === member.of) this.#end(id, end);
  }

  #end(id: string, end: (member: Member) => void): void {
    const member = this.#members.get(id);
    if (!this.#members.delete(id) || member === undefined) return;
    end(member);
  }

  // The request.

  /** Have the stream tell of one more, from where that stands, or earlier. */
  #admit({ of, id, after }: Said & { readonly say: "join" }): void {
    const known = this.#read.get(of) ?? { after, ids: new Set() };
    this.#tell({ say: "heard", id });
    // One that is told of stays so: were it dropped, its signs of life would come, and its events would not.
    // Who comes too late gets a stream that comes to nothing: after some of these a `Feed` asks by polling.
    if (!known.ids.size && this.#read.size >= MOST) return this.#tell({ say: "refused", of, status: 200, text: "" });
    known.after = Math.min(after, known.after);
    known.ids.add(id);
    this.#read.set(of, known);
    this.#joining.add(id);
    // Tabs come back together when a stream is recycled: those that join meanwhile share the next request.
    if (this.#askedAt !== null && Date.now() - this.#askedAt < ANSWER_MS) this.#more = true;
    else void this.#follow();
  }

  async #follow(): Promise<void> {
    const told = [...this.#read];
    const ids = [...this.#joining];
    if (told.length === 0) return this.#stop();
    this.#joining.clear();
    this.#more = false;
    this.#stream?.abort();
    const stream = (this.#stream = new AbortController());
    this.#askedAt = Date.now();
    const cursors = told.map(([of, { after }]) => `${of}:${after}`).join(",");
    try {
      const answer = await this.#fetch(`${this.#root}/events?after=${cursors}`, { ...this.#init, signal: stream.signal });
      const refusal = answer.ok && answer.body !== null ? null : await answer.text();
      if (this.#stream !== stream) return;
      this.#askedAt = null;
      if (refusal !== null) this.#tell({ say: "refused", of: null, status: answer.status, text: refusal });
      else {
        this.#tell({ say: "open", ids });
        if (this.#more) return void this.#follow();
        await this.#pass(answer.body as ReadableStream<Uint8Array>, stream);
      }
    } catch {
      // It broke, as it does for anybody.
    }
    if (this.#stream !== stream) return;
    this.#stop();
    this.#tell({ say: "over" });
  }

  /** Tell everyone what comes, each event whole or not at all. */
  async #pass(body: ReadableStream<Uint8Array>, stream: AbortController): Promise<void> {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let held = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      if (this.#stream !== stream) return;
      const events = (held + decoder.decode(piece.value, { stream: true })).split("\n\n");
      held = events.pop() ?? "";
      const texts = new Map<string | null, string>();
      for (const event of events) {
        const of = /^event: ?(.*)$/m.exec(event)?.[1] ?? null;
        const refused = /^data: ?(\{"type":"refused".*)$/m.exec(event)?.[1];
        if (refused === undefined) texts.set(of, `${texts.get(of) ?? ""}${event}\n\n`);
        else this.#refuse(of, refused);
      }
      for (const [of, text] of texts) this.#tell({ say: "text", of, text });
    }
  }

  #refuse(of: string | null, data: string): void {
    const { status, error } = JSON.parse(data) as { status: number; error: object };
    this.#read.delete(of ?? "");
    this.#tell({ say: "refused", of, status, text: JSON.stringify({ error }) });
  }
}
