/**
 * Following a conversation over a network that cuts, stalls and hides: nothing missed or doubled.
 *
 * A stream is only a way to get frames; what they mean is decided by `reduce`. When one breaks,
 * goes silent or leaves a gap, another is attached at the cursor. When streams come to nothing
 * twice in a row, as behind something that keeps an answer until it is whole, the same frames are
 * asked for by polling, and a stream is tried again from time to time.
 */

import { AntiphonError } from "./errors.ts";
import type { Frame } from "./frames.ts";
import { EventStream } from "./sse.ts";
import { attached, reduce, type State } from "./state.ts";
import { Lost, notAntiphon, Pause, type Wire, written } from "./wire.ts";

/** How the way to the server is. `reconnecting` is said only after two seconds without it. */
export type Connection = "connecting" | "live" | "reconnecting" | "closed";

export interface Listener {
  /** Each frame that changed what is known, with the state before and after it. */
  step(before: State, after: State, frame: Frame): void;
  /** How the way to the server is now; with `closed`, why, where it was not asked for. */
  connection?(connection: Connection, error?: AntiphonError): void;
}

/**
 * Tells when the world has changed while nobody looked: calls `wake(true)` where connections are
 * surely dead, `wake(false)` where they may be. Returns how to stop that.
 */
export type Wakes = (wake: (surely: boolean) => void) => () => void;

/** So many streams in a row that did not come so far as to be caught up, and polling begins. */
const FRUITLESS = 2;
/** So many polls, and a stream is tried again. */
const POLLS = 20;
/** A server says every 15 s that it lives. */
const QUIET_MS = 16_000;
const BADGE_MS = 2_000;
const AFTER_SHUTDOWN_MS = 1_000;

/** One follower of one conversation, until it is closed. */
export class Feed {
  /** What it knows: never ahead of what the listener was told. */
  state: State;
  readonly #wire: Wire;
  readonly #path: string;
  readonly #listener: Listener;
  readonly #sleep: () => void;
  readonly #over = new AbortController();
  #attached = new AbortController();
  #woken = false;
  #connection: Connection = "connecting";
  #badge: ReturnType<typeof setTimeout> | undefined;
  #awake: () => void = () => {};
  #heard = 0;
  #fruitless = 0;
  #polls = 0;

  constructor(wire: Wire, path: string, state: State, listener: Listener, wakes: Wakes = pageWakes) {
    this.state = state;
    this.#wire = wire;
    this.#path = path;
    this.#listener = listener;
    this.#sleep = wakes((surely) => this.wake(surely));
    void this.#run();
  }

  /** Attach again at once, where nothing was heard for a while; `surely`, whatever was heard. */
  wake(surely = true): void {
    this.#woken = true;
    if (surely || Date.now() - this.#heard > QUIET_MS) this.#attached.abort();
    this.#awake();
  }

  /** Follow no longer. This cancels nothing: a run belongs to the server. */
  close(): void {
    this.#over.abort();
    this.#attached.abort();
    this.#awake();
  }

  async #run(): Promise<void> {
    const pause = new Pause();
    let failure: AntiphonError | undefined;
    while (!this.#over.signal.aborted) {
      this.state = attached(this.state);
      this.#attached = new AbortController();
      this.#woken = false;
      let fruitless = false;
      try {
        fruitless = await this.#attach();
      } catch (error) {
        if (!(error instanceof Lost)) {
          failure = error instanceof AntiphonError ? error : notAntiphon(String(error));
          break;
        }
      }
      const { caughtUp, ended } = this.state;
      if (caughtUp) {
        pause.reset();
        this.#fruitless = 0;
      } else if (fruitless) {
        this.#fruitless++;
      }
      if (ended === "shutdown") await this.#rest(AFTER_SHUTDOWN_MS);
      else if (ended === null && !this.#woken && !(this.#polls > 0 && caughtUp)) {
        this.#tellBroken();
        await this.#rest(pause.next());
      }
    }
    this.#sleep();
    clearTimeout(this.#badge);
    this.#tell("closed", failure);
  }

  /** Take frames until there is reason to attach anew; return whether a stream came to nothing. */
  async #attach(): Promise<boolean> {
    if (this.#fruitless >= FRUITLESS) {
      this.#fruitless = 0;
      this.#polls = POLLS;
    }
    if (this.#polls > 0) {
      this.#polls--;
      await this.#poll();
      return false;
    }
    return this.#stream();
  }

  async #poll(): Promise<void> {
    const { signal } = this.#attached;
    const query = { query: { after: this.state.seq }, signal };
    try {
      const { frames } = await this.#wire.change<{ frames: readonly Frame[] }>("GET", `${this.#path}/poll`, query);
      for (const frame of frames) this.#take(frame);
    } catch (error) {
      if (!signal.aborted && !(error instanceof AntiphonError && error.code === "server_unavailable")) throw error;
    }
  }

  async #stream(): Promise<boolean> {
    const { patience } = this.#wire;
    const attached = this.#attached;
    let silent = false;
    const giveUp = () => {
      silent = true;
      attached.abort();
    };
    let watchdog = setTimeout(giveUp, patience.openingMs);
    try {
      const path = this.#path + written({ after: this.state.seq });
      const answer = await this.#wire.answered(path, { signal: attached.signal });
      if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || answer.body === null) {
        throw notAntiphon("a stream of something else");
      }
      const reader = answer.body.getReader();
      const decoder = new TextDecoder();
      const events = new EventStream();
      for (;;) {
        const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
        // What the end of the body left unterminated was cut off, and comes again.
        if (done || value === undefined) return true;
        clearTimeout(watchdog);
        watchdog = setTimeout(giveUp, patience.silenceMs);
        this.#heard = Date.now();
        for (const data of events.feed(decoder.decode(value, { stream: true }))) this.#take(read(data));
        if (this.state.behind || this.state.ended !== null) return true;
      }
    } catch (error) {
      if (error instanceof Lost && silent) return true;
      throw error;
    } finally {
      clearTimeout(watchdog);
      attached.abort();
    }
  }

  #take(frame: Frame): void {
    if (this.#over.signal.aborted) return;
    const before = this.state;
    this.state = reduce(before, frame);
    this.#heard = Date.now();
    if (this.state.caughtUp) this.#tell("live");
    if (this.state !== before) this.#listener.step(before, this.state, frame);
  }

  #tell(connection: Connection, error?: AntiphonError): void {
    if (connection === "live") {
      clearTimeout(this.#badge);
      this.#badge = undefined;
    }
    if (this.#connection === connection) return;
    this.#connection = connection;
    this.#listener.connection?.(connection, error);
  }

  #tellBroken(): void {
    this.#badge ??= setTimeout(() => this.#tell("reconnecting"), BADGE_MS);
  }

  #rest(ms: number): Promise<void> {
    return new Promise((done) => {
      const timer = setTimeout(done, ms);
      this.#awake = () => {
        clearTimeout(timer);
        done();
      };
      if (this.#over.signal.aborted) this.#awake();
    });
  }
}

function read(data: string): Frame {
  try {
    return JSON.parse(data) as Frame;
  } catch {
    throw notAntiphon("a frame that is no JSON");
  }
}

/** What a page knows: it is looked at again, the network is back, it comes out of the cache. */
export function pageWakes(wake: (surely: boolean) => void): () => void {
  if (typeof document === "undefined") return () => {};
  const listening = new AbortController();
  const { signal } = listening;
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && wake(false), { signal });
  addEventListener("online", () => wake(true), { signal });
  addEventListener("pageshow", (event) => event.persisted && wake(true), { signal });
  return () => listening.abort();
}
