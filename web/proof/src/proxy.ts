/** Stands between a browser and the server, and does what networks do: cuts, doubles, reorders, hides. */

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { extname, join } from "node:path";

const PAGES = join(import.meta.dirname, "../../dist");
const KINDS: Readonly<Record<string, string>> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** What is done to a stream of events: frame in, frames out. */
export type Mangle = (frame: string) => readonly string[];

export class Proxy {
  url = "";
  /** The server behind it. */
  target: () => string;
  /** Every body that a browser sent. */
  readonly bodies: string[] = [];
  /** After how many bytes the next streams break, one after the other. */
  readonly cuts: number[] = [];
  mangle: Mangle | null = null;
  /** Whether nobody gets through. */
  down = false;
  /** How many streams of events are open now. */
  streams = 0;
  /** What the newest of them was asked to tell of. */
  newest = "";
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(target: () => string) {
    this.target = target;
    this.#server = createServer((asked, answer) => this.#pass(asked, answer));
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  async open(): Promise<void> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Break every connection there is. */
  cutAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    this.cutAll();
    this.#server.close();
  }

  #pass(asked: IncomingMessage, answer: ServerResponse): void {
    const path = asked.url ?? "/";
    if (path.startsWith("/pages/")) return page(path, answer);
    if (this.down) return void asked.socket.destroy();
    const events = /\/events\?|\/stream$/.test(path);
    if (events) {
      this.streams++;
      this.newest = path;
      answer.on("close", () => this.streams--);
    }
    const cut = events ? this.cuts.shift() : undefined;
    const { host: _, "accept-encoding": __, ...headers } = asked.headers;
    const on = request(this.target() + path, { method: asked.method ?? "GET", headers }, (told) => {
      answer.writeHead(told.statusCode ?? 502, told.headers);
      answer.flushHeaders();
      let left = cut ?? Infinity;
      let held = "";
      told.on("data", (data: Buffer) => {
        const bytes = events && this.mangle !== null ? Buffer.from(mangled(data.toString())) : data;
        answer.write(bytes.subarray(0, left));
        left -= bytes.length;
        if (left <= 0) asked.socket.destroy();
      });
      told.on("end", () => answer.end());
      told.on("error", () => asked.socket.destroy());
      const mangled = (text: string): string => {
        const frames = (held + text).split("\n\n");
        held = frames.pop() ?? "";
        return frames.flatMap((frame) => this.mangle?.(`${frame}\n\n`) ?? []).join("");
      };
    });
    on.on("error", () => asked.socket.destroy());
    answer.on("close", () => on.destroy());
    asked.on("data", (data: Buffer) => this.bodies.push(data.toString()));
    asked.pipe(on);
  }
}

function page(path: string, answer: ServerResponse): void {
  const name = new URL(path, "http://x").pathname.replace("/pages/", "");
  try {
    const data = readFileSync(join(PAGES, name));
    answer.writeHead(200, { "content-type": KINDS[extname(name)] ?? "application/octet-stream" }).end(data);
  } catch {
    answer.writeHead(404).end();
  }
}
