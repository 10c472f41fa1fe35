/** Stands in for a server: answers as it is told, and remembers what it was asked. */

import type { Frame } from "../src/index.ts";

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
  readonly headers: Headers;
}

type Answer = (asked: Asked, signal: AbortSignal) => Response | Promise<Response>;

export class Server {
  readonly asked: Asked[] = [];
  readonly #answers: Answer[] = [];
  #waiting: (() => void)[] = [];

  /** Answer the next requests so, one after the other; the last answer stays. */
  will(...answers: Answer[]): void {
    this.#answers.push(...answers);
  }

  /** Come back once `count` requests have been made. */
  async heard(count: number): Promise<void> {
    while (this.asked.length < count) await new Promise<void>((done) => this.#waiting.push(done));
  }

  readonly fetch: typeof globalThis.fetch = async (input, init = {}) => {
    const body = typeof init.body === "string" ? (JSON.parse(init.body) as unknown) : undefined;
    const asked = { method: init.method ?? "GET", path: String(input), body, headers: new Headers(init.headers) };
    this.asked.push(asked);
    for (const done of this.#waiting.splice(0)) done();
    const answer = this.#answers.length > 1 ? this.#answers.shift() : this.#answers[0];
    const signal = init.signal ?? new AbortController().signal;
    if (answer === undefined) throw new TypeError("Failed to fetch");
    signal.throwIfAborted();
    return await Promise.race([answer(asked, signal), aborted(signal)]);
  };
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, refuse) => signal.addEventListener("abort", () => refuse(signal.reason as Error)));
}

export const broken: Answer = () => {
  throw new TypeError("Load failed");
};

/** Hold the request, as an open socket would, until whoever asked gives it up. */
export const never: Answer = (_, signal) => {
  const socket = setInterval(() => {}, 1_000);
  signal.addEventListener("abort", () => clearInterval(socket));
  return new Promise(() => {});
};

export function json(value: unknown, status = 200): Answer {
  return () => new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json" } });
}

export function fault(status: number, code: string, retryable = false): Answer {
  return json({ error: { code, message: "no", at: "x", retryable, request_id: "req_1" } }, status);
}

export function written(frames: readonly Frame[]): string {
  return frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join("");
}

/** A stream of these texts; then it ends, breaks, or stays open and silent. */
export function stream(texts: readonly string[], then: "ends" | "breaks" | "stays"): Answer {
  return (_, signal) => {
    const left = texts.map((text) => new TextEncoder().encode(text));
    const body = new ReadableStream({
      start: (controller) => signal.addEventListener("abort", () => controller.error(signal.reason)),
      pull(controller) {
        const next = left.shift();
        if (next !== undefined) controller.enqueue(next);
        else if (then === "ends") controller.close();
        else if (then === "breaks") controller.error(new TypeError("network error"));
        else return new Promise<void>(() => {});
        return undefined;
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
}
