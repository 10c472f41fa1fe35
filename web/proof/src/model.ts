/** A provider that says what a test tells it to, when it tells it to. */

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

/** One answer that is being given. */
export class Saying {
  readonly #answer: ServerResponse;
  #usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15, prompt_tokens_details: { cached_tokens: 8 } };

  constructor(answer: ServerResponse) {
    this.#answer = answer;
    answer.writeHead(200, { "content-type": "text/event-stream" });
  }

  say(content: string): void {
    this.#delta({ content });
  }

  think(reasoning_content: string): void {
    this.#delta({ reasoning_content });
  }

  call(id: string, name: string, given: object): void {
    this.#delta({ tool_calls: [{ index: 0, id, type: "function", function: { name, arguments: JSON.stringify(given) } }] });
    this.end("tool_calls");
  }

  end(finish = "stop"): void {
    this.#delta({}, finish);
    this.#answer.write(`data: ${JSON.stringify({ choices: [], usage: this.#usage })}\n\ndata: [DONE]\n\n`);
    this.#answer.end();
  }

  /** Say why there is no answer. */
  fail(message: string, type: string): void {
    this.#answer.end(`data: ${JSON.stringify({ error: { message, type, code: type } })}\n\n`);
  }

  /** Break off in the middle. */
  cut(): void {
    this.#answer.destroy();
  }

  #delta(delta: object, finish: string | null = null): void {
    const choices = [{ index: 0, delta, finish_reason: finish }];
    this.#answer.write(`data: ${JSON.stringify({ id: "chatcmpl-1", choices })}\n\n`);
  }
}

/** What the Responses API says, whole: a recorded answer. */
const RECORDED = join(import.meta.dirname, "../../../../tests/data/fixtures/streams/openai_responses/01_text.sse");

type Script = (saying: Saying, asked: string) => void | Promise<void>;

export class Model {
  url = "";
  /** Every request's body, as it came. */
  readonly requests: string[] = [];
  /** How many requests to the Responses API are taken and never answered: the connection breaks. */
  dies = 0;
  readonly #scripts: Script[] = [];
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, answer) => {
      const pieces: Buffer[] = [];
      request.on("data", (piece: Buffer) => pieces.push(piece));
      request.on("end", () => {
        const body = Buffer.concat(pieces).toString();
        this.requests.push(body);
        if (request.url?.endsWith("/responses") === true) {
          if (this.dies-- > 0) return void request.socket.destroy();
          return void answer.writeHead(200, { "content-type": "text/event-stream" }).end(readFileSync(RECORDED));
        }
        const { messages } = JSON.parse(body) as { messages: { role: string; content: unknown }[] };
        const last = messages.at(-1);
        const asked = typeof last?.content === "string" ? last.content : JSON.stringify(last?.content);
        const script = this.#scripts.shift() ?? ((saying: Saying) => (saying.say(`Answer to ${asked}.`), saying.end()));
        void script(new Saying(answer), asked);
      });
    });
  }

  /** Answer the next requests so, one after the other. */
  will(...scripts: Script[]): void {
    this.#scripts.push(...scripts);
  }

  /** Forget what was to be said, and break off what is being said. */
  forget(): void {
    this.#scripts.length = 0;
    this.dies = 0;
    this.#server.closeAllConnections();
  }

  async open(): Promise<void> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** Something that a test waits for, or lets happen. */
export function gate(): { readonly passed: Promise<void>; readonly open: () => void } {
  let open = () => {};
  const passed = new Promise<void>((done) => (open = done));
  return { passed, open };
}
