/**
 * One stream of a conversation's events for all tabs of a browser that look at it.
 *
 * A browser opens six connections to a host that speaks HTTP/1.1, and each stream holds one: seven
 * tabs, and nothing gets through any more. So whoever holds a lock fetches for all, and says on a
 * channel what it is told. The lock passes on when its tab is closed or dies; from a tab that is
 * frozen, and so answers nobody, it is taken.
 *
 * This knows events only as text. What they mean, and what to do about a gap, a repetition or an
 * end, is up to each tab's `Feed`: it is told no more than any network may tell it.
 */

import { newId } from "./ids.ts";

type Fetch = typeof globalThis.fetch;

type Said =
  /** A tab wants what came after a number. */
  | { readonly say: "join"; readonly id: string; readonly after: number }
  /** Somebody else fetches from now on: who waits asks again. */
  | { readonly say: "lead" }
  /** What follows is a new stream, which begins early enough for these. */
  | { readonly say: "open"; readonly ids: readonly string[] }
  | { readonly say: "text"; readonly text: string }
  | { readonly say: "refused"; readonly status: number; readonly text: string }
  /** The stream is at its end, or there is none. */
  | { readonly say: "over" };

/** So many joins at once are one request: tabs come back together when a stream is recycled. */
const GATHER_MS = 30;
/** A tab that fetches and does not answer for so long is frozen. */
const FROZEN_MS = 2_500;
/** A tab that attaches anew is gone for a moment only. */
const GONE_MS = 500;

/** Return a `fetch` whose streams of events are shared between the tabs of a browser, where it can do that. */
export function sharing(fetch: Fetch = (...asked) => globalThis.fetch(...asked)): Fetch {
  if (globalThis.navigator?.locks === undefined || globalThis.BroadcastChannel === undefined) return fetch;
  const circles = new Map<string, Circle>();
  return (input, init = {}) => {
    const [, path, after] = /^(.*\/events)\?after=(\d+)$/.exec(String(input)) ?? [];
    if (path === undefined) return fetch(input, init);
    let circle = circles.get(path);
    if (circle === undefined) circles.set(path, (circle = new Circle(path, fetch, () => circles.delete(path))));
    init.signal?.throwIfAborted();
    return circle.join(Number(after), init);
  };
}

/** Who in this tab reads the stream. */
interface Member {
  readonly after: number;
  readonly answer: (response: Response) => void;
  readonly fail: (reason: unknown) => void;
  body: ReadableStreamDefaultController<Uint8Array> | null;
}

/** What one tab has to do with the stream at one path. */
class Circle {
  readonly #path: string;
  readonly #fetch: Fetch;
  readonly #channel: BroadcastChannel;
  readonly #dissolve: () => void;
  readonly #members = new Map<string, Member>();
  /** Joins that the next request is to answer. */
  readonly #joining = new Set<string>();
  readonly #encoder = new TextEncoder();
  #init: RequestInit = {};
  /** The number of the last event that came by. */
  #seq = Infinity;
  #from = Infinity;
  #release: (() => void) | null = null;
  #contending = new AbortController();
  #stream: AbortController | null = null;
  #gathering: ReturnType<typeof setTimeout> | undefined;
  #gone: ReturnType<typeof setTimeout> | undefined;

  constructor(path: string, fetch: Fetch, dissolve: () => void) {
    this.#path = path;
    this.#fetch = fetch;
    this.#dissolve = dissolve;
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }) => this.#hear(data as Said);
    this.#contend({});
  }

  get #name(): string {
    return `antiphon ${this.#path}`;
  }

  join(after: number, { signal, ...init }: RequestInit): Promise<Response> {
    clearTimeout(this.#gone);
    this.#init = init;
    const id = newId("tab_");
    return new Promise((answer, fail) => {
      this.#members.set(id, { after, answer, fail, body: null });
      signal?.addEventListener("abort", () => {
        this.#end(id, (member) => (member.body === null ? fail(signal.reason) : member.body.error(signal.reason)));
        this.#leave();
      });
      this.#ask(id, after);
      setTimeout(() => {
        if (this.#release === null && this.#members.get(id)?.body === null) this.#contend({ steal: true });
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
    this.#stream?.abort();
    this.#stream = null;
    clearTimeout(this.#gathering);
    this.#gathering = undefined;
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

  #ask(id: string, after: number): void {
    const join: Said = { say: "join", id, after };
    if (this.#release === null) this.#channel.postMessage(join);
    else this.#hear(join);
  }

  #hear(said: Said): void {
    switch (said.say) {
      case "join":
        if (this.#release !== null) this.#gather(said.id, said.after);
        return;
      case "lead":
        if (this.#release !== null) this.#gather("", this.#seq);
        for (const [id, member] of this.#members) if (member.body === null) this.#ask(id, member.after);
        return;
      case "open":
        for (const id of said.ids) this.#open(id);
        return;
      case "text":
        for (const [, seq] of said.text.matchAll(/^id: ?(\d+)/gm)) this.#seq = Number(seq);
        for (const { body } of this.#members.values()) body?.enqueue(this.#encoder.encode(said.text));
        return;
      case "refused":
        return this.#all((member) => {
          const { status, text } = said;
          if (member.body === null) member.answer(new Response(text, { status }));
          else member.body.close();
        });
      case "over":
        return this.#all((member) => (member.body === null ? member.fail(new TypeError("lost")) : member.body.close()));
    }
  }

  #open(id: string): void {
    const member = this.#members.get(id);
    if (member === undefined || member.body !== null) return;
    const body = new ReadableStream<Uint8Array>({ start: (controller) => void (member.body = controller) });
    member.answer(new Response(body, { headers: { "content-type": "text/event-stream" } }));
  }

  #all(end: (member: Member) => void): void {
    for (const id of [...this.#members.keys()]) this.#end(id, end);
  }

  #end(id: string, end: (member: Member) => void): void {
    const member = this.#members.get(id);
    if (!this.#members.delete(id) || member === undefined) return;
    end(member);
  }

  // The request.

  /** Have the stream begin at `after`, or where it stands, if that is earlier. */
  #gather(id: string, after: number): void {
    this.#joining.add(id);
    this.#from = Math.min(this.#from, after, this.#seq);
    this.#gathering ??= setTimeout(() => void this.#follow(), GATHER_MS);
  }

  async #follow(): Promise<void> {
    this.#gathering = undefined;
    const [from, ids] = [this.#from, [...this.#joining]];
    this.#from = Infinity;
    this.#joining.clear();
    this.#stream?.abort();
    if (from === Infinity) return; // nobody has said yet from where
    const stream = (this.#stream = new AbortController());
    const said = (what: Said) => {
      if (this.#stream === stream) this.#tell(what);
    };
    try {
      const answer = await this.#fetch(`${this.#path}?after=${from}`, { ...this.#init, signal: stream.signal });
      if (!answer.ok || answer.body === null) return said({ say: "refused", status: answer.status, text: await answer.text() });
      said({ say: "open", ids });
      const reader = answer.body.getReader();
      const decoder = new TextDecoder();
      let held = "";
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        held += decoder.decode(piece.value, { stream: true });
        const end = held.lastIndexOf("\n\n") + 2; // an event is passed on whole, or not at all
        if (end < 2) continue;
        said({ say: "text", text: held.slice(0, end) });
        held = held.slice(end);
      }
    } catch {
      // It broke, as it does for anybody.
    }
    said({ say: "over" });
  }
}
