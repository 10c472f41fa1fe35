/** A real server: `antiphon serve`, in a process of its own, that can be killed and started again. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const ROOT = join(import.meta.dirname, "../../../..");
export const PYTHON = process.env["ANTIPHON_PYTHON"] ?? join(ROOT, ".venv/bin/python");

export class Antiphon {
  url = "";
  readonly folder = mkdtempSync(join(tmpdir(), "antiphon-proof-"));
  readonly #environment = { ...process.env };
  #process: ChildProcess | undefined;

  /** With `bare`, from a package in which no console was built. */
  constructor(model: string, { bare = false }: { bare?: boolean } = {}) {
    if (bare) {
      const copy = join(this.folder, "src");
      cpSync(join(ROOT, "src"), copy, { recursive: true, filter: (path) => !/console\/dist|__pycache__/.test(path) });
      this.#environment["PYTHONPATH"] = copy;
    }
    const config = `
      default_model = "played"
      [models.played]
      profile = "openai-chat"
      model = "played-1"
      price = { input = 2.5, output = 10, cached = 1.25 }
      base_url = "${model}/v1"
      context_window = 1000000
      max_output_tokens = 1024
      [models.other]
      profile = "openai-chat"
      model = "played-2"
      base_url = "${model}/v1"
      context_window = 1000000
      max_output_tokens = 1024
      [models.kept]
      profile = "openai-responses"
      model = "kept-1"
      base_url = "${model}/v1"
      facts = { background = true }
      context_window = 1000000
      max_output_tokens = 1024
      [mcp.time]
      command = "${PYTHON}"
      args = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
      approval = "always"
    `;
    writeFileSync(join(this.folder, "antiphon.toml"), config);
  }

  async start(): Promise<void> {
    const options = ["--json", "--port", "0", "--db", `sqlite:///${join(this.folder, "a.db")}`, "--config", join(this.folder, "antiphon.toml")];
    const started = spawn(PYTHON, ["-m", "antiphon", "serve", ...options], { stdio: ["ignore", "pipe", "pipe"], cwd: this.folder, env: this.#environment });
    this.#process = started;
    let said = "";
    started.stderr?.on("data", (data: Buffer) => (said += data.toString()));
    const lines = createInterface({ input: started.stdout! });
    const [line] = (await Promise.race([once(lines, "line"), once(started, "exit").then(() => [""])])) as string[];
    if (!line) throw new Error(`the server did not start: ${said}`);
    this.url = (JSON.parse(line) as { url: string }).url;
  }

  /** End it without a chance to say anything. */
  async kill(): Promise<void> {
    const running = this.#process;
    if (running === undefined || running.exitCode !== null) return;
    running.kill("SIGKILL");
    await once(running, "exit");
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async api<T>(method: string, path: string, body?: object): Promise<T> {
    const init: RequestInit = { method, headers: { "content-type": "application/json" } };
    if (body !== undefined) init.body = JSON.stringify(body);
    const answer = await fetch(`${this.url}/antiphon/v1${path}`, init);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }
}
