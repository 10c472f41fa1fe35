/**
 * Requests to a server: sent, answered, sent again only where that cannot do a thing twice.
 *
 * What went wrong is told by its kind and never by the words of an exception: browsers disagree
 * about those.
 */

import { AntiphonError, type Finding } from "./errors.ts";

/** How long a client bears what may pass, in milliseconds. */
export interface Patience {
  /** A change that got no answer for so long is given up. */
  readonly totalMs: number;
  /** A request that takes longer is sent again, where it may be. */
  readonly answerMs: number;
  /** A stream that says nothing for so long is broken; a server says every 15 s that it lives. */
  readonly silenceMs: number;
  /** One that says nothing at its very beginning is kept by something until it is whole. */
  readonly openingMs: number;
}

export const PATIENCE: Patience = { totalMs: 60_000, answerMs: 30_000, silenceMs: 40_000, openingMs: 10_000 };

export interface Options {
  /** Such as `http://127.0.0.1:8000`; by default where the page came from. */
  readonly url?: string;
  /** What the server knows you by; none is needed where it has no keys. */
  readonly key?: string | (() => string | null | undefined);
  readonly patience?: Partial<Patience>;
  /** Stands in for the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch;
}

/** A try came to nothing, and another may not. `sent`: a byte of it may have arrived. */
export class Lost extends Error {
  readonly sent: boolean;
  constructor(reason: string, sent: boolean) {
    super(reason);
    this.sent = sent;
  }
}

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 10_000;

/** Pauses between tries: none, then growing, with some chance in them, so that no two march. */
export class Pause {
  #next = 0;

  next(): number {
    const pause = this.#next * (0.5 + Math.random() / 2);
    this.#next = Math.min(LONGEST_PAUSE_MS, 2 * this.#next) || FIRST_PAUSE_MS;
    return pause;
  }

  reset(): void {
    this.#next = 0;
  }
}

export interface Change {
  readonly body?: object;
  readonly query?: Query;
  /** The idempotency key; the same one with every try. */
  readonly key?: string | undefined;
  /** Whether a run is to be refused, instead of queued, where another one works. */
  readonly alone?: boolean | undefined;
  /**
   * Whether it may be sent again when nobody knows whether it arrived: with a key, an id of ours
   * in it, or where doing it twice is doing it once.
   */
  readonly again?: boolean;
  readonly signal?: AbortSignal | undefined;
}

export type Query = Readonly<Record<string, string | number | null | undefined>>;

/** One server. */
export class Wire {
  readonly patience: Patience;
  readonly #options: Options;

  constructor(options: Options) {
    this.patience = { ...PATIENCE, ...options.patience };
    this.#options = options;
  }

  /** Return what stands at `path`. */
  get<T>(path: string, query: Query = {}): Promise<T> {
    return this.change("GET", path, { query });
  }

  /** Carry out a change and return what the server made of it, however many tries it takes. */
  async change<T>(method: string, path: string, change: Change = {}): Promise<T> {
    const text = await this.call(method, path, change, (answer) => answer.text());
    try {
      return (text === "" ? undefined : JSON.parse(text)) as T;
    } catch {
      throw notAntiphon("its answer is no JSON");
    }
  }

  /** As `change`; `read` takes the answer apart. */
  async call<T>(
    method: string,
    path: string,
    { body, query, key, alone, again = true, signal }: Change,
    read: (answer: Response) => Promise<T>,
  ): Promise<T> {
    const headers: Record<string, string> = {};
    if (key !== undefined) headers["idempotency-key"] = key;
    if (alone === true) headers["antiphon-when-busy"] = "refuse";
    if (method !== "GET") headers["content-type"] = "application/json";
    const init: RequestInit = { method, headers };
    if (method !== "GET") init.body = JSON.stringify(body ?? {});
    const pause = new Pause();
    const until = Date.now() + this.patience.totalMs;
    for (;;) {
      const limit = AbortSignal.timeout(this.patience.answerMs);
      try {
        const answer = await this.answered(path + written(query), {
          ...init,
          signal: signal === undefined ? limit : AbortSignal.any([limit, signal]),
        });
        return await read(answer).catch(() => {
          throw new Lost("the connection broke", true);
        });
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof Lost)) throw error;
        const wait = pause.next();
        if ((error.sent && !again) || Date.now() + wait > until) throw unavailable(error);
        await new Promise((done) => setTimeout(done, wait));
      }
    }
  }

  /** Return the answer to one request that was sent once, its body unread. */
  async answered(path: string, init: RequestInit): Promise<Response> {
    const { url = "", key, fetch = globalThis.fetch } = this.#options;
    const headers = new Headers(init.headers);
    const secret = typeof key === "function" ? key() : key;
    if (secret !== undefined && secret !== null) headers.set("authorization", `Bearer ${secret}`);
    let answer: Response;
    let text: string;
    try {
      // A redirect is not followed: a key goes to nobody but the server that it was given for.
      answer = await fetch(url.replace(/\/$/, "") + path, {
        ...init,
        headers,
        redirect: "error",
        cache: "no-store",
        credentials: "same-origin",
      });
      if (answer.ok) return answer;
      text = await answer.text();
    } catch {
      throw new Lost("no connection, or it broke", true);
    }
    throw saidBy(answer, text);
  }
}

export function unavailable(lost: Lost): AntiphonError {
  return new AntiphonError(`The server does not answer: ${lost.message}.`, "server_unavailable", { retryable: true });
}

export function notAntiphon(problem: string): AntiphonError {
  return new AntiphonError(`What answers there does not speak as this release does: ${problem}.`, "not_antiphon");
}

interface Told {
  readonly code: string;
  readonly message: string;
  readonly at?: string | null;
  readonly retryable?: boolean;
  readonly request_id?: string | null;
  readonly findings?: readonly Finding[];
}

/** Return what an answer other than success says. */
function saidBy(answer: Response, text: string): AntiphonError | Lost {
  const { status } = answer;
  let told: Partial<Told> | undefined;
  try {
    told = (JSON.parse(text) as { error?: Partial<Told> }).error;
  } catch {
    told = undefined;
  }
  if (told?.code === undefined) {
    if (status >= 502 && status <= 504) return new Lost(`something before it answers ${status}`, true);
    return notAntiphon(`it answers ${status}`);
  }
  // It says that nothing was written.
  if (status === 503 && told.retryable === true) return new Lost(told.message ?? "", false);
  return new AntiphonError(told.message ?? "", told.code, {
    status,
    at: told.at ?? null,
    retryable: told.retryable ?? false,
    requestId: told.request_id ?? null,
    findings: told.findings ?? [],
  });
}

/** Return `query` as it stands behind a path; what is absent is left out. */
export function written(query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length === 0 ? "" : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}
